"""A program, its transform to JavaScript, and its failures at positions in the original source."""

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field
from typing import Any, Final, Protocol, TypeVar

import anyio

from nacre.config import LANGUAGES, Language
from nacre.errors import (
    ImageError,
    RuntimeUnavailableError,
    SandboxError,
    SnapshotError,
    WorkerDiedError,
    WorkerProtocolError,
)
from nacre.lazy_dataclasses import dataclass
from nacre.lazy_exports import lazy_pattern
from nacre.sandbox.executor import Worker
from nacre.sandbox.host_requests import HostRequestHandler
from nacre.sandbox.pool import WorkerPool
from nacre.sandbox.recording import BurstRecord
from nacre.sandbox.results import MAX_ERROR_CHARACTERS, Failed, Limits, Output, Position, Reason
from nacre.sandbox.source_map import PositionMap
from nacre.sandbox.worker_process import SharedData
from nacre.sandbox.worker_protocol import Command, Event, Frame, encode_frame, read_reason

_Result = TypeVar("_Result")

_MAX_FRAMES: Final = 6
# A transform cannot make a program larger than this. A compromised worker could send more.
_MAX_GROWTH: Final = 64
_SPARE_BYTES: Final = 1 << 16
_UNAVAILABLE: Final = (
    "the sandbox cannot run programs on this machine; the reason is in the log of the host, and "
    "`nacre doctor` shows it"
)

_NOT_READY: Final = (
    "TypeScript is still being prepared on this machine, which takes some seconds the first time; "
    "try again, or write the program in JavaScript"
)


class ByteColumns:
    """Converts columns in bytes, as the engine reports them, to columns in characters."""

    def __init__(self, code: bytes) -> None:
        # In ASCII, bytes are characters.
        self._lines = None if code.isascii() else code.split(b"\n")

    def position(self, line: int, column: int) -> tuple[int, int]:
        """Return the position with its column in characters."""
        if self._lines is None or not 0 < line <= len(self._lines):
            return line, column
        before = self._lines[line - 1][: max(column - 1, 0)]
        return line, len(before.decode(errors="ignore")) + 1


# Matches frames in the program; frames of the guest's own code do not help a model.
_FRAME = lazy_pattern(
    r"^[ \t]*at (?:(?P<name>.*) \()?"
    r"cell\.[jt]s:(?P<line>[1-9]\d{0,8}):(?P<column>[1-9]\d{0,8})\)?$",
    re.M,
)

MapPosition = Callable[[int, int], tuple[int, int] | None]


def failure_from_error(error: SandboxError) -> Failed:
    """Convert an exception of the sandbox to a result."""
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
    text = str(error)
    if reason == "runtime_unavailable" and ("/" in text or "\\" in text):
        # Models read the result, and must not learn paths of the host.
        text = _UNAVAILABLE
    return Failed(error=text, reason=reason)


def failure_from_worker(
    reason: Reason,
    fields: Mapping[str, Any],
    *,
    limits: Limits,
    file_name: str,
    map_position: MapPosition | None = None,
) -> Failed:
    """Convert a failure that a worker reported to a result, with positions in the source."""
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


class Charge(Protocol):
    """Awaits something and subtracts its time from the budget of the program."""

    def __call__(self, work: Awaitable[_Result], /) -> Awaitable[_Result]: ...


class TypeScriptTransforms:
    """Transforms TypeScript to JavaScript, in workers of their own."""

    def __init__(self, pool: WorkerPool) -> None:
        self._pool = pool
        self._is_ready = False

    def warm(self) -> None:
        """Start a worker, and compile its image if necessary, without waiting for it."""
        self._pool.warm()

    def prepare(self) -> None:
        """Compile the image if necessary, without waiting for it and without a worker."""
        self._pool.prepare()

    async def transform(
        self, code: bytes, *, limits: Limits, owner: str, charge: Charge
    ) -> tuple[bytes, MapPosition | None] | Failed:
        """Return JavaScript and a function that maps positions back, or the failure."""
        worker = await self._acquire(owner, limits, charge)
        if worker is None:
            fields = {"message": _NOT_READY}
            return failure_from_worker("timeout", fields, limits=limits, file_name="cell.ts")
        is_reusable = False
        try:
            frame = await charge(self._send_transform(worker, code, limits))
            is_reusable = frame is not None
        finally:
            if is_reusable:
                self._pool.release(worker)
            else:
                self._pool.discard(worker)
        if frame is None:
            fields = {"message": "transforming the TypeScript took too long"}
            return failure_from_worker("timeout", fields, limits=limits, file_name="cell.ts")
        if frame.kind == Event.FAILED:
            reason = read_reason(frame)
            return failure_from_worker(reason, frame.fields, limits=limits, file_name="cell.ts")
        return self._check_result(frame, len(code))

    async def _acquire(self, owner: str, limits: Limits, charge: Charge) -> Worker | None:
        """Return a worker. The wait for the first one counts, because its image may have to be
        compiled; None if that takes too long. It is compiled to the end in any case."""
        if self._is_ready:
            return await self._pool.acquire(owner)
        with anyio.move_on_after(limits.timeout_ms / 1000):
            worker = await charge(self._pool.acquire(owner))
            self._is_ready = True
            return worker
        return None

    async def _send_transform(self, worker: Worker, code: bytes, limits: Limits) -> Frame | None:
        with anyio.move_on_after(limits.timeout_ms / 1000):
            await worker.send(encode_frame(Command.TRANSFORM, {}, code))
            return await worker.event()
        return None

    def _check_result(self, frame: Frame, size: int) -> tuple[bytes, MapPosition | None]:
        mappings = frame.fields.get("mappings")
        if frame.kind != Event.TRANSFORMED or len(frame.tail) > size * _MAX_GROWTH + _SPARE_BYTES:
            raise WorkerProtocolError(f"a worker answered TRANSFORM with kind {frame.kind}")
        if mappings is None:
            return frame.tail, None
        try:
            return frame.tail, PositionMap.from_mappings(str(mappings)).original
        except ValueError as error:
            raise WorkerProtocolError(f"a worker sent an invalid source map: {error}") from error


@dataclass(frozen=True, kw_only=True, slots=True)
class Program:
    """A program with its limits, functions, data and callbacks."""

    code: str
    language: Language = "javascript"
    limits: Limits = field(default_factory=Limits)
    functions: tuple[str, ...] = ()
    shared: SharedData | None = None
    handler: HostRequestHandler | None = None
    on_output: Callable[[Output], None] | None = None
    on_burst: Callable[[BurstRecord], None] | None = None
    owner: str = ""
    scope: str = ""
    """Who may resume the cell; a snapshot is bound to it."""


class NotJavaScript(Exception):
    """The program cannot be transformed to JavaScript. Carries the result to return."""

    def __init__(self, failed: Failed) -> None:
        super().__init__(failed.error)
        self.failed = failed


class ProgramSource:
    """The source of a program: transforms it, and maps positions of failures back to it."""

    def __init__(self, program: Program, typescript: TypeScriptTransforms) -> None:
        self._program = program
        self._typescript = typescript
        self._map_position: MapPosition | None = None

    @property
    def file_name(self) -> str:
        return "cell.ts" if self._program.language == "typescript" else "cell.js"

    async def javascript(self, charge: Charge) -> bytes:
        """Return the program as JavaScript. Raises NotJavaScript if it cannot be transformed."""
        language = self._program.language
        if language not in LANGUAGES:
            raise NotJavaScript(
                Failed(
                    error=f"cells are written in {' or '.join(LANGUAGES)}, not in {language!r}",
                    reason="unsupported_language",
                )
            )
        code = self._program.code.encode(errors="replace")
        self._map_position = ByteColumns(code).position
        return await self._transform(code, charge) if language == "typescript" else code

    async def _transform(self, code: bytes, charge: Charge) -> bytes:
        transformed = await self._typescript.transform(
            code, limits=self._program.limits, owner=self._program.owner, charge=charge
        )
        if isinstance(transformed, Failed):
            raise NotJavaScript(transformed)
        javascript, positions = transformed
        if positions is not None:
            self._map_position = positions
        return javascript

    def build_failure(self, reason: Reason, fields: Mapping[str, Any]) -> Failed:
        """Convert a failure that a worker reported to a result, with positions in the source."""
        return failure_from_worker(
            reason,
            fields,
            limits=self._program.limits,
            file_name=self.file_name,
            map_position=self._map_position,
        )
