"""What workers of one image are started with: compiled module, system-call filter, settings."""

import asyncio
import hashlib
import logging
import os
import platform
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import anyio

from nacre.errors import RuntimeUnavailableError
from nacre.sandbox.hardening import SeccompUnavailableError, compile_filter, filter_cache_key
from nacre.sandbox.image import Image, ImageKind, load_image
from nacre.sandbox.module_cache import ModuleCache
from nacre.sandbox.worker.wasm_runtime import WasmError, library_path
from nacre.sandbox.worker_process import WorkerProcess, python_command, spawn_worker

logger = logging.getLogger(__name__)

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
                python_command("nacre.sandbox.worker.compile_image", settings),
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
