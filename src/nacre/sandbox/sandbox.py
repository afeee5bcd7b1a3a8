"""The sandbox: workers, kept warm, and the cells that run in them."""

import os
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self, cast

import anyio
from anyio.abc import TaskGroup

from nacre.config import Language
from nacre.errors import ConfigError, RuntimeUnavailableError, SandboxError
from nacre.sandbox.cell import Cell, CellServices
from nacre.sandbox.cell_vm import SandboxRuntime
from nacre.sandbox.hardening import HardeningReport
from nacre.sandbox.host_requests import HostRequestHandler
from nacre.sandbox.image import ImageKind, engine_version
from nacre.sandbox.pool import Launcher, WorkerPool
from nacre.sandbox.program import Program, TypeScriptTransforms
from nacre.sandbox.results import Limits, Output
from nacre.sandbox.worker_process import SharedData, in_thread

_KEY_BYTES: Final = 32
_STOP_SECONDS: Final = 5.0
_MAX_WORKERS: Final = 256


@dataclass(frozen=True, kw_only=True, slots=True)
class SandboxOptions:
    """How a sandbox is set up; every field has a default that suits most machines."""

    workers: int = 0
    """How many workers are kept warm; 0 takes one per core, at least two and at most eight."""
    cache_directory: Path | None = None
    """Where compiled modules are kept; the user's cache directory by default. Text will do."""

    def __post_init__(self) -> None:
        if type(self.workers) is not int or not 0 <= self.workers <= _MAX_WORKERS:
            raise ConfigError(
                "workers", f"is {self.workers!r}; allowed: whole numbers from 0 to {_MAX_WORKERS}"
            )
        # From callers that are not type-checked; frozen, so this is how it is set.
        directory = cast("object", self.cache_directory)
        if isinstance(directory, str) and directory:
            object.__setattr__(self, "cache_directory", Path(directory))
        elif directory is not None and not isinstance(directory, Path):
            raise ConfigError("cache_directory", f"is {directory!r}; allowed: a path")


@dataclass(frozen=True, kw_only=True, slots=True)
class SandboxReport:
    """What the sandbox needs and has on this machine; for people who look for a fault."""

    engine: str
    image: str
    module_origin: str
    workers: tuple[int, ...]
    hardening: HardeningReport | None
    problem: str


class Sandbox:
    """Runs programs. An async context manager: `async with Sandbox() as sandbox: ...`.

    Entering starts workers in the background and does not wait for them. Where they cannot start,
    cells fail with `runtime_unavailable`.
    """

    def __init__(self, options: SandboxOptions | None = None) -> None:
        self._options = options or SandboxOptions()
        self._stack = AsyncExitStack()
        self._services: CellServices | None = None

    async def __aenter__(self) -> Self:
        if self._services is not None:
            raise RuntimeUnavailableError("a sandbox is opened once; make another one")
        # Closed in reverse: workers end, then the tasks around them, then what started them.
        launcher, typescript_launcher = self._launcher("cell"), self._launcher("typescript")
        tasks = await self._stack.enter_async_context(anyio.create_task_group())
        self._stack.callback(tasks.cancel_scope.cancel)
        pool = self._pool(launcher, tasks, size=self._size())
        # Not warmed: the first TypeScript cell starts it, and programs in JavaScript never do.
        typescript = self._pool(typescript_launcher, tasks, size=1)
        # Nobody else can make a snapshot that this sandbox restores, and none outlives it.
        key = os.urandom(_KEY_BYTES)
        self._services = CellServices(
            home=SandboxRuntime(pool=pool, launcher=launcher, snapshot_key=key),
            typescript=TypeScriptTransforms(typescript),
            tasks=tasks,
            running=set(),
        )
        self._stack.callback(self._wake_cells)
        pool.warm()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # An exception of the caller's block is not ours to wrap in a group: it goes on as it is.
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
        owner: str = "",
    ) -> Cell:
        """A program that is ready to run.

        `functions` become global functions of the program; each call is a host request that
        `handler` answers. `shared` is data that the program reads where it runs, and the requests
        that come with it. `on_output` is called with each item of output as it comes; the results
        have them all as well. Cells of one `owner` (a session) share their turn among themselves.
        """
        if self._services is None:
            raise RuntimeUnavailableError("the sandbox is not open; use it in `async with`")
        names = tuple(functions)
        if not isinstance(code, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"code is a {type(code).__name__}; it has to be text")
        if isinstance(functions, str) or not all(isinstance(name, str) for name in names):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"functions is {functions!r}; it has to be a list of names")
        program = Program(
            code=code,
            language=language,
            limits=limits or Limits(),
            functions=names,
            shared=shared,
            handler=handler,
            on_output=on_output,
            owner=owner,
        )
        return Cell(program, self._services)

    async def check(self) -> SandboxReport:
        """Have a worker start, if none has, and report on it."""
        if self._services is None:
            raise RuntimeUnavailableError("the sandbox is not open; use it in `async with`")
        pool, launcher = self._services.home.pool, self._services.home.launcher
        problem, hardening = "", None
        engine = image = ""
        try:
            worker = await pool.acquire("")
            pool.release(worker)
            hardening = HardeningReport.from_json(worker.hardening)
            engine = await in_thread(engine_version)
            image = launcher.image.identity
        except (SandboxError, ValueError) as error:
            problem = str(error)
        return SandboxReport(
            engine=engine,
            image=image,
            module_origin=launcher.module_origin,
            workers=tuple(worker.pid for worker in pool.workers),
            hardening=hardening,
            problem=problem,
        )

    def _size(self) -> int:
        return self._options.workers or max(2, min(os.cpu_count() or 1, 8))

    def _launcher(self, kind: ImageKind) -> Launcher:
        launcher = Launcher(kind, self._options.cache_directory)
        self._stack.callback(launcher.close)
        return launcher

    def _pool(self, launcher: Launcher, tasks: TaskGroup, *, size: int) -> WorkerPool:
        pool = WorkerPool(launcher, size=size, tasks=tasks)
        self._stack.push_async_callback(self._close_pool, pool)
        return pool

    def _wake_cells(self) -> None:
        """Cells that wait without a worker would not notice by themselves that all is over."""
        if self._services is not None:
            self._services.home.pool.is_closed = True
            for cell in self._services.running:
                cell.wake_up()

    async def _close_pool(self, pool: WorkerPool) -> None:
        with anyio.CancelScope(shield=True), anyio.move_on_after(_STOP_SECONDS):
            await pool.aclose()
