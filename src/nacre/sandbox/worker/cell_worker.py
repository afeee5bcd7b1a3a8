"""A worker that runs cells: what it does on each command."""

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NoReturn

import zstandard

from nacre.sandbox.worker.guest_burst import Burst, BurstFailure, run_guest
from nacre.sandbox.worker.vm import SharedParts, Vm, VmFactory
from nacre.sandbox.worker.wasm_runtime import WasmError
from nacre.sandbox.worker_protocol import Command, Event, Frame, WorkerConnection, encode_frame

_COMPRESSION_LEVEL: Final = 3
_STARTED: Final = encode_frame(Event.STARTED, {})


class CellWorker:
    """Obeys commands; holds at most one VM."""

    def __init__(self, connection: WorkerConnection, factory: VmFactory) -> None:
        self._connection = connection
        self._send = connection.send
        self._factory = factory
        self._compressor = zstandard.ZstdCompressor(level=_COMPRESSION_LEVEL)
        self._decompressor = zstandard.ZstdDecompressor()
        # By digest; the supervisor knows what is here and says what to forget.
        self._shared: dict[str, SharedParts] = {}
        self._vm: Vm | None = None
        self._burst: Burst | None = None

    def serve(self) -> NoReturn:
        """Read commands for ever; the end of the socket ends the process."""
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
        # From here on the program may have run: nobody starts it again elsewhere.
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
                pages=self._decompressor.stream_reader(frame.tail),
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
            burst.renew(frame.fields)
            self._run(burst, lambda: vm.deliver(frame.tail))

    def _fire_timers(self, frame: Frame) -> None:
        vm, burst = self._vm, self._burst
        if vm is not None and burst is not None:
            burst.renew(frame.fields)
            self._run(burst, vm.fire_timers)

    def _suspend(self, frame: Frame) -> None:
        if self._vm is None:
            return
        rejections = [[key, *handles] for key, handles in self._vm.rejections.items()]
        memory_bytes = self._vm.instance.current_memory_bytes()
        fields = {"memoryBytes": memory_bytes, "rejections": rejections}
        pages, size = self._compress_pages(self._vm.snapshot(), frame.fields["maxBytes"])
        suspended = encode_frame(Event.SUSPENDED, fields, pages)
        size = max(size, len(suspended))
        if size > frame.fields["maxBytes"]:
            self._send(encode_frame(Event.SNAPSHOT_TOO_LARGE, {"bytes": size}))
            return
        self._drop()
        self._send(suspended)

    def _compress_pages(self, pieces: Iterable[bytes], most: int) -> tuple[bytes, int]:
        """The pieces compressed, and the size of that; nothing is kept of what is too large."""
        kept, size = bytearray(), 0
        for chunk in self._compress(pieces):
            size += len(chunk)
            if size <= most:
                kept += chunk
        return bytes(kept), size

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

    # One burst of guest code, and what it comes to.

    def _begin(self, fields: dict[str, Any]) -> Burst:
        connection = self._connection
        self._burst = Burst(fields, send=connection.send, is_called_off=connection.has_news)
        return self._burst

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
        if burst.value is None:
            self._send(encode_frame(Event.PARKED, fields, tail))
        else:
            self._drop()
            self._send(encode_frame(Event.COMPLETED, fields, tail))

    def _fail(self, burst: Burst, failure: BurstFailure) -> None:
        self._drop()
        fields = {**failure.fields(), "busyMs": burst.busy_ms()}
        self._send(encode_frame(Event.FAILED, fields))

    def _drop(self) -> None:
        if self._vm is not None:
            self._vm.close()
            self._vm = None
