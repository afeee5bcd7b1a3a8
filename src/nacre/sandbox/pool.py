"""A pool of workers, and the launcher that starts them on this machine.

A worker runs one cell at a time, so an untrusted program never shares its process. A cell that
waits for slow calls keeps its worker while no other cell needs one. If another cell does, the
waiting cell is suspended to a snapshot, which takes a few milliseconds.

A hog is a program that runs for long without waiting. It does not block other cells: the pool grows
beyond its size, up to twice, so that one worker stays free. No owner can hold the last worker.
"""

import asyncio
import hashlib
import logging
import os
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final

import anyio
from anyio.abc import TaskGroup

from nacre.config import LIMITS, Protection
from nacre.errors import ModuleNotLoadableError, RuntimeUnavailableError, SandboxError
from nacre.sandbox.executor import CellExecutor, Worker
from nacre.sandbox.hardening import (
    FilterNotCompiledError,
    HardeningReport,
    compile_filter,
    filter_cache_key,
)
from nacre.sandbox.image import MEMORY_ADVICE, Image, ImageKind, WasmError, library_path, load_image
from nacre.sandbox.module_cache import DISK_ERRORS, ModuleCache
from nacre.sandbox.worker_process import WorkerProcess, python_command, spawn_worker

logger = logging.getLogger(__name__)

# A cell keeps its worker if its call ends within this time: suspending would take as long.
_PARKED_GRACE_SECONDS: Final = 0.005
# A program with a longer burst is a hog: the pool starts another worker for other cells.
_HOG_SECONDS: Final = 0.05
_PRESSURE_POLL_SECONDS: Final = 0.005
# How long an extra worker stays idle before it is stopped. It may be needed for the next hog.
_EXTRA_WORKER_IDLE_SECONDS: Final = 5.0
# The delay before a restart if a worker died at once without any work, or did not start. It doubles
# with each failed start.
_RESTART_DELAY_SECONDS: Final = 0.5
_MAX_RESTART_DELAY_SECONDS: Final = 30.0
_LIBRARY_END_BYTES: Final = 1 << 16
# Compiling takes about a second; the image for TypeScript, four.
_COMPILE_SECONDS: Final = 300


# Python raises RuntimeError if it cannot start a thread.
_START_ERRORS: Final = (SandboxError, OSError, RuntimeError, MemoryError)


class _Waiter:
    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.ready = anyio.Event()
        self.worker: Worker | None = None
        self.problem = ""


class _Lease:
    """A worker in use: its owner, the start of the burst or wait, and how to suspend its cell."""

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.since = time.monotonic()
        self.request_suspend: Callable[[], None] | None = None
        self.cannot_suspend = False

    def is_hog(self, now: float) -> bool:
        is_running = self.request_suspend is None and now - self.since > _HOG_SECONDS
        return self.cannot_suspend or is_running


class WorkerPool:
    """The workers of one image. `warm` or the first use starts them, `aclose` stops them."""

    def __init__(self, executor: CellExecutor, *, size: int, tasks: TaskGroup) -> None:
        self.size = size
        self._executor = executor
        self._tasks = tasks
        self._workers: set[Worker] = set()
        self._idle: list[Worker] = []
        self._leases: dict[Worker, _Lease] = {}
        self._waiters: list[_Waiter] = []
        self._starting = 0
        # How many workers it has unless there are more hogs: one at first, then as many as were
        # needed at once, up to its size.
        self._wanted = 1
        self.is_closed = False
        self._is_balancing = False
        self._is_shrinking = False
        self._is_retrying = False
        self.problem = ""

    @property
    def _max_workers(self) -> int:
        return max(2 * self.size, 4)

    def resize(self, size: int) -> None:
        """Change the number of workers to keep running, and start those that are missing.

        Workers beyond it are stopped when they are idle.
        """
        self.size = self._wanted = size
        if self._workers or self._starting or self._waiters:
            self.warm()

    @property
    def workers(self) -> tuple[Worker, ...]:
        """The running workers."""
        return tuple(self._workers)

    def is_busy(self, worker: Worker) -> bool:
        """Whether a cell is in the worker."""
        return worker in self._leases

    def warm(self) -> None:
        """Start one worker, or as many as were needed or asked for so far; does not wait."""
        for _ in range(self._wanted - len(self._workers) - self._starting):
            self._start_worker()

    def prepare(self) -> None:
        """Do what makes the first start slow, and do not wait. It starts no worker if it can be
        done without one."""
        if not self._workers and not self._starting and not self._executor.prepare():
            self.warm()

    async def acquire(self, owner: str) -> Worker:
        """Wait for a free worker and return it. Raises RuntimeUnavailableError."""
        if self.is_closed:
            raise RuntimeUnavailableError("the sandbox is closed")
        while self._idle and not self._is_at_limit(owner):
            worker = self._take_idle()
            if not worker.is_dead:
                self._leases[worker] = _Lease(owner)
                if not self._idle:
                    self._watch_pressure()
                return worker
        waiter = _Waiter(owner)
        self._waiters.append(waiter)
        self._reduce_pressure()
        try:
            await waiter.ready.wait()
        except BaseException:
            self._remove_waiter(waiter)
            raise
        if waiter.worker is None:
            raise RuntimeUnavailableError(waiter.problem)
        return waiter.worker

    def _take_idle(self) -> Worker:
        """Remove and return an idle worker of the node with the fewest cells."""
        if self._idle[-1].node:
            busy = Counter(worker.node for worker in self._leases)
            worker = min(reversed(self._idle), key=lambda worker: busy[worker.node])
            self._idle.remove(worker)
            return worker
        return self._idle.pop()

    def release(self, worker: Worker) -> None:
        """Return a worker that holds no cell to the pool."""
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
            worker.must_be_silent = True
            self._idle.append(worker)
            if len(self._workers) > self.size and not self._is_shrinking:
                self._is_shrinking = True
                self._tasks.start_soon(self._shrink)

    def discard(self, worker: Worker) -> None:
        """Kill a worker that is stuck or compromised. The pool starts another one."""
        self._leases.pop(worker, None)
        worker.kill()
        # Its owner is below its limit again, so one of its waiters may get an idle worker.
        if self._idle and self._waiters:
            self.release(self._idle.pop())

    def park(self, worker: Worker, request_suspend: Callable[[], None] | None) -> None:
        """Mark that the cell in this worker waits.

        `request_suspend` is called if another cell needs the worker. A cell without it cannot be
        suspended and counts as a hog.
        """
        lease = self._leases.get(worker)
        if lease is not None:
            lease.since = time.monotonic()
            lease.request_suspend = request_suspend
            lease.cannot_suspend = request_suspend is None
            if self._waiters:
                self._reduce_pressure()

    def unpark(self, worker: Worker) -> None:
        """Mark that the cell in this worker runs again."""
        lease = self._leases.get(worker)
        if lease is not None:
            lease.since = time.monotonic()
            lease.request_suspend = None
            lease.cannot_suspend = False
            if not self._idle:
                self._watch_pressure()

    async def aclose(self) -> None:
        """Stop all workers. Callers that wait for one get an error."""
        self.is_closed = True
        self._fail_waiters("the sandbox is closed")
        async with anyio.create_task_group() as tasks:
            for worker in tuple(self._workers):
                tasks.start_soon(worker.stop)
        self._workers.clear()
        self._idle.clear()

    # Start and stop workers.

    def _start_worker(self, after_seconds: float = 0.0) -> None:
        self._starting += 1
        self._tasks.start_soon(self._run_worker, after_seconds)

    async def _run_worker(self, after_seconds: float) -> None:
        """Start a worker and watch it until it dies."""
        worker = None
        try:
            await anyio.sleep(after_seconds)
            worker = await self._executor.launch()
            self._add_worker(worker)
            await worker.death.wait()
        except _START_ERRORS as error:
            self._note_failed_start(worker, str(error) or type(error).__name__)
        finally:
            if worker is not None:
                with anyio.CancelScope(shield=True):
                    await worker.stop()
                self._remove_worker(worker)

    def _add_worker(self, worker: Worker) -> None:
        self._starting -= 1
        self.problem = ""
        self._workers.add(worker)
        self.release(worker)

    def _note_failed_start(self, worker: Worker | None, problem: str) -> None:
        if worker is not None and worker in self._workers:
            return
        self._starting -= 1
        if problem != self.problem:
            logger.error("%s", problem)
        self.problem = problem
        if not self._workers and not self._starting:
            self._fail_waiters(problem)
        if not self._is_retrying:
            self._is_retrying = True
            self._tasks.start_soon(self._retry_starts)

    async def _retry_starts(self) -> None:
        """Start missing workers again, with growing delays, until none is missing."""
        delay = _RESTART_DELAY_SECONDS
        try:
            while len(self._workers) < self._wanted and not self.is_closed:
                await anyio.sleep(delay)
                delay = min(2 * delay, _MAX_RESTART_DELAY_SECONDS)
                self.warm()
        finally:
            self._is_retrying = False

    def _remove_worker(self, worker: Worker) -> None:
        was_used = self._leases.pop(worker, None) is not None or worker not in self._idle
        with suppress(ValueError):
            self._idle.remove(worker)
        if worker in self._workers:
            self._workers.discard(worker)
            if not self.is_closed and len(self._workers) + self._starting < self._wanted:
                is_old = time.monotonic() - worker.started > 1
                self._start_worker(
                    after_seconds=0.0 if was_used or is_old else _RESTART_DELAY_SECONDS
                )

    async def _shrink(self) -> None:
        """Stop idle workers beyond the size of the pool, after a delay."""
        try:
            while len(self._workers) > self.size and not self.is_closed:
                await anyio.sleep(_EXTRA_WORKER_IDLE_SECONDS)
                if self._idle and len(self._workers) > self.size:
                    await self._idle.pop(0).stop()
        finally:
            self._is_shrinking = False

    # Waiters.

    def _next_waiter(self) -> _Waiter | None:
        """Remove and return the first waiter of the owner with the fewest workers."""
        eligible = [waiter for waiter in self._waiters if not self._is_at_limit(waiter.owner)]
        if not eligible:
            return None
        in_use = Counter(lease.owner for lease in self._leases.values())
        waiter = min(eligible, key=lambda waiting: in_use[waiting.owner])
        self._waiters.remove(waiter)
        return waiter

    def _is_at_limit(self, owner: str) -> bool:
        """Whether this owner holds as many workers as one owner may hold: all but one."""
        in_use = sum(lease.owner == owner for lease in self._leases.values())
        return in_use >= self._max_workers - 1

    def _remove_waiter(self, waiter: _Waiter) -> None:
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

    def _reduce_pressure(self) -> None:
        needed = len(self._leases) + len(self._waiters)
        self._wanted = max(self._wanted, min(needed, self.size))
        self.warm()
        self._watch_pressure()

    def _watch_pressure(self) -> None:
        if not self._is_balancing:
            self._is_balancing = True
            self._tasks.start_soon(self._balance)

    async def _balance(self) -> None:
        """While no worker is free, suspend waiting cells and start workers to replace hogs."""
        try:
            while not self.is_closed and self._is_under_pressure():
                is_urgent = bool(self._waiters)
                await anyio.sleep(_PRESSURE_POLL_SECONDS if is_urgent else _HOG_SECONDS)
                self._free_workers()
        finally:
            self._is_balancing = False

    def _is_under_pressure(self) -> bool:
        """Whether a caller waits, or no worker is idle while a cell runs that may be a hog."""
        is_running = any(lease.request_suspend is None for lease in self._leases.values())
        return bool(self._waiters) or (is_running and not self._idle)

    def _free_workers(self) -> None:
        now = time.monotonic()
        self._suspend_one_cell(now)
        hogs = sum(lease.is_hog(now) for lease in self._leases.values())
        # One worker more than there are hogs, for the next cell.
        missing = hogs + 1 - len(self._workers) - self._starting
        allowed = self._max_workers - len(self._workers) - self._starting
        for _ in range(min(missing, allowed)):
            self._start_worker()

    def _suspend_one_cell(self, now: float) -> None:
        """Request the cell that has waited longest to suspend."""
        parked = [lease for lease in self._leases.values() if lease.request_suspend is not None]
        if self._waiters and self._idle:
            # The waiters' owners are at their limit, so only one of their own cells helps.
            owners = {waiter.owner for waiter in self._waiters}
            parked = [lease for lease in parked if lease.owner in owners]
        if not self._waiters or not parked:
            return
        lease = min(parked, key=lambda lease: lease.since)
        if now - lease.since >= _PARKED_GRACE_SECONDS and lease.request_suspend is not None:
            request_suspend, lease.request_suspend = lease.request_suspend, None
            # The cell is not a hog while it is being suspended.
            lease.since = now
            request_suspend()


class Launcher:
    """Starts workers of one image on this machine: the local `CellExecutor`.

    The first start compiles the image and the call filter.
    """

    def __init__(
        self,
        kind: ImageKind,
        cache_directory: Path | None,
        *,
        required: tuple[Protection, ...] | None = None,
        image: Image | None = None,
        monotonic_offset_ns: int | None = None,
    ) -> None:
        """`image` is an older one, instead of the one of this package."""
        self._kind: ImageKind = kind
        self._image = image
        self.required = required
        """The protections without which no worker is used."""
        self.module_origin = ""
        self.image_identity = ""
        """The hash of the image; empty before the first start, which reads it."""
        self.hardening: HardeningReport | None = None
        """The report of the last worker, also of one that is refused for it."""
        self._cache_directory = cache_directory
        self._is_rebuilt = False
        # Workers die with the thread that started them, so all are started from one thread.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="nacre-launcher")
        self._resources = ExitStack()
        self._settings: dict[str, Any] | None = None
        self._seccomp_bpf = b""
        # Programs see a monotonic clock that starts at the time of day, and the same one in every
        # worker, because a timer can move to another worker in a snapshot.
        if monotonic_offset_ns is None:
            monotonic_offset_ns = time.time_ns() - time.monotonic_ns()
        self._monotonic_offset_ns = monotonic_offset_ns
        self._module_fd = -1
        self._ahead: Future[tuple[subprocess.Popen[bytes], socket.socket]] | None = None
        self._preparing: Future[dict[str, Any]] | None = None

    @property
    def image(self) -> Image:
        """The image. Raises ImageError if the package is damaged."""
        if self._image is None:
            self._image = load_image(self._kind)
        return self._image

    def start_ahead(self) -> None:
        """Begin to start a process now, without an event loop, for the first `launch`."""
        self._ahead = self._thread.submit(self._spawn)

    def prepare(self) -> bool:
        # A failure is reported by the first start, which tries again.
        self._preparing = self._preparing or self._thread.submit(self._ensure_prepared)
        return True

    def close(self) -> None:
        """Close the compiled module and end the thread, with the workers that still run. Can be
        called twice."""
        if self._ahead is None and (self._preparing is None or self._preparing.done()):
            self._release()
        else:
            # The thread may still start the process, or compile the image.
            if self._ahead is not None:
                self._thread.submit(_end_unused, self._ahead)
            self._thread.submit(self._release)
            self._ahead = self._preparing = None
        self._thread.shutdown(wait=False)

    def _release(self) -> None:
        self._settings = None
        self._resources.close()

    async def launch(self) -> WorkerProcess:
        """Start a worker, and wait until it has the required protections and is ready.

        The first call may have to compile the image. A compiled module that does not load is
        compiled again, once.
        """
        try:
            return await self._launch()
        except ModuleNotLoadableError as error:
            if self._is_rebuilt:
                raise
            self._is_rebuilt = True
            logger.warning("compiling the sandbox image again: %s", error)
            await self.rebuild()
        return await self._launch()

    async def start_process(self) -> WorkerProcess:
        """Start a process, without waiting until it is ready."""
        # Shielded, because a cancellation could lose a started process. Every step has a limit.
        spawning, self._ahead = self._ahead or self._thread.submit(self._spawn), None
        with anyio.CancelScope(shield=True):
            await asyncio.wrap_future(spawning)
        process, connection = spawning.result()
        return WorkerProcess(process, connection)

    async def _launch(self) -> WorkerProcess:
        worker = await self.start_process()
        try:
            worker.watch()
            await worker.ready()
            self._check_hardening(worker)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await worker.stop()
            raise
        return worker

    def _check_hardening(self, worker: WorkerProcess) -> None:
        """Raise RuntimeUnavailableError if the worker lacks a required protection."""
        self.hardening = worker.hardening
        unmet = worker.hardening.unmet(self.required)
        if unmet:
            lacking = ", ".join(f"{measure.name} ({measure.detail})" for measure in unmet)
            raise RuntimeUnavailableError(
                f"a sandbox worker lacks required protections: {lacking}; to run programs "
                "without them, set `sandbox.require` to a list that does not name them"
            )

    async def rebuild(self) -> None:
        """Compile the image again at the next start, because the cached module does not load."""
        with anyio.CancelScope(shield=True):
            await asyncio.wrap_future(self._thread.submit(self._evict_module))

    def _evict_module(self) -> None:
        with ModuleCache(self._cache_directory) as cache:
            cache.evict(self._module_key(library_path()))
        self._settings = None
        self._resources.close()

    def _spawn(self) -> tuple[subprocess.Popen[bytes], socket.socket]:
        settings = {**self._ensure_prepared(), "parentPid": os.getpid()}
        return spawn_worker(settings, seccomp_bpf=self._seccomp_bpf, keep_fds=(self._module_fd,))

    def _ensure_prepared(self) -> dict[str, Any]:
        # If the system-call filter could not be compiled, try it again.
        if self._settings is None or self._settings["seccompProblem"]:
            self._resources.close()
            self._settings = self._prepare()
        return self._settings

    def _prepare(self) -> dict[str, Any]:
        try:
            library = library_path()
        except WasmError as error:
            raise RuntimeUnavailableError(str(error)) from error
        cache = self._resources.enter_context(ModuleCache(self._cache_directory))
        module = cache.open(self._module_key(library), lambda path: self._compile(library, path))
        self._resources.callback(module.close)
        self.module_origin = module.origin
        self.image_identity = self.image.identity
        self._module_fd = module.fd
        self._seccomp_bpf, problem = _system_call_filter(cache)
        return {
            "library": str(library),
            "image": self.image._asdict(),
            "module": module.fd,
            "maxGuestBytes": LIMITS["memory_limit_bytes"].most,
            "monotonicOffsetNs": self._monotonic_offset_ns,
            "seccompProblem": problem,
        }

    def _module_key(self, library: Path) -> str:
        # By content, so that all environments of the user share one compiled module.
        facts = (self.image.identity, _library_identity(library), os.uname().machine)
        return hashlib.sha256(repr(facts).encode()).hexdigest()

    def _compile(self, library: Path, output: Path) -> None:
        logger.info(
            "compiling the %s image of the sandbox; this takes some seconds, once per machine",
            self.image.kind,
        )
        settings = {
            "image": self.image._asdict(),
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
            raise RuntimeUnavailableError(_explain_compilation(done, output.parent))


def _end_unused(spawning: Future[tuple[subprocess.Popen[bytes], socket.socket]]) -> None:
    """End a process that no worker has got."""
    if spawning.cancelled() or spawning.exception() is not None:
        return
    process, connection = spawning.result()
    process.kill()
    process.wait()
    connection.close()


def _library_identity(library: Path) -> str:
    """Return a digest that differs between builds of the library."""
    # Not of all of its 30 MB, which takes 50 ms. The headers at its ends contain the id that the
    # linker has computed of the whole.
    with library.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _LIBRARY_END_BYTES))
        end = file.read()
        file.seek(0)
        return hashlib.sha256(file.read(_LIBRARY_END_BYTES) + end + str(size).encode()).hexdigest()


def _explain_compilation(done: subprocess.CompletedProcess[bytes], folder: Path) -> str:
    """Describe why a compilation failed, with what the user can do."""
    lines = done.stderr.decode(errors="replace").strip().splitlines() or ["no message"]
    if any(f"[Errno {number}]" in lines[-1] for number in DISK_ERRORS):
        return (
            f"cannot compile the sandbox image into {folder}: {lines[-1]}; it needs about 10 MB, "
            "and NACRE_CACHE_DIR can name another directory"
        )
    # The last line of a traceback has the error; a Rust panic has it in the first line.
    problem = lines[-1] if lines[0].startswith("Traceback") else lines[0]
    return (
        f"cannot compile the sandbox image: {problem} (exit status {done.returncode}); "
        f"{MEMORY_ADVICE}"
    )


def _system_call_filter(cache: ModuleCache) -> tuple[bytes, str]:
    """Return the filter for workers, or why there is none."""
    if sys.platform != "linux":
        return b"", f"not available on {sys.platform}"
    try:
        # Compiling it takes 20 ms, so it is cached like the module.
        key = hashlib.sha256(filter_cache_key().encode()).hexdigest()
        with cache.open(key, _write_filter) as artefact:
            size = os.fstat(artefact.fd).st_size
            return os.pread(artefact.fd, size, 0), ""
    except FilterNotCompiledError as error:
        logger.warning("there is no system-call filter for workers: %s", error)
        return b"", str(error)


def _write_filter(path: Path) -> None:
    path.write_bytes(compile_filter())
