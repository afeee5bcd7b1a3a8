"""The pool of workers: who runs where, who waits, and what is started, replaced or given up.

A worker holds one live cell at a time, so a hostile program shares its process with nobody. A cell
whose calls are slow keeps its worker only while nobody else needs one: under pressure it is asked
to move out (its VM becomes a snapshot), which costs a few milliseconds instead of somebody's turn.
A program that hogs its worker does not block the rest: the pool grows beyond its size, up to twice,
so that one worker is free for whoever comes next; and no owner can hold the last one.
"""

import asyncio
import hashlib
import logging
import os
import platform
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import anyio
from anyio.abc import TaskGroup

from nacre.config import LIMITS
from nacre.errors import ModuleNotLoadableError, RuntimeUnavailableError, SandboxError
from nacre.sandbox.hardening import SeccompUnavailableError, compile_filter, filter_cache_key
from nacre.sandbox.image import Image, ImageKind, load_image
from nacre.sandbox.module_cache import ModuleCache
from nacre.sandbox.worker.wasm_runtime import WasmError, library_path
from nacre.sandbox.worker_process import WorkerProcess, python_command, spawn_worker

logger = logging.getLogger(__name__)

# A call that answers within this time keeps its worker: moving out and in would cost as much.
_PARKED_GRACE_SECONDS: Final = 0.005
# A burst longer than this is a hog: the pool starts another worker for the others.
_HOG_SECONDS: Final = 0.05
_PRESSURE_POLL_SECONDS: Final = 0.005
# Hogs come in series: a worker that was started beside one is kept for the next.
_LINGER_SECONDS: Final = 5.0
# Before another try where a worker died at once and with nothing to do.
_PAUSE_SECONDS: Final = 0.5


class _Waiter:
    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.ready = anyio.Event()
        self.worker: WorkerProcess | None = None
        self.problem = ""


class _Lease:
    """A worker in use: by whom, since when, and how to ask for it back while its cell waits."""

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.since = time.monotonic()
        self.move_out: Callable[[], None] | None = None
        self.is_immovable = False

    def is_hog(self, now: float) -> bool:
        is_running = self.move_out is None and now - self.since > _HOG_SECONDS
        return self.is_immovable or is_running


class WorkerPool:
    """Workers of one image. Started by the first use or by `warm`; ended by `aclose`."""

    def __init__(self, launcher: "Launcher", *, size: int, tasks: TaskGroup) -> None:
        self.size = size
        self._launcher = launcher
        self._tasks = tasks
        self._most = max(2 * size, 4)
        self._workers: set[WorkerProcess] = set()
        self._idle: list[WorkerProcess] = []
        self._leases: dict[WorkerProcess, _Lease] = {}
        self._waiters: list[_Waiter] = []
        self._starting = 0
        self.is_closed = False
        self._is_balancing = False
        self._is_shrinking = False
        self._is_rebuilt = False
        self.problem = ""

    @property
    def workers(self) -> tuple[WorkerProcess, ...]:
        """The workers that are up."""
        return tuple(self._workers)

    def warm(self) -> None:
        """Start what is missing to the pool's size, without waiting for it."""
        for _ in range(self.size - len(self._workers) - self._starting):
            self._start_worker()

    async def acquire(self, owner: str) -> WorkerProcess:
        """A worker for one cell; waits until one is free. Raises RuntimeUnavailableError."""
        if self.is_closed:
            raise RuntimeUnavailableError("the sandbox is closed")
        while self._idle and not self._has_its_share(owner):
            worker = self._idle.pop()
            if not worker.is_dead:
                self._leases[worker] = _Lease(owner)
                if not self._idle:
                    self._watch_pressure()
                return worker
        waiter = _Waiter(owner)
        self._waiters.append(waiter)
        self._relieve()
        try:
            await waiter.ready.wait()
        except BaseException:
            self._forget(waiter)
            raise
        if waiter.worker is None:
            raise RuntimeUnavailableError(waiter.problem)
        return waiter.worker

    def release(self, worker: WorkerProcess) -> None:
        """Give a worker back that holds no cell."""
        self._leases.pop(worker, None)
        if worker.is_dead or self.is_closed:
            return
        if worker.has_unread:
            worker.kill()
            return
        waiter = self._next_waiter()
        if waiter is not None:
            self._leases[worker] = _Lease(waiter.owner)
            waiter.worker = worker
            waiter.ready.set()
        else:
            worker.is_quiet = True
            self._idle.append(worker)
            if len(self._workers) > self.size and not self._is_shrinking:
                self._is_shrinking = True
                self._tasks.start_soon(self._shrink)

    def discard(self, worker: WorkerProcess) -> None:
        """Kill a worker that is stuck or not to be trusted; another takes its place."""
        self._leases.pop(worker, None)
        worker.kill()
        # Its owner has room in its share again, and may have waited for that alone.
        if self._idle and self._waiters:
            self.release(self._idle.pop())

    def park(self, worker: WorkerProcess, move_out: Callable[[], None] | None) -> None:
        """Say that the cell in this worker only waits; `move_out` is called if others need it.

        A cell that cannot move out counts as a hog: the pool grows beside it.
        """
        lease = self._leases.get(worker)
        if lease is not None:
            lease.since = time.monotonic()
            lease.move_out = move_out
            lease.is_immovable = move_out is None
            if self._waiters:
                self._relieve()

    def unpark(self, worker: WorkerProcess) -> None:
        """Say that the cell in this worker goes on."""
        lease = self._leases.get(worker)
        if lease is not None:
            lease.since = time.monotonic()
            lease.move_out = None
            lease.is_immovable = False
            if not self._idle:
                self._watch_pressure()

    async def aclose(self) -> None:
        """End every worker; those who wait for one are told."""
        self.is_closed = True
        self._fail_waiters("the sandbox is closed")
        async with anyio.create_task_group() as tasks:
            for worker in tuple(self._workers):
                tasks.start_soon(worker.stop)
        self._workers.clear()
        self._idle.clear()

    # Starting and ending workers.

    def _start_worker(self, after_seconds: float = 0.0) -> None:
        self._starting += 1
        self._tasks.start_soon(self._run_worker, after_seconds)

    async def _run_worker(self, after_seconds: float) -> None:
        """The whole life of one worker."""
        worker = None
        try:
            await anyio.sleep(after_seconds)
            worker = await self._launcher.launch()
            worker.watch()
            await worker.ready()
            self._welcome(worker)
            await worker.death.wait()
        except ModuleNotLoadableError as error:
            await self._rebuild_once(str(error))
        except (SandboxError, OSError, RuntimeError) as error:
            # RuntimeError is how Python says that no thread can be started.
            self._note_failed_start(worker, str(error))
        finally:
            if worker is not None:
                with anyio.CancelScope(shield=True):
                    await worker.stop()
                self._bury(worker)

    def _welcome(self, worker: WorkerProcess) -> None:
        self._starting -= 1
        self.problem = ""
        self._workers.add(worker)
        self.release(worker)

    async def _rebuild_once(self, problem: str) -> None:
        if self._is_rebuilt:
            self._note_failed_start(None, problem)
            return
        self._is_rebuilt = True
        logger.warning("compiling the sandbox image again: %s", problem)
        try:
            await self._launcher.rebuild()
        except (SandboxError, OSError, RuntimeError) as error:
            self._note_failed_start(None, str(error))
            return
        self._starting -= 1
        self._start_worker()

    def _note_failed_start(self, worker: WorkerProcess | None, problem: str) -> None:
        if worker is not None and worker in self._workers:
            return
        self._starting -= 1
        self.problem = problem
        logger.error("%s", problem)
        if not self._workers and not self._starting:
            self._fail_waiters(problem)

    def _bury(self, worker: WorkerProcess) -> None:
        was_used = self._leases.pop(worker, None) is not None or worker not in self._idle
        with suppress(ValueError):
            self._idle.remove(worker)
        if worker in self._workers:
            self._workers.discard(worker)
            if not self.is_closed and len(self._workers) + self._starting < self.size:
                lived = time.monotonic() - worker.started
                self._start_worker(after_seconds=0.0 if was_used or lived > 1 else _PAUSE_SECONDS)

    async def _shrink(self) -> None:
        """Retire workers beyond the pool's size, once they have had nothing to do for a while."""
        try:
            while len(self._workers) > self.size and not self.is_closed:
                await anyio.sleep(_LINGER_SECONDS)
                if self._idle and len(self._workers) > self.size:
                    await self._idle.pop(0).stop()
        finally:
            self._is_shrinking = False

    # Those who wait.

    def _next_waiter(self) -> _Waiter | None:
        """The first of the owner who has the fewest workers, so that nobody crowds others out."""
        entitled = [waiter for waiter in self._waiters if not self._has_its_share(waiter.owner)]
        if not entitled:
            return None
        in_use = Counter(lease.owner for lease in self._leases.values())
        waiter = min(entitled, key=lambda waiting: in_use[waiting.owner])
        self._waiters.remove(waiter)
        return waiter

    def _has_its_share(self, owner: str) -> bool:
        """Whether this owner holds all workers that one owner may hold: all but one."""
        in_use = sum(lease.owner == owner for lease in self._leases.values())
        return in_use >= self._most - 1

    def _forget(self, waiter: _Waiter) -> None:
        with suppress(ValueError):
            self._waiters.remove(waiter)
        if waiter.worker is not None:
            self.release(waiter.worker)

    def _fail_waiters(self, problem: str) -> None:
        for waiter in self._waiters:
            waiter.problem = problem
            waiter.ready.set()
        self._waiters.clear()

    # Pressure.

    def _relieve(self) -> None:
        self.warm()
        self._watch_pressure()

    def _watch_pressure(self) -> None:
        if not self._is_balancing:
            self._is_balancing = True
            self._tasks.start_soon(self._balance)

    async def _balance(self) -> None:
        """While no worker is free: move waiting cells out, and start workers beside hogs."""
        try:
            while not self.is_closed and self._is_under_pressure():
                is_urgent = bool(self._waiters)
                await anyio.sleep(_PRESSURE_POLL_SECONDS if is_urgent else _HOG_SECONDS)
                self._make_room()
        finally:
            self._is_balancing = False

    def _is_under_pressure(self) -> bool:
        """Whether somebody waits, or the last free worker is taken by what may turn out a hog."""
        is_running = any(lease.move_out is None for lease in self._leases.values())
        return bool(self._waiters) or (is_running and not self._idle)

    def _make_room(self) -> None:
        now = time.monotonic()
        self._ask_one_to_move(now)
        hogs = sum(lease.is_hog(now) for lease in self._leases.values())
        # One free worker beside all hogs, for whoever comes next.
        wanted = hogs + 1 - len(self._workers) - self._starting
        free_room = self._most - len(self._workers) - self._starting
        for _ in range(min(wanted, free_room)):
            self._start_worker()

    def _ask_one_to_move(self, now: float) -> None:
        """Ask the cell that has waited longest; one of the waiter's owner if others are no help."""
        parked = [lease for lease in self._leases.values() if lease.move_out is not None]
        if self._waiters and self._idle:
            owners = {waiter.owner for waiter in self._waiters}
            parked = [lease for lease in parked if lease.owner in owners]
        if not self._waiters or not parked:
            return
        lease = min(parked, key=lambda lease: lease.since)
        if now - lease.since >= _PARKED_GRACE_SECONDS and lease.move_out is not None:
            move_out, lease.move_out = lease.move_out, None
            # Not a hog while it writes itself down.
            lease.since = now
            move_out()


# Compiling takes a second; a machine that needs this long will not run cells either.
_COMPILE_SECONDS: Final = 300


class Launcher:
    """Starts workers of one image; the costly part is done once, by the first start."""

    def __init__(self, kind: ImageKind, cache_directory: Path | None) -> None:
        self._kind: ImageKind = kind
        self.module_origin = ""
        self._cache_directory = cache_directory
        # Workers die with the thread that started them, so they all get one that lives as long.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="nacre-launcher")
        self._resources = ExitStack()
        self._settings: dict[str, Any] | None = None
        self._module_fd = -1

    @cached_property
    def image(self) -> Image:
        """The image; raises ImageError where the package is damaged."""
        return load_image(self._kind)

    def close(self) -> None:
        """Release what workers are started with, and end those that still run."""
        self._thread.shutdown(wait=False)
        self._settings = None
        self._resources.close()

    async def launch(self) -> WorkerProcess:
        """Start a worker; the first call may have to compile the image."""
        # Cut off in the middle it would lose track of a process; every step is bounded.
        spawning = self._thread.submit(self._spawn)
        with anyio.CancelScope(shield=True):
            await asyncio.wrap_future(spawning)
        process, connection = spawning.result()
        return WorkerProcess(process, connection)

    async def rebuild(self) -> None:
        """Compile the image again with the next start: what the cache has does not load here."""
        with anyio.CancelScope(shield=True):
            await asyncio.wrap_future(self._thread.submit(self._forget_module))

    def _forget_module(self) -> None:
        with ModuleCache(self._cache_directory) as cache:
            cache.evict(self._module_key(library_path()))
        self._settings = None
        self._resources.close()

    def _spawn(self) -> tuple[subprocess.Popen[bytes], socket.socket]:
        # Without a system-call filter it is looked for again: what kept it away may have passed.
        if self._settings is None or self._settings["seccompProblem"]:
            self._resources.close()
            self._settings = self._prepare()
        settings = {**self._settings, "parentPid": os.getpid()}
        return spawn_worker(settings, keep_fds=(self._module_fd,))

    def _prepare(self) -> dict[str, Any]:
        try:
            library = library_path()
        except WasmError as error:
            raise RuntimeUnavailableError(str(error)) from error
        cache = self._resources.enter_context(ModuleCache(self._cache_directory))
        module = cache.open(self._module_key(library), lambda path: self._compile(library, path))
        self._resources.callback(module.close)
        self.module_origin = module.origin
        self._module_fd = module.fd
        bpf, problem = _system_call_filter(cache)
        return {
            "library": str(library),
            "image": {**asdict(self.image), "path": str(self.image.path)},
            "module": module.fd,
            "maxGuestBytes": LIMITS["memory_limit_bytes"].most,
            "seccomp": bpf.hex(),
            "seccompProblem": problem,
        }

    def _module_key(self, library: Path) -> str:
        # Size and date stand for the library's content: reading its 25 MB would tell no more.
        info = library.stat()
        facts = (self.image.identity, library, info.st_size, info.st_mtime_ns, platform.machine())
        return hashlib.sha256(repr(facts).encode()).hexdigest()

    def _compile(self, library: Path, output: Path) -> None:
        settings = {
            "kind": self.image.kind,
            "assets": str(self.image.path.parent),
            "library": str(library),
            "output": str(output),
        }
        try:
            done = subprocess.run(
                python_command("compile_image", settings),
                env={},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_COMPILE_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise RuntimeUnavailableError(f"cannot compile the sandbox image: {error}") from error
        if done.returncode != 0:
            last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
            raise RuntimeUnavailableError(
                f"cannot compile the sandbox image into {output.parent}: {' '.join(last)}; that "
                "takes about 10 MB, and NACRE_CACHE_DIR names another place"
            )


def _system_call_filter(cache: ModuleCache) -> tuple[bytes, str]:
    """The filter for workers, or why there is none. Making one costs 20 ms, so it is cached too."""
    if sys.platform != "linux":
        return b"", f"not available on {sys.platform}"
    try:
        key = hashlib.sha256(filter_cache_key().encode()).hexdigest()
        with cache.open(key, _write_filter) as artefact:
            size = os.fstat(artefact.fd).st_size
            return os.pread(artefact.fd, size, 0), ""
    except SeccompUnavailableError as error:
        _check_descriptors()
        logger.warning("workers run without a system-call filter: %s", error)
        return b"", str(error)


def _check_descriptors() -> None:
    """Tell a machine that has no filters from one that has no descriptors left to make one."""
    try:
        os.close(os.dup(0))
    except OSError as error:
        raise RuntimeUnavailableError(f"cannot start a sandbox worker: {error}") from error


def _write_filter(path: Path) -> None:
    path.write_bytes(compile_filter())
