"""The id, limits, output and results of a cell, and its error codes."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from dataclasses import field
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal, NewType, TypeAlias

from nacre.config import LIMITS
from nacre.errors import ConfigError
from nacre.json_types import encode_json
from nacre.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nacre.config import CodeModeConfig
    from nacre.json_types import JsonObject, JsonValue

CellId = NewType("CellId", str)
"""Models see it as `runId`, the contract's name. It is not the id of an agent's run."""

# The id is part of the permission to resume a cell, so it must not be guessable.
_RANDOM_ID_BYTES: Final = 16


def new_cell_id() -> CellId:
    # The same as `secrets.token_hex`, without the import.
    return CellId(f"run_{os.urandom(_RANDOM_ID_BYTES).hex()}")


ErrorCode = Literal[
    "invalid_input",
    "runtime_unavailable",
    "timeout",
    "output_limit_exceeded",
    "snapshot_limit_exceeded",
    "internal_error",
]

Reason = Literal[
    "aborted",
    "call_denied",
    "engine_trap",
    "guest_error",
    "internal_error",
    "invalid_input",
    "memory_limit_exceeded",
    "module_access_denied",
    "nested_tool_failed",
    "never_settles",
    "output_limit_exceeded",
    "run_already_resuming",
    "run_scope_mismatch",
    "run_unavailable",
    "runtime_unavailable",
    "snapshot_expired",
    "snapshot_invalid",
    "snapshot_limit_exceeded",
    "snapshot_restore_failed",
    "syntax_error",
    "timeout",
    "too_many_pending_tool_calls",
    "too_many_suspended_runs",
    "typescript_transform_failed",
    "unhandled_rejection",
    "unsupported_language",
    "worker_lost",
]

CODE_OF_REASON: Final[Mapping[Reason, ErrorCode]] = MappingProxyType(
    {
        # The caller can correct it: the program did not run, or the cell cannot be resumed.
        "invalid_input": "invalid_input",  # arguments that `exec` or `wait` does not accept
        "call_denied": "invalid_input",  # a hook or a person denied the call of `exec` or `wait`
        "unsupported_language": "invalid_input",  # a language that the config does not allow
        "syntax_error": "invalid_input",  # the program is not JavaScript
        "typescript_transform_failed": "invalid_input",  # the program is not TypeScript
        "module_access_denied": "invalid_input",  # import, require or a module loader
        "run_unavailable": "invalid_input",  # no suspended cell has this id
        "run_scope_mismatch": "invalid_input",  # the cell belongs to another session or run
        "run_already_resuming": "invalid_input",  # another `wait` for this cell is running
        "too_many_suspended_runs": "invalid_input",  # the limit of suspended cells is reached
        "snapshot_expired": "invalid_input",  # the cell was suspended for too long
        "snapshot_invalid": "invalid_input",  # the seal does not match: truncated, changed, foreign
        # The sandbox is not available.
        "runtime_unavailable": "runtime_unavailable",  # it could not be started
        "worker_lost": "runtime_unavailable",  # the worker of the cell died
        # A limit with its own code.
        "timeout": "timeout",  # the program exceeded its time limit
        "output_limit_exceeded": "output_limit_exceeded",  # output or value too large
        "snapshot_limit_exceeded": "snapshot_limit_exceeded",  # the suspended VM is too large
        # The program failed or was stopped.
        "guest_error": "internal_error",  # an exception that the program did not catch
        "unhandled_rejection": "internal_error",  # a rejected promise without a handler
        "nested_tool_failed": "internal_error",  # a tool's error that the program did not catch
        "never_settles": "internal_error",  # it awaits a promise that nothing can settle
        "memory_limit_exceeded": "internal_error",  # it needed more memory than its limit
        "too_many_pending_tool_calls": "internal_error",  # the backlog of requests is full
        "aborted": "internal_error",  # the caller aborted the cell
        "engine_trap": "internal_error",  # the engine trapped, and its VM is lost
        "snapshot_restore_failed": "internal_error",  # a valid snapshot could not be restored
        "internal_error": "internal_error",  # a bug in the sandbox
    }
)
"""The error code of each reason. The contract defines the codes; a reason is more specific.

There is no `invalid_config`: an invalid configuration raises ConfigError before a cell exists.
"""

# Requests beyond `max_pending_tool_calls` are queued. A program with this many queued requests is a
# runaway loop: the cell fails before any request of that burst is sent.
MAX_REQUEST_BACKLOG: Final = 4096

# Calls that a result lists. A program may have thousands.
_MAX_LISTED_CALLS: Final = 32
_MAX_LISTED_BYTES: Final = 8192

# A program can throw an error as large as its memory. Only the start is reported.
MAX_ERROR_CHARACTERS: Final = 8192


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """The limits of one cell. The defaults are those of `tools.codeMode`."""

    timeout_ms: int = LIMITS["timeout_ms"].default
    memory_limit_bytes: int = LIMITS["memory_limit_bytes"].default
    max_output_bytes: int = LIMITS["max_output_bytes"].default
    max_snapshot_bytes: int = LIMITS["max_snapshot_bytes"].default
    max_pending_tool_calls: int = LIMITS["max_pending_tool_calls"].default

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value: object = getattr(self, name)
            limit = LIMITS[name]
            if type(value) is not int:
                allowed = f"whole numbers from {limit.least} to {limit.most}"
                raise ConfigError(name, f"is {value!r}; allowed: {allowed}")
            if not limit.least <= value <= limit.most:
                # As in the config.
                object.__setattr__(self, name, limit.clamp(value))

    @classmethod
    def from_config(cls, config: CodeModeConfig) -> Limits:
        return cls(
            timeout_ms=config.timeout_ms,
            memory_limit_bytes=config.memory_limit_bytes,
            max_output_bytes=config.max_output_bytes,
            max_snapshot_bytes=config.max_snapshot_bytes,
            max_pending_tool_calls=config.max_pending_tool_calls,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class TextOutput:
    """Text that the program wrote with `text` or `console`."""

    text: str

    def to_json(self) -> JsonObject:
        return {"type": "text", "text": self.text}


@dataclass(frozen=True, kw_only=True, slots=True)
class JsonOutput:
    """A value that the program wrote with `json`."""

    value: JsonValue

    def to_json(self) -> JsonObject:
        return {"type": "json", "value": self.value}


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageOutput:
    """An image that the program wrote with `image`, or returned as a part of an MCP result."""

    media_type: str
    data: str = field(repr=False)
    """Base64."""

    @property
    def size_bytes(self) -> int:
        return len(self.data.rstrip("=")) * 3 // 4

    @property
    def url(self) -> str:
        return f"data:{self.media_type};base64,{self.data}"

    def to_json(self) -> JsonObject:
        """A marker: the image itself is not text."""
        return {"type": "image", "mimeType": self.media_type, "bytes": self.size_bytes}


Output: TypeAlias = TextOutput | JsonOutput | ImageOutput


@dataclass(frozen=True, kw_only=True, slots=True)
class Position:
    """A place in the program as the model wrote it. The first line and column are 1."""

    line: int
    column: int


@dataclass(frozen=True, kw_only=True, slots=True)
class PendingRequest:
    """A host request that is not answered yet."""

    id: int
    method: str
    payload: JsonValue = field(default=None, repr=False)
    is_with_person: bool = False
    """Whether its handler waits for a person."""

    def to_json(self) -> JsonObject:
        return {"id": self.id, "method": self.method}


@dataclass(kw_only=True, slots=True)
class Usage:
    """The resources that the cell has used so far; part of the telemetry of a result.

    Counts up while the cell runs. Each result has its own copy.
    """

    guest_bursts: int = 0
    requests: int = 0
    unfinished_requests: int = 0
    output_bytes: int = 0
    snapshot_bytes: int = 0
    wall_ms: float = 0.0
    worker_ms: float = 0.0

    def to_json(self) -> JsonObject:
        return {
            "guestBursts": self.guest_bursts,
            "requests": self.requests,
            "unfinishedRequests": self.unfinished_requests,
            "outputBytes": self.output_bytes,
            "snapshotBytes": self.snapshot_bytes,
            # The clocks are not more exact than microseconds.
            "wallMs": round(self.wall_ms, 3),
            "workerMs": round(self.worker_ms, 3),
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class _Result(ABC):
    """The members of all results, and their conversion to JSON.

    The surfaces build on these classes: code mode adds its telemetry to them, and Tool Search puts
    them into its own results. A sandbox knows nothing of tools, so it cannot do that itself.
    """

    output: tuple[Output, ...] = ()
    usage: Usage = field(default_factory=Usage)

    def for_model(self) -> JsonObject:
        """The result for the model: without telemetry, which costs tokens and tells it nothing.

        An empty output is left out.
        """
        return {**self.outcome_json(), **self.output_json()}

    def to_json(self) -> JsonObject:
        """The whole result, with telemetry."""
        return {**self.for_model(), "telemetry": self.telemetry_json()}

    @abstractmethod
    def outcome_json(self) -> JsonObject:
        """How the leg ended."""

    def output_json(self) -> JsonObject:
        return {"output": [item.to_json() for item in self.output]} if self.output else {}

    @property
    def images(self) -> tuple[ImageOutput, ...]:
        """The images of the output. The JSON has only a marker for each."""
        return tuple(item for item in self.output if isinstance(item, ImageOutput))

    def telemetry_json(self) -> JsonObject:
        return self.usage.to_json()


@dataclass(frozen=True, kw_only=True, slots=True)
class Completed(_Result):
    """The program returned, and all its calls and timers are done."""

    value: JsonValue

    def outcome_json(self) -> JsonObject:
        return {"status": "completed", "value": self.value}


@dataclass(frozen=True, kw_only=True, slots=True)
class Waiting(_Result):
    """The program is suspended and can be resumed."""

    cell_id: CellId
    reason: Literal["pending_tools", "yield"]
    yield_reason: str = ""
    """The reason that the program passed to `yield_control`."""
    pending: tuple[PendingRequest, ...] = ()
    next_timer_ms: int | None = None
    """The time until the next timer of the program; None if it has none."""
    has_returned: bool = False
    """Whether the program has returned, and only its calls and timers are left."""
    value: JsonValue = None
    """The returned value."""

    def outcome_json(self) -> JsonObject:
        wire: JsonObject = {"status": "waiting", "runId": self.cell_id, "reason": self.reason}
        if self.yield_reason:
            wire["yieldReason"] = self.yield_reason
        if self.next_timer_ms is not None:
            wire["nextTimerMs"] = self.next_timer_ms
        if self.has_returned:
            wire["value"] = self.value
        return {**wire, **_list_calls("pendingToolCalls", self.pending)}


@dataclass(frozen=True, kw_only=True, slots=True)
class Failed(_Result):
    """The program ended without a value. `error` says what happened and what to do."""

    error: str
    reason: Reason
    position: Position | None = None
    cancelled: tuple[PendingRequest, ...] = ()
    """The calls that were running and had to be aborted. Their effects are unknown."""

    @property
    def code(self) -> ErrorCode:
        return CODE_OF_REASON[self.reason]

    def outcome_json(self) -> JsonObject:
        wire: JsonObject = {
            "status": "failed",
            "error": self.error,
            "code": self.code,
            "reason": self.reason,
        }
        if self.position is not None:
            wire["line"] = self.position.line
            wire["column"] = self.position.column
        return {**wire, **_list_calls("abortedToolCalls", self.cancelled)}


def _list_calls(key: str, calls: Sequence[PendingRequest]) -> JsonObject:
    """List as many calls as fit; if some are left out, add the total."""
    listed: list[JsonValue] = []
    left = _MAX_LISTED_BYTES
    for call in calls[:_MAX_LISTED_CALLS]:
        wire = call.to_json()
        left -= len(encode_json(wire))
        if left < 0:
            break
        listed.append(wire)
    total: JsonObject = {f"{key}Total": len(calls)} if len(listed) < len(calls) else {}
    return {key: listed, **total} if calls else {}


CellResult: TypeAlias = Completed | Waiting | Failed
