"""The sandbox: a pool of started workers, and the cells that run in them.

A cell is one program: new -> running -> waiting -> running -> completed | failed | aborted

`run` starts the program, `resume` continues it and `abort` ends it. A leg is one `run` or `resume`.
At most one leg runs at a time, while the state is `running`.
"""

import logging
import math
import os
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import AsyncExitStack
from dataclasses import asdict, field
from enum import Enum
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, cast

import anyio
from anyio.abc import TaskGroup

from nacre.config import PROTECTIONS, Language, Protection, RayConfig
from nacre.errors import (
    CellStateError,
    ConfigError,
    RuntimeUnavailableError,
    SandboxError,
    SnapshotError,
)
from nacre.json_types import JsonObject, JsonValue
from nacre.lazy_dataclasses import dataclass, replace
from nacre.sandbox.cell_leg import (
    SHORT_PERSON_WAIT_SECONDS,
    CellBursts,
    CellLeg,
    FirstBurst,
    LegBudget,
    build_cell_context,
)
from nacre.sandbox.cell_vm import SandboxRuntime, SnapshotBinding, check_data
from nacre.sandbox.executor import CellExecutor
from nacre.sandbox.hardening import HardeningReport
from nacre.sandbox.host_requests import HostRequestHandler
from nacre.sandbox.image import Image, ImageKind, engine_version, restore_image
from nacre.sandbox.key_ring import KeyRing, new_key
from nacre.sandbox.pool import Launcher, WorkerPool
from nacre.sandbox.program import Program, TypeScriptTransforms
from nacre.sandbox.recording import BurstRecord
from nacre.sandbox.replayed_cell import ReplayedCell
from nacre.sandbox.results import (
    CellId,
    CellResult,
    Completed,
    Failed,
    Limits,
    Output,
    PendingRequest,
    Waiting,
    new_cell_id,
)
from nacre.sandbox.worker_process import SharedData, run_in_thread

if TYPE_CHECKING:
    from nacre.sandbox.ray_executor import RayCluster

logger = logging.getLogger(__name__)

_STOP_SECONDS: Final = 5.0
_MAX_WORKERS: Final = 256


class CellState(Enum):
    """The state of a cell."""

    NEW = "new"
    RUNNING = "running"
    WAITING = "waiting"
    COMPLETED = "completed"
    FAILED = "failed"
    ABORTED = "aborted"


_TRANSITIONS: Final[dict[CellState, frozenset[CellState]]] = {
    CellState.NEW: frozenset({CellState.RUNNING, CellState.ABORTED}),
    CellState.RUNNING: frozenset(
        {CellState.WAITING, CellState.COMPLETED, CellState.FAILED, CellState.ABORTED}
    ),
    CellState.WAITING: frozenset({CellState.RUNNING, CellState.ABORTED}),
    CellState.COMPLETED: frozenset(),
    CellState.FAILED: frozenset(),
    CellState.ABORTED: frozenset(),
}
_STATE_AFTER: Final[dict[type[CellResult], CellState]] = {
    Completed: CellState.COMPLETED,
    Failed: CellState.FAILED,
    Waiting: CellState.WAITING,
}


def check_transition(before: CellState, after: CellState) -> None:
    """Raise CellStateError unless a cell can change between these states."""
    if after not in _TRANSITIONS[before]:
        raise CellStateError(f"a cell cannot go from {before.value} to {after.value}")


def state_after_leg(result: CellResult | None) -> CellState:
    """Return the state after a leg with this result. Without a result, the leg was aborted."""
    return CellState.ABORTED if result is None else _STATE_AFTER[type(result)]


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredCell:
    """A waiting cell as data. Any process with the same keys can restore it; if its image is an
    older one, after `Sandbox.add_image`."""

    cell_id: CellId
    number: int
    """The number of its snapshot."""
    image: str = ""
    snapshot: bytes = field(repr=False)
    data: JsonObject = field(repr=False)
    """Its open requests, the answers that are not delivered, its counts and its image; JSON."""
    seal: str
    """The seal of `data`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CellServices:
    """The parts of a sandbox that its cells use."""

    runtime: SandboxRuntime
    typescript: TypeScriptTransforms
    tasks: TaskGroup
    running: "set[Cell]"


class Cell:
    """A program in the sandbox. Create it with `Sandbox.cell`."""

    def __init__(
        self, program: Program, services: CellServices, *, cell_id: CellId | None = None
    ) -> None:
        self.state = CellState.NEW
        self._limits = program.limits
        self._running_cells = services.running
        self._context = build_cell_context(
            program,
            runtime=services.runtime,
            typescript=services.typescript,
            tasks=services.tasks,
            wake=self.wake,
            cell_id=new_cell_id() if cell_id is None else cell_id,
        )
        self._vm = self._context.vm
        self._requests = self._context.requests
        self._bursts = CellBursts(self._context)
        self._leg: CellLeg | None = None

    @property
    def cell_id(self) -> CellId:
        return self._context.cell_id

    async def run(self, *, person_seconds: float = SHORT_PERSON_WAIT_SECONDS) -> CellResult:
        """Start the program and return the result of its first leg.

        The leg ends when the program has waited only for people for `person_seconds`.
        """
        return await self._run_leg(CellState.NEW, self._bursts.start, person_seconds)

    async def resume(self, *, person_seconds: float = math.inf) -> CellResult:
        """Continue a waiting program and return the result of its next leg."""
        return await self._run_leg(CellState.WAITING, self._bursts.resume, person_seconds)

    async def abort(self, reason: str = "the run was aborted") -> None:
        """End the program now, in any state. Has no effect after its end."""
        self.cancel_requests(reason)
        if self._leg is not None:
            await self._leg.abort(reason)
        # A running leg may have ended in `waiting` just before the abort reached it.
        if self.state in (CellState.NEW, CellState.WAITING):
            self._move_to(CellState.ABORTED)
            await self._vm.drop()

    def cancel_requests(self, reason: str) -> None:
        """Cancel all unanswered requests, which is the first step of an abort."""
        self._requests.cancel(reason)

    def wake(self) -> None:
        """Make a waiting leg check again for answers, its worker and the sandbox."""
        if self._leg is not None:
            self._leg.wake()

    @property
    def pending(self) -> tuple[PendingRequest, ...]:
        """The unanswered requests."""
        return self._requests.pending

    @property
    def has_returned(self) -> bool:
        """Whether the program has returned. Its calls and timers may not be done yet."""
        return self._bursts.has_returned

    @property
    def value(self) -> JsonValue:
        """The value that the program returned."""
        return self._bursts.value

    @property
    def cancelled(self) -> tuple[PendingRequest, ...]:
        """The requests that were cancelled while their handlers were running."""
        return self._requests.cancelled

    @property
    def snapshot(self) -> bytes | None:
        """The sealed snapshot, while the cell is suspended."""
        return self._vm.sealed

    def to_stored(self) -> StoredCell:
        """Return the waiting cell as data. Raises CellStateError in any other state."""
        snapshot = self._vm.sealed
        if self.state is not CellState.WAITING or snapshot is None:
            raise CellStateError(f"the cell is {self.state.value}, not waiting")
        data: JsonObject = {
            **self._bursts.to_json(),
            "output": self._context.output.to_json(),
            "usage": cast("JsonObject", asdict(self._context.usage)),
            "image": self._vm.image_facts,
        }
        return StoredCell(
            cell_id=self.cell_id,
            number=self._vm.epoch,
            image=self._vm.image,
            snapshot=snapshot,
            data=data,
            seal=self._vm.sign(data),
        )

    def load(self, stored: StoredCell) -> None:
        """Take over the state of a cell that was stored. Raises SnapshotError."""
        check_transition(self.state, CellState.RUNNING)
        self._vm.load(stored.snapshot, epoch=stored.number, data=stored.data, seal=stored.seal)
        # The seal is valid: a supervisor with this key wrote the data.
        data = cast("dict[str, Any]", stored.data)
        self._context.output.load(data["output"])
        for name, value in data["usage"].items():
            setattr(self._context.usage, name, value)
        self.state = CellState.WAITING
        self._bursts.load(data)

    async def _run_leg(
        self, expected: CellState, first_burst: FirstBurst, person_seconds: float
    ) -> CellResult:
        if self.state is not expected:
            raise CellStateError(f"the cell is {self.state.value}, not {expected.value}")
        self._move_to(CellState.RUNNING)
        budget = LegBudget(self._limits.timeout_ms / 1000, person_seconds=person_seconds)
        leg = self._leg = CellLeg(self._context, self._bursts, budget)
        started = time.monotonic()
        result: CellResult | None = None
        self._running_cells.add(self)
        try:
            result = await leg.run(first_burst)
        finally:
            # The result is missing after an abort, a cancellation of the caller, or a bug.
            if result is None:
                self._requests.cancel(leg.abort_reason or "the run was cancelled")
                with anyio.CancelScope(shield=True):
                    await self._vm.drop()
            self._move_to(state_after_leg(result))
            self._requests.wake_idle_server()
            self._running_cells.discard(self)
            self._leg = None
            leg.ended.set()
        return self._add_usage(
            result or Failed(error=leg.abort_reason, reason="aborted"), started=started
        )

    def _add_usage(self, result: CellResult, *, started: float) -> CellResult:
        """Return the result with the output of its leg and the usage of the cell so far."""
        usage = self._context.usage
        usage.wall_ms += (time.monotonic() - started) * 1000
        usage.unfinished_requests = self._requests.pending_count
        if isinstance(result, Failed):
            result = replace(result, cancelled=self._requests.cancelled)
        return replace(result, output=self._context.output.take(), usage=replace(usage))

    def _move_to(self, state: CellState) -> None:
        # All state changes go through here.
        check_transition(self.state, state)
        self.state = state


@dataclass(frozen=True, kw_only=True, slots=True)
class SandboxOptions:
    """Options of a sandbox. The defaults suit most machines."""

    workers: int = 0
    """The number of workers to keep running; 0 means one per core, from two to eight."""
    cache_directory: Path | None = None
    """The directory for compiled modules, as a path or text; by default the user's cache."""
    require: Collection[Protection] | None = None
    """The protections without which no program runs. By default, seccomp and landlock where the
    kernel has them."""
    is_lazy: bool = False
    """Whether the workers start with the first program, instead of with the sandbox."""
    keys: KeyRing | None = None
    """The keys of snapshots; by default a random one that nobody else has."""
    ray: RayConfig | None = None
    """The Ray cluster that runs the programs, instead of this machine."""
    launcher: Launcher | None = None
    """Starts the workers of cells on this machine, and may have started one. The sandbox sets its
    required protections and closes it."""

    def __post_init__(self) -> None:
        if type(self.workers) is not int or not 0 <= self.workers <= _MAX_WORKERS:
            raise ConfigError(
                "workers", f"is {self.workers!r}; allowed: whole numbers from 0 to {_MAX_WORKERS}"
            )
        # Callers may not be type-checked. A frozen dataclass needs `object.__setattr__`.
        directory = cast("object", self.cache_directory)
        if isinstance(directory, str) and directory:
            object.__setattr__(self, "cache_directory", Path(directory))
        elif directory is not None and not isinstance(directory, Path):
            raise ConfigError("cache_directory", f"is {directory!r}; allowed: a path")
        unknown = sorted(set(self.require or ()) - set(PROTECTIONS))
        if isinstance(self.require, str) or unknown:
            raise ConfigError(
                "require", f"is {self.require!r}; allowed: a list of {', '.join(PROTECTIONS)}"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class SandboxReport:
    """The state of the sandbox on this machine, for diagnosis."""

    engine: str
    image: str
    module_origin: str
    workers: tuple[int, ...]
    hardening: HardeningReport | None
    problem: str


def _ray_cluster(config: RayConfig, required: tuple[Protection, ...] | None) -> "RayCluster":
    # Imported only where it is configured.
    from nacre.sandbox.ray_executor import RayCluster

    return RayCluster(config, required=required)


class Sandbox:
    """Runs programs. An async context manager: `async with Sandbox() as sandbox: ...`.

    Entering starts workers in the background and does not wait for them, unless the options say
    that the first program starts them. If they cannot start, cells fail with
    `runtime_unavailable`. Exiting aborts all running cells.
    """

    def __init__(self, options: SandboxOptions | None = None) -> None:
        self._options = options or SandboxOptions()
        self._stack = AsyncExitStack()
        self._services: CellServices | None = None
        self._older: dict[str, SandboxRuntime] = {}
        self._older_lock = anyio.Lock()
        ray, require = self._options.ray, self._required()
        self._cluster = None if ray is None else _ray_cluster(ray, require)

    async def __aenter__(self) -> Self:
        if self._services is not None:
            raise RuntimeUnavailableError("a sandbox can be opened only once; create another one")
        # Closed in reverse order: workers, then their tasks, then the launchers.
        stack = self._stack
        executor, typescript_executor = await self._open_executors()
        tasks = await self._stack.enter_async_context(anyio.create_task_group())
        self._stack.callback(tasks.cancel_scope.cancel)
        pool = self._pool(executor, tasks, stack, size=self._size())
        if self._cluster is not None:
            self._cluster.on_resize = pool.resize
        # Started by the first TypeScript cell.
        typescript = self._pool(typescript_executor, tasks, stack, size=1)
        # By default a new key for each sandbox: it restores only its own snapshots.
        keys = self._options.keys or KeyRing(new_key())
        self._services = CellServices(
            runtime=SandboxRuntime(pool=pool, executor=executor, keys=keys),
            typescript=TypeScriptTransforms(typescript),
            tasks=tasks,
            running=set(),
        )
        self._stack.callback(self._wake_cells)
        if not self._options.is_lazy:
            pool.warm()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # The exception of the block is not passed on, so that no group wraps it.
        await self._stack.aclose()

    def cell(
        self,
        code: str,
        *,
        language: Language = "javascript",
        limits: Limits | None = None,
        functions: Iterable[str] = (),
        shared: SharedData | None = None,
        handler: HostRequestHandler | None = None,
        on_output: Callable[[Output], None] | None = None,
        on_burst: Callable[[BurstRecord], None] | None = None,
        owner: str = "",
        scope: str = "",
        stored: StoredCell | None = None,
    ) -> Cell:
        """Create a cell for a program, or the waiting one that `Cell.to_stored` has returned.

        `functions` become global functions of the program; each call is a host request that
        `handler` answers. `shared` is data that the program reads inside its worker, with the
        requests that belong to it. `on_output` is called with each item of output at once; the
        results contain all items as well. `on_burst` gets a record of each burst when it begins.
        The pool shares workers fairly between owners; an `owner` is a session. `scope` says who may
        resume the cell; its snapshots are bound to it.

        `stored` is refused with SnapshotError if any of it was changed or has another origin.
        Otherwise its requests start again at once.
        """
        services = self._require_services()
        names = tuple(functions)
        if not isinstance(code, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"code must be a string, not a {type(code).__name__}")
        if isinstance(functions, str) or not all(isinstance(name, str) for name in names):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"functions must be a list of names, not {functions!r}")
        program = Program(
            code=code,
            language=language,
            limits=limits or Limits(),
            functions=names,
            shared=shared,
            handler=handler,
            on_output=on_output,
            on_burst=on_burst,
            owner=owner,
            scope=scope,
        )
        if stored is None:
            return Cell(program, services)
        services = replace(services, runtime=self._runtime_of(stored.image))
        cell = Cell(program, services, cell_id=stored.cell_id)
        cell.load(stored)
        return cell

    # Images of other versions of Nacre.

    async def has_image(self, identity: str) -> bool:
        """Whether cells of this image can be restored. Raises ImageError."""
        executor = self._require_services().runtime.executor
        if not executor.image_identity:
            # No worker has started yet, so the facts of the image have to be read.
            await run_in_thread(lambda: executor.image)
        return identity in (executor.image.identity, *self._older)

    @property
    def current_image(self) -> Image:
        """The image of new cells. Raises ImageError if the package is damaged."""
        return self._require_services().runtime.executor.image

    async def add_image(self, stored: StoredCell, wasm: bytes, *, scope: str) -> None:
        """Start a worker for cells of an older image, whose facts are part of a stored cell.

        Raises SnapshotError if the cell was changed, or if this version cannot run its image.
        """
        services = self._require_services()
        binding = SnapshotBinding(scope=scope, cell_id=stored.cell_id, epoch=stored.number)
        check_data(stored.data, stored.seal, keys=services.runtime.keys, binding=binding)
        async with self._older_lock:
            if await self.has_image(stored.image):
                return
            logger.info("programs of the older sandbox image %s continue", stored.image[:12])
            async with AsyncExitStack() as stack:
                try:
                    runtime = await self._open_older(stored, wasm, services, stack)
                except (SandboxError, OSError) as error:
                    raise SnapshotError(
                        f"its sandbox image {stored.image[:12]} is of another version of Nacre, "
                        f"which this one cannot run: {error}"
                    ) from error
                self._older[stored.image] = runtime
                self._stack.push_async_exit(stack.pop_all())

    async def _open_older(
        self, stored: StoredCell, wasm: bytes, services: CellServices, stack: AsyncExitStack
    ) -> SandboxRuntime:
        # Not above: cells of older versions are rare.
        import shutil
        import tempfile

        directory = await run_in_thread(tempfile.mkdtemp)
        remove = partial(shutil.rmtree, directory, ignore_errors=True)
        stack.push_async_callback(run_in_thread, remove)
        facts = cast("dict[str, Any]", stored.data["image"])
        if facts.get("identity") != stored.image:
            raise SnapshotError("the cell belongs to another image")
        image = await run_in_thread(lambda: restore_image(facts, wasm, directory=directory))
        launcher = self._launcher("cell", stack, image=image)
        pool = self._pool(launcher, services.tasks, stack, size=1)
        pool.release(await pool.acquire(""))
        return replace(services.runtime, pool=pool, executor=launcher)

    def _runtime_of(self, identity: str) -> SandboxRuntime:
        if identity == self.current_image.identity:
            return self._require_services().runtime
        if (older := self._older.get(identity)) is not None:
            return older
        raise SnapshotError(
            f"the snapshot was made by another version of the sandbox (image {identity[:12]}, "
            f"this one is {self.current_image.identity[:12]}); run the program again"
        )

    def replay_cell(
        self,
        code: str,
        *,
        language: Language = "javascript",
        limits: Limits | None = None,
        shared: SharedData | None = None,
    ) -> ReplayedCell:
        """Create a cell that runs burst by burst, with the inputs of a record."""
        services = self._require_services()
        program = Program(code=code, language=language, limits=limits or Limits(), shared=shared)
        return ReplayedCell(
            program,
            runtime=services.runtime,
            typescript=services.typescript,
            tasks=services.tasks,
        )

    @property
    def image(self) -> str:
        """The hash of the image of cells; empty before the first worker."""
        return self._require_services().runtime.executor.image_identity

    def warm_typescript(self) -> None:
        """Start the worker for TypeScript, which the first TypeScript cell would start."""
        self._require_services().typescript.warm()

    def prepare_typescript(self) -> None:
        """Compile the image for TypeScript if no process has done it. The worker is started by the
        first TypeScript cell, which takes some 50 ms then."""
        self._require_services().typescript.prepare()

    async def ensure_available(self) -> None:
        """Wait until a worker runs. Raises RuntimeUnavailableError if none can start."""
        pool = self._require_services().runtime.pool
        if not pool.workers:
            pool.release(await pool.acquire(""))

    @property
    def problem(self) -> str:
        """Why programs cannot run now; empty if they can, or if the first worker still starts."""
        pool = self._require_services().runtime.pool
        return "" if pool.workers else pool.problem

    @property
    def workers(self) -> tuple[tuple[int, bool], ...]:
        """The process id of each worker, and whether a cell is in it."""
        pool = self._require_services().runtime.pool
        return tuple((worker.pid, pool.is_busy(worker)) for worker in pool.workers)

    async def check(self) -> SandboxReport:
        """Wait for a worker to start and return a report about the sandbox."""
        runtime = self._require_services().runtime
        pool, executor = runtime.pool, runtime.executor
        problem = engine = image = ""
        try:
            worker = await pool.acquire("")
            pool.release(worker)
            engine = await run_in_thread(engine_version)
            image = executor.image.identity
        except SandboxError as error:
            problem = str(error)
        return SandboxReport(
            engine=engine,
            image=image,
            module_origin=executor.module_origin,
            workers=tuple(worker.pid for worker in pool.workers),
            hardening=executor.hardening,
            problem=problem,
        )

    def _require_services(self) -> CellServices:
        if self._services is None:
            raise RuntimeUnavailableError("the sandbox is not open; use it in `async with`")
        return self._services

    def _size(self) -> int:
        if self._cluster is not None:
            # Grows with the nodes that are found.
            return 1
        return self._options.workers or max(2, min(os.cpu_count() or 1, 8))

    def _required(self) -> tuple[Protection, ...] | None:
        return None if self._options.require is None else tuple(self._options.require)

    async def _open_executors(self) -> tuple[CellExecutor, CellExecutor]:
        """Return the executors of cells and of TypeScript."""
        if self._cluster is not None:
            from nacre.sandbox.ray_executor import RayExecutor

            cluster = await self._stack.enter_async_context(self._cluster)
            return RayExecutor("cell", cluster), RayExecutor("typescript", cluster)
        cells = self._options.launcher
        if cells is None:
            cells = self._launcher("cell", self._stack)
        else:
            cells.required = self._required()
            self._stack.callback(cells.close)
        return cells, self._launcher("typescript", self._stack)

    def _launcher(
        self, kind: ImageKind, stack: AsyncExitStack, *, image: Image | None = None
    ) -> Launcher:
        launcher = Launcher(
            kind, self._options.cache_directory, required=self._required(), image=image
        )
        stack.callback(launcher.close)
        return launcher

    def _pool(
        self, executor: CellExecutor, tasks: TaskGroup, stack: AsyncExitStack, *, size: int
    ) -> WorkerPool:
        pool = WorkerPool(executor, size=size, tasks=tasks)
        stack.push_async_callback(self._close_pool, pool)
        return pool

    def _wake_cells(self) -> None:
        # Cells that wait without a worker would not notice that the sandbox closes.
        if self._services is not None:
            for runtime in (self._services.runtime, *self._older.values()):
                runtime.pool.is_closed = True
            for cell in self._services.running:
                cell.wake()

    async def _close_pool(self, pool: WorkerPool) -> None:
        with anyio.CancelScope(shield=True), anyio.move_on_after(_STOP_SECONDS):
            await pool.aclose()
