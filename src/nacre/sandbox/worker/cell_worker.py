"""A worker that runs cells: its commands, and the bursts of guest code.

A burst runs from a command of the supervisor until the program can only wait. Output is sent at
once, so that it is not lost if the worker dies. Requests are collected and sent at the end of the
burst, so that a runaway loop is stopped before any request is sent.
"""

import json
import time
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from importlib.machinery import ExtensionFileLoader, PathFinder
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, NoReturn

from nacre.lazy_exports import lazy_pattern
from nacre.sandbox.image import WasmError
from nacre.sandbox.worker.host_calls import MODULES_DISABLED
from nacre.sandbox.worker.vm import (
    CompileError,
    GuestError,
    OutOfMemory,
    SharedParts,
    Vm,
    VmFactory,
)
from nacre.sandbox.worker.wasm_runtime import StopGuest, WasmTrap
from nacre.sandbox.worker_protocol import (
    IMAGE_ITEM_BYTES,
    MAX_CELL_IMAGE_BYTES,
    OUTPUT_ITEM_BYTES,
    Command,
    Event,
    Frame,
    WorkerConnection,
    encode_frame,
)


def _import_zstandard() -> ModuleType:
    """The compiled module alone. Its package imports `platform`, a twentieth of the start."""
    package = PathFinder.find_spec("zstandard")
    folders = package.submodule_search_locations if package is not None else None
    spec = PathFinder.find_spec("zstandard.backend_c", folders)
    if spec is None or not isinstance(spec.loader, ExtensionFileLoader):
        return import_module("zstandard")
    module = spec.loader.create_module(spec)
    spec.loader.exec_module(module)
    return module


if TYPE_CHECKING:
    import zstandard
else:
    zstandard = _import_zstandard()

_COMPRESSION_LEVEL: Final = 3
_STARTED: Final = encode_frame(Event.STARTED, {})
# The total size of the requests of one burst.
_MAX_REQUEST_BYTES: Final = 16 << 20
# A snapshot contains all of them.
_MAX_REJECTIONS: Final = 10_000
# A program can create errors and reasons of any length.
_MAX_FAILURE_CHARACTERS: Final = 1 << 14
_MAX_REASON_CHARACTERS: Final = 1 << 10
_OUT_OF_MEMORY: Final = "the program exceeded its memory limit"
_NEVER_SETTLES: Final = (
    "the program waits for a promise that can never settle: no request, timer or yield is "
    "pending; resolve it in the program or return without awaiting it"
)
# How many characters before a syntax error are searched for `import`.
_LOOK_BACK: Final = 200
_ENDS_WITH_IMPORT = lazy_pattern(r"(?:^|[\s;{}()])import\s*$")
_STACK_POSITION = lazy_pattern(r"at (?:.* \()?(cell\.[jt]s):(\d{1,9}):(\d{1,9})\)?")


class BurstFailure:
    """The failure of a cell."""

    def __init__(
        self, reason: str, message: str, *, stack: str = "", may_lack_memory: bool = False
    ) -> None:
        self.reason = reason
        self.message = message
        self.stack = stack
        self.may_lack_memory = may_lack_memory
        """Whether the engine behaves like this when its memory is full, too: it throws null, or
        cannot settle a promise."""

    def fields(self) -> dict[str, object]:
        """Return the failure as fields of a frame."""
        return {
            "reason": self.reason,
            "message": self.message[:_MAX_FAILURE_CHARACTERS],
            "stack": self.stack[:_MAX_FAILURE_CHARACTERS],
        }


class Burst:
    """The `GuestListener` of one cell: enforces its limits and collects the results of a burst."""

    def __init__(
        self,
        fields: dict[str, Any],
        *,
        send: Callable[[bytes], None],
        is_cancelled: Callable[[], bool],
    ) -> None:
        self._send = send
        self._is_cancelled_by_host = is_cancelled
        self._output_left = fields["outputBytesLeft"]
        self._image_left = fields["imageBytesLeft"]
        self._max_output = fields["maxOutputBytes"]
        # Unanswered requests and yields, including those from before a suspension.
        self._open: set[int] = set(fields.get("open", ()))
        self._has_returned = False
        self.is_waiting = False
        self.failure: BurstFailure | None = None
        self.renew(fields)

    def renew(self, fields: dict[str, Any]) -> None:
        """Reset for the next burst."""
        self._started = time.monotonic()
        self._deadline = self._started + fields["budgetMs"] / 1000
        self._max_requests = fields["maxRequests"]
        self._open.difference_update(fields.get("settled", ()))
        self._requests: list[tuple[int, str, bytes]] = []
        self._request_bytes_left = _MAX_REQUEST_BYTES
        self._yields: list[tuple[int, str]] = []
        self._timer_ms: float | None = None
        # Reported once, by the burst in which the program returned.
        self._value: bytes = b""
        self._has_returned = self._has_returned or fields.get("hasReturned", False)
        self.stop: BurstFailure | None = None

    def busy_ms(self) -> float:
        """Return how long this burst has run."""
        return round((time.monotonic() - self._started) * 1000, 3)

    def report(self) -> tuple[dict[str, object], bytes]:
        """Return the fields and tail of the frame that ends the burst."""
        # The tail is the value and the payloads of the requests. Their lengths are in the fields,
        # so that a program cannot forge a request inside a payload.
        fields: dict[str, object] = {"busyMs": self.busy_ms()}
        if self._requests:
            requests = [(number, method, len(data)) for number, method, data in self._requests]
            fields["requests"] = requests
        if self._value:
            fields["valueBytes"] = len(self._value)
        if self._yields:
            fields["yields"] = self._yields
        if self._timer_ms is not None:
            fields["timerMs"] = self._timer_ms
        return fields, b"".join((self._value, *(data for _, _, data in self._requests)))

    def settle(self, vm: Vm) -> None:
        """Determine whether the program waits, ended or failed. This may run guest code.

        A program that has returned still waits for its requests, yields and timers.
        """
        if self.failure is None:
            self._timer_ms = vm.ms_until_next_timer()
        self.is_waiting = bool(self._open) or self._timer_ms is not None
        if self.failure is None and not self.is_waiting:
            # The program has ended, or nothing can settle the promise it awaits.
            described = vm.unhandled_failure()
            if described is not None:
                self.failure = failure_from(described, reason="unhandled_rejection")
            elif not self._has_returned:
                self.failure = BurstFailure("never_settles", _NEVER_SETTLES, may_lack_memory=True)
        if self.failure is not None and self.failure.may_lack_memory:
            # After an error, promise jobs that held the memory may have run.
            has_thrown = self.failure.reason != "never_settles"
            if vm.is_memory_full() or (has_thrown and vm.was_memory_full()):
                self.failure = BurstFailure("memory_limit_exceeded", _OUT_OF_MEMORY)

    # GuestListener.

    def output(self, kind: str, content: bytes) -> None:
        if kind == "image":
            self._spend(IMAGE_ITEM_BYTES, "marker of an image")
            self._spend_image(len(content))
        else:
            self._spend(len(content) + OUTPUT_ITEM_BYTES, "output")
        self._send(encode_frame(Event.OUTPUT, {"kind": kind}, content))

    def request(self, request_id: int, method: str, payload: bytes) -> None:
        if len(self._requests) >= self._max_requests:
            self._stop(
                "too_many_pending_tool_calls",
                f"the program has more than {self._max_requests} requests waiting; none of this "
                "burst was sent; await some before you start more",
            )
        self._request_bytes_left -= len(payload)
        if self._request_bytes_left < 0:
            self._stop(
                "output_limit_exceeded",
                f"the requests of this burst carry more than {_MAX_REQUEST_BYTES} bytes; none of "
                "them was sent; pass less data",
            )
        self._requests.append((request_id, method, payload))
        self._open.add(request_id)

    def pause(self, request_id: int, reason: str) -> None:
        self._open.add(request_id)
        self._yields.append((request_id, reason[:_MAX_REASON_CHARACTERS]))

    def on_completed(self, value: bytes) -> None:
        self._spend(len(value), "value")
        self._value = value
        self._has_returned = True

    def on_failed(self, failure: bytes) -> None:
        self.failure = failure_from(failure, reason="guest_error")

    def on_rejected(self, count: int) -> None:
        if count > _MAX_REJECTIONS:
            self._stop(
                "unhandled_rejection",
                f"more than {_MAX_REJECTIONS} promises were rejected without a handler",
            )

    def interrupt(self) -> None:
        if time.monotonic() >= self._deadline:
            self._stop("timeout", "the program exceeded its time limit")
        if self._is_cancelled_by_host():
            self._stop("aborted", "the run was aborted")

    def _spend(self, size: int, what: str) -> None:
        if size > self._output_left:
            self._stop(
                "output_limit_exceeded",
                f"the {what} of {size} bytes does not fit: {self._output_left} of "
                f"{self._max_output} bytes are left (maxOutputBytes); return or print less",
            )
        self._output_left -= size

    def _spend_image(self, size: int) -> None:
        if size > self._image_left:
            self._stop(
                "output_limit_exceeded",
                f"the image of {size} bytes in base64 does not fit: {self._image_left} of "
                f"{MAX_CELL_IMAGE_BYTES} bytes are left for images; show fewer or smaller ones",
            )
        self._image_left -= size

    def _stop(self, reason: str, message: str) -> NoReturn:
        self.stop = BurstFailure(reason, message)
        raise StopGuest


def run_guest(
    burst: Burst, action: Callable[[], None], *, source: bytes = b""
) -> BurstFailure | None:
    """Run guest code and convert every error to a failure."""
    try:
        action()
    except CompileError as error:
        return _compile_failure(failure_from(error.failure, reason="guest_error"), source)
    except GuestError as error:
        return failure_from(error.failure, reason="guest_error")
    except (OutOfMemory, MemoryError):
        return BurstFailure("memory_limit_exceeded", _OUT_OF_MEMORY)
    except WasmTrap as trap:
        if burst.stop is not None:
            return burst.stop
        if trap.stack_exhausted:
            return BurstFailure("engine_trap", "the program exhausted the engine's stack")
        return BurstFailure("engine_trap", f"the engine trapped: {trap}")
    return None


def failure_from(described: bytes, *, reason: str) -> BurstFailure:
    """Convert the guest's description of an error to a failure."""
    fields = json.loads(described)
    if fields["memory"]:
        reason = "memory_limit_exceeded"
    elif fields["modules"]:
        reason = "module_access_denied"
    elif fields["host"]:
        reason = "nested_tool_failed"
    return BurstFailure(
        reason, fields["message"], stack=fields["stack"], may_lack_memory=fields["memory"] is None
    )


def _compile_failure(failure: BurstFailure, source: bytes) -> BurstFailure:
    """Convert a syntax error, and recognise one caused by a module statement."""
    if not failure.message.startswith("SyntaxError"):
        return failure
    lines = source.decode(errors="replace").split("\n")
    file_name, line, column = _position_in(failure.stack, lines)
    stack = f"    at {file_name}:{line}:{column}"
    before = "\n".join([*lines[: line - 1], lines[line - 1][: column - 1]])[-_LOOK_BACK:]
    # The error is just after the keyword `import`, or its message names module syntax.
    is_module_syntax = _ENDS_WITH_IMPORT.search(before) is not None or any(
        word in failure.message for word in ("export", "import.meta")
    )
    if is_module_syntax:
        return BurstFailure(
            "module_access_denied", f"{MODULES_DISABLED}: {failure.message}", stack=stack
        )
    return BurstFailure("syntax_error", failure.message, stack=stack)


def _position_in(stack: str, lines: list[str]) -> tuple[str, int, int]:
    """Return the position of a syntax error, at most the end of the program."""
    found = _STACK_POSITION.search(stack)
    if found is None or int(found[2]) > len(lines):
        return found[1] if found else "cell.js", len(lines), len(lines[-1]) + 1
    return found[1], int(found[2]), int(found[3])


class CellWorker:
    """Runs the commands of the supervisor. It holds at most one VM."""

    def __init__(self, connection: WorkerConnection, factory: VmFactory) -> None:
        self._connection = connection
        self._send = connection.send
        self._factory = factory
        self._inputs = factory.host.inputs
        self._compressor = zstandard.ZstdCompressor(level=_COMPRESSION_LEVEL)
        self._decompressor = zstandard.ZstdDecompressor()
        # By digest. The supervisor tracks the content and says what to drop.
        self._shared: dict[str, SharedParts] = {}
        self._vm: Vm | None = None
        self._burst: Burst | None = None

    def serve(self) -> NoReturn:
        """Serve commands until the socket closes, which ends the process."""
        handlers = {
            Command.START: self._start,
            Command.RESTORE: self._restore,
            Command.DELIVER: self._deliver,
            Command.FIRE_TIMERS: self._fire_timers,
            Command.SUSPEND: self._suspend,
            Command.ABORT: self._abort,
            Command.SHARE: self._share,
        }
        while True:
            frame = self._connection.receive()
            handlers[Command(frame.kind)](frame)

    # Commands.

    def _share(self, frame: Frame) -> None:
        fields = frame.fields
        for digest in fields["forget"]:
            del self._shared[digest]
        self._shared[fields["digest"]] = SharedParts(fields["parts"], frame.tail)

    def _start(self, frame: Frame) -> None:
        shared = self._shared_of(frame)
        # After this frame the program may have run, so it is not started in another worker.
        self._send(_STARTED)
        fields = frame.fields
        burst = self._begin(fields)

        def run() -> None:
            self._vm = self._factory.create(
                burst, memory_limit_bytes=fields["memoryLimitBytes"], shared=shared
            )
            if shared is not None:
                self._vm.define_catalog()
            if fields["functions"]:
                self._vm.define_functions(json.dumps(fields["functions"]).encode())
            self._vm.start(frame.tail, file_name=fields["fileName"])

        self._run(burst, run, source=frame.tail)

    def _restore(self, frame: Frame) -> None:
        shared = self._shared_of(frame)
        fields = frame.fields
        burst = self._begin(fields)
        try:
            self._vm = self._factory.restore(
                burst,
                memory_limit_bytes=fields["memoryLimitBytes"],
                memory_bytes=fields["memoryBytes"],
                blocks=self._decompressor.stream_reader(frame.tail),
                rejections={
                    key: (promise, reason) for key, promise, reason in fields["rejections"]
                },
                shared=shared,
            )
        except (ValueError, MemoryError, zstandard.ZstdError, WasmError) as error:
            problem = f"cannot restore the cell: {error}"
            self._fail(burst, BurstFailure("snapshot_restore_failed", problem))
        else:
            self._send(_STARTED)

    def _deliver(self, frame: Frame) -> None:
        vm, burst = self._vm, self._burst
        if vm is not None and burst is not None:
            self._renew(burst, frame.fields)
            self._run(burst, lambda: vm.deliver(frame.tail))

    def _fire_timers(self, frame: Frame) -> None:
        vm, burst = self._vm, self._burst
        if vm is not None and burst is not None:
            self._renew(burst, frame.fields)
            self._run(burst, vm.fire_timers)

    def _suspend(self, frame: Frame) -> None:
        if self._vm is None:
            return
        rejections = [[key, *handles] for key, handles in self._vm.rejections.items()]
        memory_bytes = self._vm.instance.current_memory_bytes()
        fields = {"memoryBytes": memory_bytes, "rejections": rejections}
        blocks, size = self._compress_blocks(self._vm.snapshot(), frame.fields["maxBytes"])
        suspended = encode_frame(Event.SUSPENDED, fields, blocks)
        size = max(size, len(suspended))
        if size > frame.fields["maxBytes"]:
            self._send(encode_frame(Event.SNAPSHOT_TOO_LARGE, {"bytes": size}))
            return
        self._drop()
        self._send(suspended)

    def _compress_blocks(self, pieces: Iterable[bytes], max_bytes: int) -> tuple[bytes, int]:
        """Return the compressed blocks, truncated at the limit, and their full size."""
        compressed, size = bytearray(), 0
        for chunk in self._compress(pieces):
            size += len(chunk)
            if size <= max_bytes:
                compressed += chunk
        return bytes(compressed), size

    def _compress(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        stream = self._compressor.compressobj()
        yield from map(stream.compress, pieces)
        yield stream.flush()

    def _abort(self, _frame: Frame) -> None:
        self._drop()
        self._send(encode_frame(Event.ABORTED, {}))

    def _shared_of(self, frame: Frame) -> SharedParts | None:
        digest = frame.fields["shared"]
        return None if digest is None else self._shared[digest]

    # Bursts.

    def _begin(self, fields: dict[str, Any]) -> Burst:
        connection = self._connection
        self._inputs.begin(fields.get("clock"), fields["seed"])
        self._burst = Burst(fields, send=connection.send, is_cancelled=connection.has_input)
        return self._burst

    def _renew(self, burst: Burst, fields: dict[str, Any]) -> None:
        self._inputs.begin(fields.get("clock"), fields.get("seed"))
        burst.renew(fields)

    def _run(self, burst: Burst, action: Callable[[], None], source: bytes = b"") -> None:
        def settle() -> None:
            if self._vm is not None:
                burst.settle(self._vm)

        failure = run_guest(burst, action, source=source) or run_guest(burst, settle)
        failure = failure or burst.failure
        if failure is not None:
            self._fail(burst, failure)
            return
        fields, tail = burst.report()
        self._add_clock(fields)
        if burst.is_waiting:
            self._send(encode_frame(Event.PARKED, fields, tail))
        else:
            self._drop()
            self._send(encode_frame(Event.COMPLETED, fields, tail))

    def _fail(self, burst: Burst, failure: BurstFailure) -> None:
        self._drop()
        fields = {**failure.fields(), "busyMs": burst.busy_ms()}
        self._add_clock(fields)
        self._send(encode_frame(Event.FAILED, fields))

    def _add_clock(self, fields: dict[str, object]) -> None:
        if self._inputs.clock:
            fields["clock"] = self._inputs.clock

    def _drop(self) -> None:
        if self._vm is not None:
            self._vm.close()
            self._vm = None
