"""The VM of a cell: runs it in a worker, and moves it between workers and sealed snapshots.

Restoring a forged snapshot would run foreign code, so a snapshot is sealed with a keyed hash. The
key stays in the supervisor: workers run untrusted code and never get it. Messages from a worker are
untrusted.
"""

import hashlib
import hmac
import json
import struct
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import anyio

from nacre.errors import (
    CellStateError,
    RuntimeUnavailableError,
    SnapshotError,
    WorkerDiedError,
    WorkerProtocolError,
)
from nacre.sandbox.pool import Launcher, WorkerPool
from nacre.sandbox.results import Limits
from nacre.sandbox.worker_process import SharedData, WorkerProcess
from nacre.sandbox.worker_protocol import (
    Command,
    Event,
    Frame,
    encode_frame,
    encode_pieces,
    read_size,
)

_MAGIC: Final = b"NACRSNAP"
_VERSION: Final = 1
_HEAD = struct.Struct("<8sHI")
_SEAL_BYTES: Final = 32
# The engine stops a program at its deadline. A worker that takes this much longer is stuck.
_GRACE_SECONDS: Final = 0.03
_MAX_STARTS: Final = 3
# How long a worker may take to start a program. It takes milliseconds; the limit also holds on a
# machine whose load makes it a hundred times slower.
_BASE_LIMIT_SECONDS: Final = 5.0
# Sending, suspending or restoring 1 MiB takes up to 11 ms of CPU time. The limit is ten times that,
# for a busy machine.
_LIMIT_SECONDS_PER_MIB: Final = 0.1
# A worker that gets a smaller part of a core than this is not slow but stuck.
_MIN_PROGRESS: Final = 0.01


@dataclass(frozen=True, kw_only=True, slots=True)
class Snapshot:
    """The state of a VM: its memory as a difference from its image, and the host's own records."""

    image: str
    memory_bytes: int
    rejections: tuple[tuple[int, int, int], ...]
    open_requests: tuple[int, ...]
    pages: bytes


def seal(snapshot: Snapshot, *, key: bytes) -> bytes:
    """Encode a snapshot with a seal that only this key can produce."""
    facts = {
        "image": snapshot.image,
        "memoryBytes": snapshot.memory_bytes,
        "rejections": snapshot.rejections,
        "openRequests": snapshot.open_requests,
    }
    header = json.dumps(facts, separators=(",", ":")).encode()
    body = _HEAD.pack(_MAGIC, _VERSION, len(header)) + header + snapshot.pages
    return body + _seal_of(body, key)


def unseal(data: bytes, *, key: bytes, image: str) -> Snapshot:
    """Decode a snapshot. Raises SnapshotError if a check fails, before any part is used."""
    if len(data) < _HEAD.size + _SEAL_BYTES or not data.startswith(_MAGIC):
        raise SnapshotError(f"this is not a snapshot, or it is truncated: {len(data)} bytes")
    _, version, header_size = _HEAD.unpack_from(data)
    if version != _VERSION:
        raise SnapshotError(
            f"the snapshot has format {version}, this version of nacre reads {_VERSION}; "
            "run the program again"
        )
    body, seal_found = data[:-_SEAL_BYTES], data[-_SEAL_BYTES:]
    if not hmac.compare_digest(_seal_of(body, key), seal_found):
        raise SnapshotError(
            "the snapshot is truncated, was changed, or was made with another key; "
            "run the program again"
        )
    # The seal is valid: this supervisor wrote the bytes.
    facts = json.loads(body[_HEAD.size : _HEAD.size + header_size])
    if facts["image"] != image:
        raise SnapshotError(
            f"the snapshot was taken of another sandbox image ({facts['image'][:12]}), this one is "
            f"{image[:12]}; run the program again"
        )
    return Snapshot(
        image=facts["image"],
        memory_bytes=facts["memoryBytes"],
        rejections=tuple(tuple(entry) for entry in facts["rejections"]),
        open_requests=tuple(facts["openRequests"]),
        pages=body[_HEAD.size + header_size :],
    )


def _seal_of(body: bytes, key: bytes) -> bytes:
    return hashlib.blake2b(
        body, key=key, digest_size=_SEAL_BYTES, person=b"nacre-snapshot"
    ).digest()


def transfer_limit_seconds(size_bytes: int) -> float:
    """Return how long a worker may take to receive, suspend or restore this many bytes."""
    return _BASE_LIMIT_SECONDS + _LIMIT_SECONDS_PER_MIB * size_bytes / (1 << 20)


@dataclass(frozen=True, kw_only=True, slots=True)
class SandboxRuntime:
    """The workers in which the VMs of cells run."""

    pool: WorkerPool
    launcher: Launcher
    snapshot_key: bytes


class BudgetExceeded(Exception):
    """The program did not stop at its deadline; its worker has to be killed."""


class SnapshotTooLarge(Exception):
    """The snapshot would be larger than the cell's limit. The VM is still live."""

    def __init__(self, size: int) -> None:
        super().__init__(f"{size} bytes")
        self.size = size


class RestoreFailed(Exception):
    """A valid snapshot could not be restored."""


class CellVm:
    """The VM of one cell."""

    def __init__(
        self,
        runtime: SandboxRuntime,
        limits: Limits,
        *,
        owner: str,
        shared: SharedData | None = None,
        on_output: Callable[[Frame], Awaitable[None]],
        on_worker_change: Callable[[], None],
    ) -> None:
        self._runtime = runtime
        self._limits = limits
        self._owner = owner
        self._shared = shared
        self._on_output = on_output
        # Called when the worker dies or other cells need it, while the program waits.
        self._on_worker_change = on_worker_change
        self._worker: WorkerProcess | None = None
        self._sealed: bytes | None = None
        self.is_worker_needed = False

    @property
    def is_live(self) -> bool:
        return self._worker is not None

    @property
    def sealed(self) -> bytes | None:
        """The sealed snapshot, if the VM is suspended."""
        return self._sealed

    # Running.

    async def start(self, fields: Mapping[str, object], code: bytes) -> None:
        """Start a program in a free worker. Call `finish` to wait for the end of the burst."""
        await self._start_in_worker(Command.START, fields, code, size_bytes=len(code))

    async def restore(self, fields: Mapping[str, object]) -> None:
        """Restore the snapshot in a free worker."""
        if self._sealed is None:
            raise CellStateError("the cell has neither a worker nor a snapshot")
        snapshot = unseal(self._sealed, key=self._runtime.snapshot_key, image=self._image())
        facts = {
            "memoryBytes": snapshot.memory_bytes,
            "rejections": snapshot.rejections,
            "open": snapshot.open_requests,
        }
        await self._start_in_worker(
            Command.RESTORE, {**fields, **facts}, snapshot.pages, size_bytes=snapshot.memory_bytes
        )
        self._sealed = None

    async def _start_in_worker(
        self, command: Command, fields: Mapping[str, object], tail: bytes, *, size_bytes: int
    ) -> None:
        digest = None
        if self._shared is not None:
            digest = self._shared.digest
            size_bytes += self._shared.size
        frame = encode_frame(command, {**fields, "shared": digest}, tail)
        for attempt in range(_MAX_STARTS):
            worker = self._worker = await self._runtime.pool.acquire(self._owner)
            worker.on_death = self._on_worker_change
            try:
                with anyio.fail_after(transfer_limit_seconds(size_bytes)):
                    if self._shared is not None:
                        await worker.share(self._shared)
                    await worker.send(frame)
                    answer = await worker.event()
                if answer.kind == Event.FAILED and command == Command.RESTORE:
                    raise RestoreFailed(str(answer.fields.get("message", "")))
                if answer.kind != Event.STARTED:
                    raise WorkerProtocolError("a worker did not confirm that it started")
                return
            except (WorkerDiedError, TimeoutError) as error:
                # No guest code has run yet, so another worker can start it.
                self._discard_worker()
                if attempt + 1 == _MAX_STARTS:
                    raise WorkerDiedError(f"no worker could start the cell: {error}") from error

    async def run(
        self,
        command: Command,
        fields: Mapping[str, object],
        tail: Sequence[bytes] = (),
        *,
        budget_seconds: float,
    ) -> Frame:
        """Run the program until it waits or ends. Returns the event that says which."""
        return await self.finish(budget_seconds, encode_pieces(command, fields, tail))

    async def finish(self, budget_seconds: float, command: Sequence[bytes] = ()) -> Frame:
        """Wait for the end of a burst. Raises BudgetExceeded if it does not end in time."""
        worker = self._require_worker()
        with anyio.move_on_after(max(budget_seconds, 0.0) + _GRACE_SECONDS):
            for piece in command:
                # Within the deadline, because a worker that does not read is stuck as well.
                await worker.send(piece)
            while True:
                frame = await worker.event()
                if frame.kind != Event.OUTPUT:
                    worker.expect_silence()
                    return frame
                await self._on_output(frame)
        raise BudgetExceeded

    # Waiting.

    def park(self, *, can_suspend: bool = True) -> None:
        """Report to the pool that the program waits, and whether it can free its worker."""
        if self._worker is not None:
            self._runtime.pool.park(self._worker, self._note_worker_needed if can_suspend else None)

    def unpark(self) -> None:
        """Report to the pool that the program runs again."""
        if self._worker is not None:
            self._runtime.pool.unpark(self._worker)

    def ensure_open(self) -> None:
        """Raise RuntimeUnavailableError if the sandbox is closed."""
        if self._runtime.pool.is_closed:
            raise RuntimeUnavailableError("the sandbox is closed")

    def check_alive(self) -> None:
        """Raise WorkerDiedError if the worker that holds the VM has died."""
        if self._worker is not None and self._worker.is_dead:
            self._worker = None
            raise WorkerDiedError("the worker process that held the cell died")

    async def suspend(self, open_requests: tuple[int, ...]) -> None:
        """Replace the VM by a snapshot and release the worker."""
        worker = self._require_worker()
        self.is_worker_needed = False
        self._runtime.pool.unpark(worker)
        frame = await self._request_snapshot(worker)
        worker.expect_silence()
        if frame.kind == Event.SNAPSHOT_TOO_LARGE:
            raise SnapshotTooLarge(read_size(frame))
        if frame.kind != Event.SUSPENDED or len(frame.tail) > self._limits.max_snapshot_bytes:
            raise WorkerProtocolError(f"a worker answered SUSPEND with kind {frame.kind}")
        self._sealed = seal(
            self._snapshot_from(frame, open_requests), key=self._runtime.snapshot_key
        )
        self.release_worker()

    async def _request_snapshot(self, worker: WorkerProcess) -> Frame:
        """Wait for a snapshot until the worker is stuck: it has used its time, or does not run."""
        # The worker may lie about the size of the VM, so the limit is for the largest VM.
        limit = transfer_limit_seconds(self._limits.memory_limit_bytes)
        used = started = worker.cpu_seconds()
        command = encode_frame(Command.SUSPEND, {"maxBytes": self._limits.max_snapshot_bytes})
        while True:
            with anyio.move_on_after(limit):
                if command:
                    await worker.send(command)
                    command = b""
                return await worker.event()
            before, used = used, worker.cpu_seconds()
            # On a slow machine it makes progress without reaching the limit.
            if command or used - started > limit or used - before < limit * _MIN_PROGRESS:
                raise WorkerDiedError("the worker process did not suspend the cell")

    # Ending.

    def release_worker(self) -> None:
        """Return the worker, which has dropped the VM, to the pool."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.on_death = None
            self._runtime.pool.release(worker)

    def kill(self) -> None:
        """Kill the worker with the VM in it. For a worker that is stuck or compromised."""
        self._discard_worker()
        self._sealed = None

    def _discard_worker(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.on_death = None
            self._runtime.pool.discard(worker)

    async def drop(self) -> None:
        """Abort the VM, also during a burst, and release the worker."""
        worker = self._worker
        if worker is not None:
            if await worker.abort(Command.ABORT):
                self.release_worker()
            else:
                self.kill()
        self._sealed = None

    def _note_worker_needed(self) -> None:
        self.is_worker_needed = True
        self._on_worker_change()

    def _require_worker(self) -> WorkerProcess:
        if self._worker is None:
            raise CellStateError("the cell has no worker")
        return self._worker

    def _image(self) -> str:
        return self._runtime.launcher.image.identity

    def _snapshot_from(self, frame: Frame, open_requests: tuple[int, ...]) -> Snapshot:
        try:
            return Snapshot(
                image=self._image(),
                memory_bytes=int(frame.fields["memoryBytes"]),
                rejections=tuple(
                    (int(address), int(promise), int(reason))
                    for address, promise, reason in frame.fields["rejections"]
                ),
                open_requests=open_requests,
                pages=frame.tail,
            )
        except (KeyError, TypeError, ValueError) as error:
            raise WorkerProtocolError(f"a worker sent a malformed snapshot: {error!r}") from error
