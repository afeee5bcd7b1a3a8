"""The VM of a cell: runs it in a worker, and moves it between workers and sealed snapshots.

Restoring a forged snapshot would run foreign code, so a snapshot is sealed with a keyed hash. The
seal covers the cell, its scope, its image and its epoch, which counts the snapshots of a cell. So a
snapshot is restored only for its own cell, and only if it is the last one. The keys stay in the
supervisor: workers run untrusted code and never get them. Messages from a worker are untrusted.
"""

import hashlib
import hmac
import json
import struct
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import anyio

from nacre.errors import (
    CellStateError,
    NodeLostError,
    RuntimeUnavailableError,
    SnapshotError,
    WorkerDiedError,
    WorkerProtocolError,
)
from nacre.json_types import JsonObject, encode_json
from nacre.lazy_dataclasses import dataclass
from nacre.sandbox.executor import CellExecutor, Worker
from nacre.sandbox.key_ring import KeyRing, SnapshotKey
from nacre.sandbox.pool import WorkerPool
from nacre.sandbox.results import Limits
from nacre.sandbox.worker_process import SharedData
from nacre.sandbox.worker_protocol import (
    Command,
    Event,
    Frame,
    encode_frame,
    read_size,
)

_MAGIC: Final = b"NACRSNAP"
_VERSION: Final = 3
# Magic, version, length of the key id, length of the header.
_HEAD = struct.Struct("<8sHBI")
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
    blocks: bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class SnapshotBinding:
    """What a snapshot belongs to, as its seal says."""

    scope: str
    """Who may resume the cell, as text that the owner of the cell defines."""
    cell_id: str
    epoch: int
    """The number of the snapshot, from 1 for the first one of the cell."""


def seal(snapshot: Snapshot, *, keys: KeyRing, binding: SnapshotBinding) -> bytes:
    """Encode a snapshot with a seal that only a holder of the current key can produce."""
    facts = {
        "image": snapshot.image,
        "cell": binding.cell_id,
        "scope": _digest_of(binding.scope),
        "epoch": binding.epoch,
        "memoryBytes": snapshot.memory_bytes,
        "rejections": snapshot.rejections,
        "openRequests": snapshot.open_requests,
    }
    key_id = keys.current.id.encode()
    header = json.dumps(facts, separators=(",", ":")).encode()
    head = _HEAD.pack(_MAGIC, _VERSION, len(key_id), len(header))
    body = head + key_id + header + snapshot.blocks
    return body + _seal_of(body, keys.current.secret)


def unseal(data: bytes, *, keys: KeyRing, image: str, binding: SnapshotBinding) -> Snapshot:
    """Decode a snapshot. Raises SnapshotError if a check fails, before any part is used."""
    if len(data) < _HEAD.size + _SEAL_BYTES or not data.startswith(_MAGIC):
        raise SnapshotError(f"this is not a snapshot, or it is truncated: {len(data)} bytes")
    _, version, id_size, header_size = _HEAD.unpack_from(data)
    if version != _VERSION:
        raise SnapshotError(
            f"the snapshot has format {version}, this version of nacre reads {_VERSION}; "
            "run the program again"
        )
    header_at = _HEAD.size + id_size
    key = keys.find(data[_HEAD.size : header_at].decode("ascii", "replace"))
    body, seal_found = data[:-_SEAL_BYTES], data[-_SEAL_BYTES:]
    if not hmac.compare_digest(_seal_of(body, key.secret), seal_found):
        raise SnapshotError(
            "the snapshot is truncated, was changed, or was made with another key; "
            "run the program again"
        )
    # The seal is valid: a supervisor with this key wrote the bytes.
    facts = json.loads(body[header_at : header_at + header_size])
    _check_binding(facts, binding, image)
    return Snapshot(
        image=facts["image"],
        memory_bytes=facts["memoryBytes"],
        rejections=tuple(tuple(entry) for entry in facts["rejections"]),
        open_requests=tuple(facts["openRequests"]),
        blocks=body[header_at + header_size :],
    )


def sign_data(data: JsonObject, *, keys: KeyRing, binding: SnapshotBinding) -> str:
    """Return a seal for data that is stored next to a snapshot, with the id of its key."""
    return f"{keys.current.id}:{_sign(data, keys.current, binding)}"


def check_data(data: JsonObject, seal: str, *, keys: KeyRing, binding: SnapshotBinding) -> None:
    """Raise SnapshotError unless this is the data that was stored with the snapshot."""
    key_id, _, found = seal.partition(":")
    if not hmac.compare_digest(_sign(data, keys.find(key_id), binding).encode(), found.encode()):
        raise SnapshotError(
            "the data of the suspended program was changed, belongs to another one, or was made "
            "with another key; run the program again"
        )


def _sign(data: JsonObject, key: SnapshotKey, binding: SnapshotBinding) -> str:
    bound = [binding.scope, binding.cell_id, binding.epoch, data]
    return hashlib.blake2b(
        encode_json(bound), key=key.secret, digest_size=_SEAL_BYTES, person=b"nacre-data"
    ).hexdigest()


def _check_binding(facts: Mapping[str, Any], binding: SnapshotBinding, image: str) -> None:
    if facts["scope"] != _digest_of(binding.scope):
        raise SnapshotError("the snapshot belongs to another session, agent or sender")
    if facts["cell"] != binding.cell_id:
        raise SnapshotError(
            f"the snapshot belongs to another cell ({facts['cell']}), not to {binding.cell_id}"
        )
    if facts["epoch"] != binding.epoch:
        age = "an older" if facts["epoch"] < binding.epoch else "another"
        raise SnapshotError(
            f"the snapshot is {age} state of the program (number {facts['epoch']}), the last one "
            f"is number {binding.epoch}; it is not restored, because calls would be repeated"
        )
    if facts["image"] != image:
        raise SnapshotError(
            f"the snapshot was made by another version of the sandbox (image "
            f"{facts['image'][:12]}, this one is {image[:12]}); run the program again"
        )


def _digest_of(scope: str) -> str:
    return hashlib.blake2b(
        scope.encode(), digest_size=_SEAL_BYTES, person=b"nacre-scope"
    ).hexdigest()


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
    executor: CellExecutor
    keys: KeyRing


class BudgetExceeded(Exception):
    """The program did not stop at its deadline; its worker has to be killed."""


class SnapshotTooLarge(Exception):
    """The snapshot would be larger than the cell's limit. The VM is still live."""

    def __init__(self, size: int) -> None:
        super().__init__(f"{size} bytes")
        self.size = size


class RestoreFailed(Exception):
    """A valid snapshot could not be restored."""


class _Beginning(NamedTuple):
    """The START or RESTORE frame of a program."""

    command: Command
    frame: bytes
    seconds: float


class CellVm:
    """The VM of one cell."""

    def __init__(
        self,
        runtime: SandboxRuntime,
        limits: Limits,
        *,
        cell_id: str,
        scope: str,
        owner: str,
        shared: SharedData | None = None,
        on_output: Callable[[Frame], Awaitable[None]],
        on_worker_change: Callable[[], None],
    ) -> None:
        self._runtime = runtime
        self._limits = limits
        self._cell_id = cell_id
        self._scope = scope
        self._owner = owner
        self._shared = shared
        self._on_output = on_output
        # Called when the worker dies or other cells need it, while the program waits.
        self._on_worker_change = on_worker_change
        self._worker: Worker | None = None
        self._sealed: bytes | None = None
        # How to repeat the program if its node is lost before the first burst in it has ended. It
        # has made no request since, and its output has not been read.
        self._beginning: _Beginning | None = None
        self.epoch = 0
        """The number of snapshots that were taken."""
        self.is_worker_needed = False

    @property
    def is_live(self) -> bool:
        return self._worker is not None

    def load(self, sealed: bytes, *, epoch: int, data: JsonObject, seal: str) -> None:
        """Take over a sealed snapshot of another process, and the data that was stored with it.

        Raises SnapshotError.
        """
        self.epoch = epoch
        check_data(data, seal, keys=self._runtime.keys, binding=self._binding())
        self._unseal(sealed)
        self._sealed = sealed

    def sign(self, data: JsonObject) -> str:
        """Return the seal of data that is stored with the snapshot."""
        return sign_data(data, keys=self._runtime.keys, binding=self._binding())

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
        snapshot = self._unseal(self._sealed)
        facts = {
            "memoryBytes": snapshot.memory_bytes,
            "rejections": snapshot.rejections,
            "open": snapshot.open_requests,
        }
        await self._start_in_worker(
            Command.RESTORE, {**fields, **facts}, snapshot.blocks, size_bytes=snapshot.memory_bytes
        )
        self._sealed = None

    def _unseal(self, sealed: bytes) -> Snapshot:
        return unseal(sealed, keys=self._runtime.keys, image=self.image, binding=self._binding())

    async def _start_in_worker(
        self, command: Command, fields: Mapping[str, object], tail: bytes, *, size_bytes: int
    ) -> None:
        digest = None
        if self._shared is not None:
            digest = self._shared.digest
            size_bytes += self._shared.size
        frame = encode_frame(command, {**fields, "shared": digest}, tail)
        await self._begin(_Beginning(command, frame, transfer_limit_seconds(size_bytes)))

    async def _begin(self, beginning: "_Beginning") -> None:
        command, frame, seconds = beginning
        for attempt in range(_MAX_STARTS):
            worker = self._worker = await self._runtime.pool.acquire(self._owner)
            worker.on_death = self._on_worker_change
            try:
                answer = await worker.start(frame, shared=self._shared, seconds=seconds)
                if answer.kind == Event.FAILED and command == Command.RESTORE:
                    raise RestoreFailed(str(answer.fields.get("message", "")))
                if answer.kind != Event.STARTED:
                    raise WorkerProtocolError("a worker did not confirm that it started")
                self._beginning = beginning if worker.node else None
                return
            except (WorkerDiedError, TimeoutError) as error:
                # No guest code has run yet, so another worker can start it.
                self._discard_worker()
                if attempt + 1 == _MAX_STARTS:
                    raise WorkerDiedError(f"no worker could start the cell: {error}") from error

    def finish(self, budget_seconds: float, command: Sequence[bytes] = ()) -> Awaitable[Frame]:
        """Send a command, if there is one, and run the program until it waits or ends.

        Returns the event that says which. Raises BudgetExceeded if it does not end in time.
        """
        # Not a coroutine around another one, because most bursts take microseconds.
        if self._beginning is None:
            return self._finish(budget_seconds, command)
        return self._finish_or_repeat(budget_seconds, command)

    async def _finish_or_repeat(self, budget_seconds: float, command: Sequence[bytes]) -> Frame:
        for _ in range(_MAX_STARTS - 1):
            try:
                return await self._finish(budget_seconds, command)
            except NodeLostError:
                if self._beginning is None:
                    raise
                self._discard_worker()
                await self._begin(self._beginning)
        return await self._finish(budget_seconds, command)

    async def _finish(self, budget_seconds: float, command: Sequence[bytes]) -> Frame:
        worker = self._require_worker()
        deadline = time.monotonic() + max(budget_seconds, 0.0) + _GRACE_SECONDS
        try:
            for piece in command:
                # Within the deadline, because a worker that does not read is stuck as well.
                await worker.send(piece, until=deadline)
            while (frame := await worker.event(until=deadline)).kind == Event.OUTPUT:
                self._beginning = None
                await self._on_output(frame)
        except TimeoutError as error:
            raise BudgetExceeded from error
        worker.expect_silence()
        self._beginning = None
        return frame

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
        snapshot = self._snapshot_from(frame, open_requests)
        self.epoch += 1
        self._sealed = seal(snapshot, keys=self._runtime.keys, binding=self._binding())
        self.release_worker()

    async def _request_snapshot(self, worker: Worker) -> Frame:
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

    def _require_worker(self) -> Worker:
        if self._worker is None:
            raise CellStateError("the cell has no worker")
        return self._worker

    @property
    def image(self) -> str:
        """The identity of the image that the VM is an instance of."""
        return self._runtime.executor.image.identity

    @property
    def image_facts(self) -> JsonObject:
        """What another version of Nacre has to know about the image."""
        return self._runtime.executor.image.facts()

    def _binding(self) -> SnapshotBinding:
        return SnapshotBinding(scope=self._scope, cell_id=self._cell_id, epoch=self.epoch)

    def _snapshot_from(self, frame: Frame, open_requests: tuple[int, ...]) -> Snapshot:
        try:
            return Snapshot(
                image=self.image,
                memory_bytes=int(frame.fields["memoryBytes"]),
                rejections=tuple(
                    (int(address), int(promise), int(reason))
                    for address, promise, reason in frame.fields["rejections"]
                ),
                open_requests=open_requests,
                blocks=frame.tail,
            )
        except (KeyError, TypeError, ValueError) as error:
            raise WorkerProtocolError(f"a worker sent a malformed snapshot: {error!r}") from error
