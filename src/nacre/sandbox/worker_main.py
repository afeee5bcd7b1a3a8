"""The code that runs inside a worker: one hostile program at a time, in a process that can do nothing else.

The worker loads what it needs, locks itself down, says READY and then obeys the supervisor. It is
single-threaded; while guest code runs, the engine calls back every few thousand steps, and that is
when time is checked and an ABORT is noticed.
"""

import json
import os
import select
import socket
import sys

from pathlib import Path
from typing import Any, Final, NoReturn

import zstandard

from nacre.sandbox.guest_burst import Burst, BurstFailure, run_guest
from nacre.sandbox.hardening import harden, open_descriptors
from nacre.sandbox.host_calls import HostCalls
from nacre.sandbox.image import Image
from nacre.sandbox.vm import Vm, VmFactory
from nacre.sandbox.wasm_runtime import MAX_WASM_STACK_BYTES, Runtime, WasmError
from nacre.sandbox.worker_protocol import (
    HEADER_BYTES,
    Command,
    Event,
    Frame,
    decode_header,
    encode_frame,
    encode_raw_frame,
)

# What the interpreter and the engine themselves take, on top of the largest memory of a guest.
_OWN_DATA_BYTES: Final = 256 << 20
_MAX_GUEST_BYTES: Final = 1 << 30
_COMPRESSION_LEVEL: Final = 3
# Where the main thread's stack cannot grow on demand it has 8 MiB.
_SMALL_WASM_STACK_BYTES: Final = 4 << 20


def main(settings_json: str) -> NoReturn:
    """Serve one supervisor until it closes the socket."""
    settings = json.loads(settings_json)
    connection = socket.socket(fileno=settings["socket"])
    try:
        before = open_descriptors()
        factory = _load(settings)
        report = harden(
            keep_fds={connection.fileno(), *(open_descriptors() - before)},
            parent_pid=settings["parentPid"],
            seccomp_bpf=bytes.fromhex(settings["seccomp"]) or None,
            seccomp_problem=settings["seccompProblem"],
            max_data_bytes=_OWN_DATA_BYTES + _MAX_GUEST_BYTES * 5 // 4,
        )
    except Exception as error:
        problem = {"problem": f"{type(error).__name__}: {error}"}
        connection.sendall(encode_frame(Event.NOT_STARTED, problem))
        os._exit(1)
    try:
        connection.sendall(encode_frame(Event.READY, {"hardening": report.to_json()}))
        Worker(connection, factory).serve()
    except OSError:
        # The supervisor is gone, and nobody is left to tell.
        os._exit(0)
    except BaseException:
        # No clean-up: freeing callbacks would write to a page that is sealed by now.
        os._exit(1)


def _load(settings: dict[str, Any]) -> VmFactory:
    facts = settings["image"]
    image = Image(**{**facts, "path": Path(facts["path"])})
    stack = MAX_WASM_STACK_BYTES if _stack_can_grow() else _SMALL_WASM_STACK_BYTES
    runtime = Runtime(Path(settings["library"]), max_stack_bytes=stack)
    prefix = "/proc/self/fd" if sys.platform == "linux" else "/dev/fd"
    module = runtime.load(f"{prefix}/{settings['module']}")
    return VmFactory(runtime, HostCalls(runtime), image, module)


def _stack_can_grow() -> bool:
    if sys.platform != "linux":
        return False
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_STACK)
    return hard == resource.RLIM_INFINITY or hard >= 2 * MAX_WASM_STACK_BYTES


class Worker:
    """Obeys commands; holds at most one VM."""

    def __init__(self, connection: socket.socket, factory: VmFactory) -> None:
        self._connection = connection
        self._factory = factory
        self._received = bytearray()
        self._poll = select.poll()
        self._poll.register(connection.fileno(), select.POLLIN)
        self._compressor = zstandard.ZstdCompressor(level=_COMPRESSION_LEVEL)
        self._decompressor = zstandard.ZstdDecompressor()
        self._vm: Vm | None = None
        self._burst = Burst(self._send, lambda: bool(self._poll.poll(0)))

    def serve(self) -> NoReturn:
        """Read commands for ever; the end of the socket ends the process."""
        handlers = {
            Command.START: self._start,
            Command.RESTORE: self._restore,
            Command.DELIVER: self._deliver,
            Command.FIRE_TIMERS: self._fire_timers,
            Command.SUSPEND: self._suspend,
            Command.ABORT: self._abort,
            Command.TRANSFORM: self._transform,
        }
        while True:
            frame = self._receive()
            handlers[Command(frame.kind)](frame)

    # Commands.

    def _start(self, frame: Frame) -> None:
        fields = frame.fields
        self._burst.begin(fields)

        def run() -> None:
            self._vm = self._factory.create(
                self._burst, memory_limit_bytes=fields["memoryLimitBytes"]
            )
            if fields["functions"]:
                self._vm.define_functions(json.dumps(fields["functions"]).encode())
            self._vm.start(frame.tail, file_name=fields["fileName"])

        self._run(run, source=frame.tail)

    def _restore(self, frame: Frame) -> None:
        fields = frame.fields
        self._burst.begin(fields)
        try:
            self._vm = self._factory.restore(
                self._burst,
                memory_limit_bytes=fields["memoryLimitBytes"],
                memory_bytes=fields["memoryBytes"],
                pages=self._decompressor.decompress(frame.tail),
                rejections={key: (promise, reason) for key, promise, reason in fields["rejections"]},
            )
        except (ValueError, zstandard.ZstdError, WasmError) as error:
            self._fail(BurstFailure("snapshot_restore_failed", f"cannot restore the cell: {error}"))

    def _deliver(self, frame: Frame) -> None:
        self._burst.renew(frame.fields)
        if self._vm is not None:
            vm = self._vm
            self._run(lambda: vm.deliver(frame.tail))

    def _fire_timers(self, frame: Frame) -> None:
        self._burst.renew(frame.fields)
        if self._vm is not None:
            self._run(self._vm.fire_timers)

    def _suspend(self, frame: Frame) -> None:
        if self._vm is None:
            return
        memory_bytes, pages = self._vm.snapshot()
        tail = self._compressor.compress(pages)
        if len(tail) > frame.fields["maxBytes"]:
            self._send(encode_frame(Event.SNAPSHOT_TOO_LARGE, {"bytes": len(tail)}))
            return
        rejections = [[key, *handles] for key, handles in self._vm.rejections.items()]
        fields = {"memoryBytes": memory_bytes, "rejections": rejections}
        self._drop()
        self._send(encode_frame(Event.SUSPENDED, fields, tail))

    def _abort(self, _frame: Frame) -> None:
        self._drop()
        self._send(encode_frame(Event.ABORTED, {}))

    def _transform(self, frame: Frame) -> None:
        self._burst.begin(frame.fields)
        vm = self._factory.create(
            self._burst, memory_limit_bytes=frame.fields["memoryLimitBytes"]
        )
        self._vm = vm
        results: list[bytes] = []
        failure = run_guest(self._burst, lambda: results.append(vm.transform(frame.tail)))
        if failure is not None:
            self._fail(failure)
            return
        self._drop()
        self._send(encode_frame(Event.TRANSFORMED, {"busyMs": self._burst.busy_ms()}, results[0]))

    # One burst of guest code, and what it comes to.

    def _run(self, action: Any, source: bytes = b"") -> None:
        burst = self._burst
        failure = run_guest(burst, action, source=source)
        if failure is None and burst.failure is not None:
            failure = burst.failure
        if failure is None and burst.value is not None and self._vm is not None:
            failure = burst.unhandled(self._vm)
        if failure is not None:
            self._fail(failure)
        elif burst.value is not None:
            self._drop()
            self._send(
                encode_frame(Event.COMPLETED, {"busyMs": burst.busy_ms()}, burst.value)
            )
        else:
            self._park()

    def _park(self) -> None:
        vm, burst = self._vm, self._burst
        if vm is None:
            return
        timer_ms = vm.ms_until_next_timer()
        if not burst.is_awaiting and timer_ms is None:
            # Nothing is left that could ever settle what the program awaits.
            failure = burst.unhandled(vm) or BurstFailure(
                "never_settles",
                "the program waits for a promise that nothing can settle: no request, timer or "
                "yield is pending; resolve it in the program or return without awaiting it",
            )
            self._fail(failure)
            return
        self._send(encode_raw_frame(Event.PARKED, burst.parked_json(timer_ms)))

    def _fail(self, failure: BurstFailure) -> None:
        self._drop()
        fields = {**failure.fields(), "busyMs": self._burst.busy_ms()}
        self._send(encode_frame(Event.FAILED, fields))

    def _drop(self) -> None:
        if self._vm is not None:
            self._vm.close()
            self._vm = None

    # The socket.

    def _send(self, data: bytes) -> None:
        self._connection.sendall(data)

    def _receive(self) -> Frame:
        self._read_at_least(HEADER_BYTES)
        kind, fields_size, tail_size = decode_header(self._received)
        end = HEADER_BYTES + fields_size + tail_size
        self._read_at_least(end)
        fields = json.loads(self._received[HEADER_BYTES : HEADER_BYTES + fields_size])
        tail = bytes(self._received[HEADER_BYTES + fields_size : end])
        del self._received[:end]
        return Frame(kind, fields, tail)

    def _read_at_least(self, size: int) -> None:
        while len(self._received) < size:
            chunk = self._connection.recv(1 << 18)
            if not chunk:
                os._exit(0)
            self._received += chunk


