"""A worker that runs cells: what it does on each command."""

import json
from collections.abc import Callable
from typing import Final, NoReturn

import zstandard

from nacre.sandbox.worker.connection import WorkerConnection
from nacre.sandbox.worker.guest_burst import Burst, BurstFailure, run_guest
from nacre.sandbox.worker.vm import Vm, VmFactory
from nacre.sandbox.worker.wasm_runtime import WasmError
from nacre.sandbox.worker_protocol import Command, Event, Frame, encode_frame, encode_raw_frame

_COMPRESSION_LEVEL: Final = 3


class CellWorker:
    """Obeys commands; holds at most one VM."""

    def __init__(self, connection: WorkerConnection, factory: VmFactory) -> None:
        self._connection = connection
        self._send = connection.send
        self._factory = factory
        self._compressor = zstandard.ZstdCompressor(level=_COMPRESSION_LEVEL)
        self._decompressor = zstandard.ZstdDecompressor()
        self._vm: Vm | None = None
        self._burst = Burst(connection.send, connection.has_news)

    def serve(self) -> NoReturn:
        """Read commands for ever; the end of the socket ends the process."""
        handlers = {
            Command.START: self._start,
            Command.RESTORE: self._restore,
            Command.DELIVER: self._deliver,
            Command.FIRE_TIMERS: self._fire_timers,
            Command.SUSPEND: self._suspend,
            Command.ABORT: self._abort,
        }
        while True:
            frame = self._connection.receive()
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
                rejections={
                    key: (promise, reason) for key, promise, reason in fields["rejections"]
                },
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

    # One burst of guest code, and what it comes to.

    def _run(self, action: Callable[[], None], source: bytes = b"") -> None:
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
            self._send(encode_raw_frame(Event.COMPLETED, burst.report_json(), burst.value))
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
        self._send(encode_raw_frame(Event.PARKED, burst.report_json(timer_ms)))

    def _fail(self, failure: BurstFailure) -> None:
        self._drop()
        fields = {**failure.fields(), "busyMs": self._burst.busy_ms()}
        self._send(encode_frame(Event.FAILED, fields))

    def _drop(self) -> None:
        if self._vm is not None:
            self._vm.close()
            self._vm = None
