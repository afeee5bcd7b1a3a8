"""How things that go wrong become the `failed` value that a model reads."""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from nacre.errors import (
    ImageError,
    RuntimeUnavailableError,
    SandboxError,
    SnapshotError,
    WorkerDiedError,
    WorkerProtocolError,
)
from nacre.sandbox.limits import MAX_ERROR_CHARACTERS, Limits
from nacre.sandbox.results import Failed, Position, Reason

# Where in the program: the frames of the guest's own code say nothing to a model.
_FRAME = re.compile(
    r"^[ \t]*at (?:(?P<name>.*) \()?"
    r"cell\.[jt]s:(?P<line>[1-9]\d{0,8}):(?P<column>[1-9]\d{0,8})\)?$",
    re.M,
)
_MAX_FRAMES: Final = 6

MapPosition = Callable[[int, int], tuple[int, int] | None]


def failed_from(error: SandboxError) -> Failed:
    """The value that stands for an exception of the sandbox."""
    reason: Reason
    match error:
        case RuntimeUnavailableError() | ImageError():
            reason = "runtime_unavailable"
        case WorkerDiedError() | WorkerProtocolError():
            reason = "worker_lost"
        case SnapshotError():
            reason = "snapshot_invalid"
        case _:
            reason = "internal_error"
    return Failed(error=str(error), reason=reason)


def failed_from_worker(
    reason: Reason,
    fields: Mapping[str, Any],
    *,
    limits: Limits,
    file_name: str,
    map_position: MapPosition | None = None,
) -> Failed:
    """The value for a failure that a worker reported, in terms of the program as it was written."""
    message = _shorten(str(fields.get("message", "")))
    frames = _user_frames(str(fields.get("stack", "")), map_position)
    position = Position(line=frames[0][1], column=frames[0][2]) if frames else None
    if reason == "timeout":
        message += f" (timeoutMs is {limits.timeout_ms})"
    if reason == "memory_limit_exceeded":
        message += f" (memoryLimitBytes is {limits.memory_limit_bytes})"
    trace = "".join(f"\n    at {name}{file_name}:{line}:{column}" for name, line, column in frames)
    return Failed(error=message + trace, reason=reason, position=position)


def _user_frames(stack: str, map_position: MapPosition | None) -> list[tuple[str, int, int]]:
    frames: list[tuple[str, int, int]] = []
    for found in _FRAME.finditer(_shorten(stack)):
        line, column = int(found["line"]), int(found["column"])
        if map_position is not None:
            line, column = map_position(line, column) or (line, column)
        name = found["name"]
        shown = f"{name} " if name and name != "<anonymous>" else ""
        frames.append((shown, line, column))
    return frames[:_MAX_FRAMES]


def _shorten(text: str) -> str:
    return text if len(text) <= MAX_ERROR_CHARACTERS else f"{text[:MAX_ERROR_CHARACTERS]} [...]"
