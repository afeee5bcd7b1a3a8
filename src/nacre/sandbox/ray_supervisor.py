"""The supervisor of one node of a Ray cluster: starts hardened workers there and passes frames on.

It runs as a Ray actor, one per node and sandbox. It has no keys, and it decides nothing about
cells: the sandbox that started it does that. It trusts its workers as little as a local sandbox.
"""

import asyncio
import platform
import time
import uuid
from collections.abc import Sequence
from importlib import metadata
from typing import Any, Final, NamedTuple

import anyio

from nacre.config import Protection
from nacre.errors import SandboxError, WorkerDiedError, WorkerProtocolError
from nacre.sandbox.image import ImageKind, load_image
from nacre.sandbox.pool import Launcher
from nacre.sandbox.worker_process import WorkerProcess
from nacre.sandbox.worker_protocol import Command, Event, Frame

# The largest cell has 8 MiB of images and less of other output. A worker that sends more is
# compromised; the sandbox counts exactly.
_MAX_OUTPUT_BYTES: Final = 64 << 20
_START_ERRORS: Final = (SandboxError, OSError, RuntimeError, MemoryError)


class NodeFacts(NamedTuple):
    """What has to be the same on all nodes and in the sandbox."""

    python: str
    nacre: str
    image: str


def local_facts() -> NodeFacts:
    """Return the facts of this machine. Raises ImageError."""
    return NodeFacts(
        python=".".join(platform.python_version_tuple()[:2]),
        nacre=metadata.version("nacre-ai"),
        image=load_image("cell").identity,
    )


class Started(NamedTuple):
    """A worker that was started, or the problem."""

    worker_id: str = ""
    pid: int = 0
    hardening: dict[str, Any] | None = None
    module_origin: str = ""
    problem: str = ""


class Exchange(NamedTuple):
    """The events of a worker. With a problem, the worker is lost."""

    events: tuple[tuple[int, dict[str, Any], bytes], ...]
    problem: str = ""
    is_late: bool = False
    """Whether the worker did not answer in time."""
    has_started: bool = True
    """Whether the program may have run: False if the worker was lost before it began."""


class _Held:
    def __init__(self, worker: WorkerProcess) -> None:
        self.worker = worker
        self.exchange: anyio.CancelScope | None = None
        self.exchange_count = 0
        self.has_begun = asyncio.Event()
        """Set at each beginning of an exchange."""
        self.is_idle = asyncio.Event()
        self.is_idle.set()


class NodeSupervisor:
    """Starts workers on this node for one sandbox."""

    def __init__(self, required: tuple[Protection, ...] | None) -> None:
        self._required = required
        self._launchers: dict[ImageKind, Launcher] = {}
        self._workers: dict[str, _Held] = {}
        self._dead: list[str] = []
        self._death = asyncio.Event()

    async def describe(self) -> NodeFacts:
        """Return the facts that have to be the same everywhere."""
        return local_facts()

    async def open(self, clock_ns: int) -> None:
        """Set the clock of programs: a timer moves between nodes in a snapshot."""
        offset_ns = clock_ns - time.monotonic_ns()
        for kind in ("cell", "typescript"):
            self._launchers[kind] = Launcher(
                kind, None, required=self._required, monotonic_offset_ns=offset_ns
            )

    async def launch(self, kind: ImageKind) -> Started:
        """Start a worker, and wait until it has the required protections and is ready."""
        launcher = self._launchers[kind]
        try:
            worker = await launcher.launch()
        except _START_ERRORS as error:
            report = launcher.hardening
            return Started(
                problem=str(error) or type(error).__name__,
                hardening=None if report is None else report.to_json(),
            )
        worker_id = uuid.uuid4().hex
        worker.must_be_silent = True
        worker.on_death = lambda: self._note_death(worker_id)
        self._workers[worker_id] = _Held(worker)
        return Started(
            worker_id=worker_id,
            pid=worker.pid,
            hardening=worker.hardening.to_json(),
            module_origin=launcher.module_origin,
        )

    async def exchange(
        self,
        worker_id: str,
        start: Sequence[bytes],
        start_seconds: float,
        command: Sequence[bytes],
        seconds: float,
    ) -> Exchange:
        """Start a program, run a command, and wait for the event that ends it.

        `start` is empty for a program that runs already; `command` is empty if START is followed
        by nothing. The second limit counts from the moment when the program has started.
        """
        held = self._workers.get(worker_id)
        if held is None:
            return Exchange((), problem="the worker process is gone")
        worker, events = held.worker, list[Frame]()
        has_started = not start
        held.exchange_count += 1
        held.has_begun.set()
        held.is_idle.clear()
        with anyio.CancelScope() as held.exchange:
            try:
                if start:
                    with anyio.fail_after(start_seconds):
                        for piece in start:
                            await worker.send(piece)
                        frame = await worker.event()
                    has_started = True
                    if frame.kind != Event.STARTED:
                        return self._end(held, [frame])
                await self._run(worker, command, seconds, events)
                return self._end(held, events)
            except TimeoutError:
                return Exchange(_plain(events), is_late=True, has_started=has_started)
            except (WorkerDiedError, WorkerProtocolError) as error:
                worker.kill()
                return Exchange(_plain(events), problem=str(error), has_started=has_started)
            finally:
                held.is_idle.set()
        return Exchange((), problem="the program was aborted")

    async def _run(
        self, worker: WorkerProcess, command: Sequence[bytes], seconds: float, events: list[Frame]
    ) -> None:
        until, size = time.monotonic() + seconds, 0
        for piece in command:
            await worker.send(piece, until=until)
        while not events or events[-1].kind == Event.OUTPUT:
            frame = await worker.event(until=until)
            events.append(frame)
            size += len(frame.tail) if frame.kind == Event.OUTPUT else 0
            if size > _MAX_OUTPUT_BYTES:
                raise WorkerProtocolError("a worker sent more output than any cell may write")

    def _end(self, held: _Held, events: list[Frame]) -> Exchange:
        held.worker.expect_silence()
        return Exchange(_plain(events))

    async def abort(self, worker_id: str, exchange_count: int) -> bool:
        """Make the worker drop its VM, also during an exchange. False if it has to be killed.

        The count says how many exchanges were requested before: Ray may deliver the last one later
        than this call, and it must not start a program in a worker that is free.
        """
        held = self._workers.get(worker_id)
        if held is None:
            return False
        while held.exchange_count < exchange_count:
            held.has_begun.clear()
            await held.has_begun.wait()
        if held.exchange is not None:
            held.exchange.cancel()
            # A worker has only one reader.
            await held.is_idle.wait()
        if not await held.worker.abort(Command.ABORT):
            return False
        held.worker.must_be_silent = True
        return True

    async def stop(self, worker_id: str) -> None:
        """Kill a worker and wait for its end."""
        held = self._workers.pop(worker_id, None)
        if held is not None:
            held.worker.on_death = None
            await held.worker.stop()

    async def wait_for_deaths(self) -> list[str]:
        """Return the workers that died since the last call, as soon as there is one."""
        while not self._dead:
            self._death.clear()
            await self._death.wait()
        dead, self._dead = self._dead, []
        for worker_id in dead:
            await self.stop(worker_id)
        return dead

    def _note_death(self, worker_id: str) -> None:
        self._dead.append(worker_id)
        self._death.set()


def _plain(events: Sequence[Frame]) -> tuple[tuple[int, dict[str, Any], bytes], ...]:
    return tuple((frame.kind, frame.fields, frame.tail) for frame in events)
