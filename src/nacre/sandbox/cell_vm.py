"""Moves the VM of a cell between workers and sealed snapshots, and runs it.

Restoring foreign bytes is running foreign code, so the seal is a keyed hash. The key stays in the
supervisor: workers run hostile code and never see it.

Moves it between these, and lets it run. Nothing that a worker says is trusted.
"""

import hashlib
import hmac
import json
import struct
from collections.abc import Callable, Mapping
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
from nacre.sandbox.worker_events import size_of
from nacre.sandbox.worker_process import SharedData, WorkerProcess
from nacre.sandbox.worker_protocol import Command, Event, Frame, encode_frame

_MAGIC: Final = b"NACRSNAP"
_VERSION: Final = 1
_HEAD = struct.Struct("<8sHI")
_SEAL_BYTES: Final = 32


@dataclass(frozen=True, kw_only=True, slots=True)
class Snapshot:
    """The state of a VM: its memory as a difference from its image, and what the host knows."""

    image: str
    memory_bytes: int
    rejections: tuple[tuple[int, int, int], ...]
    open_requests: tuple[int, ...]
    pages: bytes


def seal(snapshot: Snapshot, *, key: bytes) -> bytes:
    """The snapshot as bytes that only this key can have made."""
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
    """The snapshot again; raises SnapshotError before anything of it is used if a check fails."""
    if len(data) < _HEAD.size + _SEAL_BYTES or not data.startswith(_MAGIC):
        raise SnapshotError(f"this is not a snapshot, or it is cut off: {len(data)} bytes")
    _, version, header_size = _HEAD.unpack_from(data)
    if version != _VERSION:
        raise SnapshotError(
            f"the snapshot has format {version}, this version of nacre reads {_VERSION}; "
            "run the program again"
        )
    body, seal_found = data[:-_SEAL_BYTES], data[-_SEAL_BYTES:]
    if not hmac.compare_digest(_seal_of(body, key), seal_found):
        raise SnapshotError(
            "the snapshot is cut off, was changed, or was made with another key; "
            "run the program again"
        )
    # The seal holds: from here on the bytes are our own.
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


# The engine stops a program at its deadline by itself; a worker that has not by then is stuck.
_OVERTIME_SECONDS: Final = 0.03
_MAX_STARTS: Final = 3
# A worker that takes longer than this to start a program is stuck. A busy machine is not: starting
# takes milliseconds, so this leaves room for a load that slows it down a hundred times.
_BASE_LIMIT_SECONDS: Final = 5.0
# Sending, suspending or restoring 1 MiB takes up to 11 ms of CPU time. The limit is ten times that,
# again for a busy machine.
_LIMIT_SECONDS_PER_MIB: Final = 0.1


def transfer_limit_seconds(size_bytes: int) -> float:
    """How long a worker may take to receive, suspend or restore so many bytes."""
    return _BASE_LIMIT_SECONDS + _LIMIT_SECONDS_PER_MIB * size_bytes / (1 << 20)


@dataclass(frozen=True, kw_only=True, slots=True)
class SandboxRuntime:
    """What VMs of cells live in."""

    pool: WorkerPool
    launcher: Launcher
    snapshot_key: bytes


class OverranBudget(Exception):
    """The program did not stop when its time was up; its worker has to be killed."""


class SnapshotTooLarge(Exception):
    """The suspended VM would take more than the cell may; it is still live."""

    def __init__(self, size: int) -> None:
        super().__init__(f"{size} bytes")
        self.size = size


class RestoreFailed(Exception):
    """A sound snapshot did not come back."""


class CellVm:
    """The VM of one cell."""

    def __init__(
        self,
        home: SandboxRuntime,
        limits: Limits,
        *,
        owner: str,
        shared: SharedData | None = None,
        on_output: Callable[[Frame], None],
        on_trouble: Callable[[], None],
    ) -> None:
        self._home = home
        self._limits = limits
        self._owner = owner
        self._shared = shared
        self._on_output = on_output
        # Called when the worker dies or is wanted by others, while the program only waits.
        self._on_trouble = on_trouble
        self._worker: WorkerProcess | None = None
        self._sealed: bytes | None = None
        self.is_wanted = False

    @property
    def is_live(self) -> bool:
        return self._worker is not None

    @property
    def sealed(self) -> bytes | None:
        """The snapshot, while there is one."""
        return self._sealed

    # Running.

    async def start(self, fields: Mapping[str, object], code: bytes) -> None:
        """Get a worker, any worker, and have it start a program; `finish` tells how that ends."""
        await self._enter(Command.START, fields, code, size_bytes=len(code))

    async def restore(self, fields: Mapping[str, object]) -> None:
        """Put the snapshot back into a worker, any worker."""
        if self._sealed is None:
            raise CellStateError("the cell has neither a worker nor a snapshot")
        snapshot = unseal(self._sealed, key=self._home.snapshot_key, image=self._image())
        facts = {
            "memoryBytes": snapshot.memory_bytes,
            "rejections": snapshot.rejections,
            "open": snapshot.open_requests,
        }
        await self._enter(
            Command.RESTORE, {**fields, **facts}, snapshot.pages, size_bytes=snapshot.memory_bytes
        )
        self._sealed = None

    async def _enter(
        self, command: Command, fields: Mapping[str, object], tail: bytes, *, size_bytes: int
    ) -> None:
        digest = None
        if self._shared is not None:
            digest = self._shared.digest
            size_bytes += self._shared.size
        frame = encode_frame(command, {**fields, "shared": digest}, tail)
        for attempt in range(_MAX_STARTS):
            worker = self._worker = await self._home.pool.acquire(self._owner)
            worker.on_death = self._on_trouble
            try:
                with anyio.fail_after(transfer_limit_seconds(size_bytes)):
                    if self._shared is not None:
                        await worker.share(self._shared)
                    await worker.send(frame)
                    answer = await worker.event()
                if answer.kind == Event.FAILED and command == Command.RESTORE:
                    raise RestoreFailed(str(answer.fields.get("message", "")))
                if answer.kind != Event.STARTED:
                    raise WorkerProtocolError("a worker did not say that it started")
                return
            except (WorkerDiedError, TimeoutError) as error:
                # Nothing of the program has run yet: another worker may do it.
                self._give_up_worker()
                if attempt + 1 == _MAX_STARTS:
                    raise WorkerDiedError(f"no worker took the cell: {error}") from error

    async def run(
        self,
        command: Command,
        fields: Mapping[str, object],
        tail: bytes = b"",
        *,
        budget_seconds: float,
    ) -> Frame:
        """Let the program run until it waits or ends; the event that says which."""
        return await self.finish(budget_seconds, encode_frame(command, fields, tail))

    async def finish(self, budget_seconds: float, command: bytes = b"") -> Frame:
        """Wait for the end of a burst; raises OverranBudget if it does not come in time."""
        worker = self._held_worker()
        with anyio.move_on_after(max(budget_seconds, 0.0) + _OVERTIME_SECONDS):
            if command:
                # Within the deadline: a worker that does not read is stuck as well.
                await worker.send(command)
            while True:
                frame = await worker.event()
                if frame.kind != Event.OUTPUT:
                    worker.fall_quiet()
                    return frame
                self._on_output(frame)
        raise OverranBudget

    # Waiting.

    def park(self, *, can_move: bool = True) -> None:
        """The program only waits: others may ask for the worker, unless it cannot move."""
        if self._worker is not None:
            self._home.pool.park(self._worker, self._want if can_move else None)

    def unpark(self) -> None:
        """The program goes on."""
        if self._worker is not None:
            self._home.pool.unpark(self._worker)

    def ensure_open(self) -> None:
        """Raises RuntimeUnavailableError if there is no home for VMs any more."""
        if self._home.pool.is_closed:
            raise RuntimeUnavailableError("the sandbox is closed")

    def check_alive(self) -> None:
        """Raises WorkerDiedError if the worker that holds the VM is gone."""
        if self._worker is not None and self._worker.is_dead:
            self._worker = None
            raise WorkerDiedError("the worker process that held the cell is gone")

    async def suspend(self, open_requests: tuple[int, ...]) -> None:
        """Turn the VM into a snapshot and give the worker back."""
        worker = self._held_worker()
        self.is_wanted = False
        self._home.pool.unpark(worker)
        fields = {"maxBytes": self._limits.max_snapshot_bytes}
        try:
            # The worker knows how large the VM is, but it may lie: so the most that it can be.
            with anyio.fail_after(transfer_limit_seconds(self._limits.memory_limit_bytes)):
                await worker.send(encode_frame(Command.SUSPEND, fields))
                frame = await worker.event()
        except TimeoutError:
            raise WorkerDiedError("the worker process did not suspend the cell") from None
        worker.fall_quiet()
        if frame.kind == Event.SNAPSHOT_TOO_LARGE:
            raise SnapshotTooLarge(size_of(frame))
        if frame.kind != Event.SUSPENDED or len(frame.tail) > self._limits.max_snapshot_bytes:
            raise WorkerProtocolError(f"a worker answered SUSPEND with kind {frame.kind}")
        self._sealed = seal(self._snapshot_from(frame, open_requests), key=self._home.snapshot_key)
        self.leave()

    # Ending.

    def leave(self) -> None:
        """Give the worker back; it has dropped the VM itself."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.on_death = None
            self._home.pool.release(worker)

    def kill(self) -> None:
        """End the worker with the VM in it: it is stuck, or not to be trusted."""
        self._give_up_worker()
        self._sealed = None

    def _give_up_worker(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.on_death = None
            self._home.pool.discard(worker)

    async def drop(self) -> None:
        """Have the worker drop the VM, in the middle of a burst too, and give it back."""
        worker = self._worker
        if worker is not None:
            if await worker.abort(Command.ABORT):
                self.leave()
            else:
                self.kill()
        self._sealed = None

    def _want(self) -> None:
        self.is_wanted = True
        self._on_trouble()

    def _held_worker(self) -> WorkerProcess:
        if self._worker is None:
            raise CellStateError("the cell has no worker")
        return self._worker

    def _image(self) -> str:
        return self._home.launcher.image.identity

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
