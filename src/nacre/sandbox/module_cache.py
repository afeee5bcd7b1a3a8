"""A cache of compiled modules on disk, private to one user.

Loading an artefact runs it as native code, so it is checked at every use. Each `<key>.cwasm` has a
sidecar `<key>.json` with its size and SHA-256, which is written after it. Both must be regular
files that belong to this user and that nobody else can write, in a directory with the same
property. An artefact that fails a check is built again.

The digest is computed through the descriptor that the caller gets, never by opening the path again.
It detects damage and incomplete writes. The ownership checks protect against forgery.

Locks only avoid duplicate work. Without them, two builders may publish files that do not match. The
next use detects that and builds the artefact again.
"""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import socket
import stat
import sys
import threading
import time
import weakref
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from nacre.config import NotPrivateError, check_private, private_cache_directory
from nacre.errors import RuntimeUnavailableError
from nacre.lazy_dataclasses import dataclass
from nacre.lazy_exports import lazy_pattern

if sys.platform != "win32":
    import fcntl

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from types import TracebackType
    from typing import Self

logger = logging.getLogger(__name__)

_FORMAT_VERSION = 1
# A real module has 3 MB. The limit avoids hashing a wrong file for minutes.
_MAX_ARTEFACT_BYTES = 256 * 1024 * 1024
_MAX_SIDECAR_BYTES = 4096
# Much longer than a build takes on a slow machine.
_LOCK_WAIT_SECONDS = 60.0
_LOCK_POLL_SECONDS = 0.02
_MAX_WORKSPACE_SECONDS = 60 * 60
_MAX_UNUSED_SECONDS = 30 * 24 * 60 * 60

_KEY = lazy_pattern(r"[0-9a-f]{1,128}")
_ARTEFACT_NAME = lazy_pattern(r"[0-9a-f]{1,128}\.cwasm")
# The id of the building process, and the pid namespace of this id.
_WORKSPACE_NAME = lazy_pattern(r"\.build-([0-9]{1,10})-([0-9a-f]{16})-\w+")
# A temporary directory of modules, with the same ids. Earlier versions did not add them.
_FALLBACK_PREFIX = "nacre-modules-"
_FALLBACK_NAME = lazy_pattern(_FALLBACK_PREFIX + r"(?:([0-9]{1,10})-([0-9a-f]{16})-)?\w+")
_LOCK_NAME = ".lock"

# Errors for which another directory, or more space in this one, helps.
DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.EACCES)
_NOT_WRITABLE = (errno.EACCES, errno.EPERM, errno.EROFS)
# Do not follow a symbolic link, and do not wait for the writer of a pipe.
_SAFE_FLAGS = (
    getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
)


class _NotWritableError(Exception):
    """This process cannot write to the directory."""


class CachedModule:
    """A checked artefact. It owns the open descriptor through which it was checked.

    Load it through `fd` (on Linux `/proc/self/fd/N`), because `path` may name another file later.
    """

    def __init__(self, *, fd: int, path: Path, origin: Literal["cache", "built"]) -> None:
        self.path = path
        self.origin: Literal["cache", "built"] = origin
        self._fd = fd
        self._closer = weakref.finalize(self, os.close, fd)

    @property
    def fd(self) -> int:
        """Raises ValueError after `close`, when the number may refer to another file."""
        if not self._closer.alive:
            raise ValueError(f"the compiled module {self.path} is closed")
        return self._fd

    def close(self) -> None:
        self._closer()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class ModuleCache:
    """The compiled modules of one user in one directory. It can be shared between threads.

    If the directory cannot be used safely, a private temporary directory is used until `close`, and
    a warning is logged. Open modules stay valid after `close`.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self._requested = directory and directory.absolute()
        self._guard = threading.Lock()
        self._closed = False
        self._fallback: Path | None = None
        self._remove_fallback: Callable[[], object] | None = None

    def open(self, key: str, build: Callable[[Path], None]) -> CachedModule:
        """Return the artefact of `key`. If it is missing, `build` writes it to the given path.

        Blocks for up to a minute while another process builds. Exceptions of `build` propagate,
        except OSError, which becomes RuntimeUnavailableError, as does a full disk.
        """
        if not _KEY.fullmatch(key):
            raise ValueError(f"a module key is 1 to 128 lower-case hex digits, not {key!r}")
        _remove_abandoned_fallbacks()
        try:
            return _open_or_build(self._directory(), key, build)
        except _NotWritableError as refusal:
            reason = str(refusal)
        try:
            return _open_or_build(self._fall_back(reason), key, build)
        except _NotWritableError as refusal:
            raise RuntimeUnavailableError(f"{reason}; and {refusal}") from refusal

    def evict(self, key: str) -> None:
        """Remove the artefact of `key`. For valid bytes that do not load on this machine."""
        directory = self._directory()
        _remove(directory / f"{key}.json")
        _remove(directory / f"{key}.cwasm")

    def close(self) -> None:
        with self._guard:
            self._closed = True
            if self._remove_fallback is not None:
                self._remove_fallback()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _directory(self) -> Path:
        if self._closed:
            raise ValueError("the module cache is closed")
        if self._fallback is not None:
            return self._fall_back(f"{self._fallback} was removed")
        try:
            return private_cache_directory(self._requested)
        except (OSError, RuntimeError, NotPrivateError) as error:
            return self._fall_back(str(error))

    def _fall_back(self, reason: str) -> Path:
        with self._guard:
            if self._closed:
                raise ValueError("the module cache is closed")
            # Temporary files may have been cleaned up in the meantime.
            if self._fallback is not None and self._fallback.is_dir():
                return self._fallback
            # Imported when they are needed, as below: most starts only read the cache.
            import tempfile

            try:
                prefix = f"{_FALLBACK_PREFIX}{os.getpid()}-{_pid_space()}-"
                fallback = Path(tempfile.mkdtemp(prefix=prefix)).resolve()
            except OSError as error:
                raise RuntimeUnavailableError(
                    f"no private directory for compiled modules: {reason}; and a temporary one"
                    f" could not be created: {error}. Set NACRE_CACHE_DIR to a directory you own"
                ) from error
            logger.warning(
                "compiled modules are stored in %s for this process only: %s", fallback, reason
            )
            self._fallback = fallback
            self._remove_fallback = weakref.finalize(self, _remove_own, fallback, os.getpid())
            return fallback


@dataclass(frozen=True, kw_only=True)
class _Record:
    """The content of a sidecar."""

    key: str
    size: int
    sha256: str

    def encode(self) -> bytes:
        fields = {
            "formatVersion": _FORMAT_VERSION,
            "key": self.key,
            "size": self.size,
            "sha256": self.sha256,
        }
        return json.dumps(fields).encode() + b"\n"


def _open_or_build(directory: Path, key: str, build: Callable[[Path], None]) -> CachedModule:
    path = directory / f"{key}.cwasm"
    # Without the lock, a mismatch can be a write in progress, so it is not a warning yet.
    fd = _open_published(path, key, log_level=logging.DEBUG)
    if fd is not None:
        _remove_stale_files(directory, used=path)
        return CachedModule(fd=fd, path=path, origin="cache")
    with _build_lock(directory):
        fd = _open_published(path, key, log_level=logging.WARNING)
        if fd is not None:
            return CachedModule(fd=fd, path=path, origin="cache")
        _remove_stale_files(directory, used=path)
        return CachedModule(fd=_build(path, key, build), path=path, origin="built")


def _open_published(path: Path, key: str, *, log_level: int) -> int | None:
    """Return a descriptor of the published artefact, or None if it is missing or not trusted."""
    try:
        with ExitStack() as undo:
            fd = _open_file(path)
            undo.callback(os.close, fd)
            if _read_sidecar(path) != _measure(fd, path, key).encode():
                raise NotPrivateError(f"{path} is not the file that its sidecar describes")
            # This fails on a read-only file system, where nothing is removed either.
            with suppress(OSError):
                os.utime(fd if os.utime in os.supports_fd else path)
            undo.pop_all()
            return fd
    except FileNotFoundError:
        return None
    except (OSError, NotPrivateError) as error:
        logger.log(log_level, "a cached compiled module is not used: %s", error)
        return None


def _open_file(path: Path, *, make_private: bool = False) -> int:
    """Return a descriptor of a regular file that only this user can write."""
    with ExitStack() as undo:
        fd = os.open(path, os.O_RDONLY | _SAFE_FLAGS)
        undo.callback(os.close, fd)
        info = os.fstat(fd)
        if not stat.S_ISREG(info.st_mode):
            raise NotPrivateError(f"{path} is not a regular file")
        if info.st_nlink > 1:
            raise NotPrivateError(f"{path} is a hard link to a file that has other names")
        if make_private and sys.platform != "win32":
            os.fchmod(fd, 0o600)
            info = os.fstat(fd)
        check_private(path, info)
        undo.pop_all()
        return fd


def _read_sidecar(artefact: Path) -> bytes:
    fd = _open_file(artefact.with_suffix(".json"))
    try:
        return os.read(fd, _MAX_SIDECAR_BYTES)
    finally:
        os.close(fd)


def _measure(fd: int, path: Path, key: str) -> _Record:
    """Return the record of an open artefact. The descriptor is at the start afterwards."""
    size = os.fstat(fd).st_size
    if not 0 < size <= _MAX_ARTEFACT_BYTES:
        raise NotPrivateError(f"{path} has {size} bytes, which is not the size of a module")
    with os.fdopen(fd, "rb", buffering=0, closefd=False) as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        file.seek(0)
    return _Record(key=key, size=size, sha256=digest)


@contextmanager
def _build_lock(directory: Path) -> Generator[None, None, None]:
    """Hold the lock of the directory. Continue without it if it is not available."""
    with ExitStack() as stack:
        # Read-only directories and some network file systems have no locks.
        with suppress(OSError):
            fd = os.open(directory / _LOCK_NAME, os.O_RDWR | os.O_CREAT | _SAFE_FLAGS, 0o600)
            stack.callback(os.close, fd)
            _wait_for_lock(fd, directory)
        yield


def _wait_for_lock(fd: int, directory: Path) -> None:
    if sys.platform == "win32":
        return
    deadline = time.monotonic() + _LOCK_WAIT_SECONDS
    while time.monotonic() < deadline:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            time.sleep(_LOCK_POLL_SECONDS)
    logger.warning(
        "another process has held %s for %.0f s; compiling without waiting for it",
        directory / _LOCK_NAME,
        _LOCK_WAIT_SECONDS,
    )


def _build(path: Path, key: str, build: Callable[[Path], None]) -> int:
    """Build and publish the artefact, and return a descriptor of it."""
    import shutil

    try:
        workspace = _make_workspace(path.parent)
    except OSError as error:
        kind = _NotWritableError if error.errno in _NOT_WRITABLE else RuntimeUnavailableError
        raise kind(f"no compiled module can be written to {path.parent}: {error}") from error
    try:
        artefact = workspace / path.name
        build(artefact)
        return _publish(artefact, path, key)
    except (OSError, NotPrivateError) as error:
        is_disk = isinstance(error, NotPrivateError) or error.errno in DISK_ERRORS
        advice = "Free some space there, or set NACRE_CACHE_DIR to another directory"
        raise RuntimeUnavailableError(
            f"the compiled module could not be written to {path}: {error}."
            + (f" {advice}" if is_disk else "")
        ) from error
    finally:
        shutil.rmtree(workspace, ignore_errors=True)


def _make_workspace(directory: Path) -> Path:
    import tempfile

    prefix = f".build-{os.getpid()}-{_pid_space()}-"
    return Path(tempfile.mkdtemp(prefix=prefix, dir=directory))


def _publish(artefact: Path, path: Path, key: str) -> int:
    """Move an artefact and its sidecar into place. On an error, remove both."""
    built_sidecar, sidecar = artefact.with_suffix(".json"), path.with_suffix(".json")
    with ExitStack() as undo:
        descriptor = undo.enter_context(ExitStack())
        fd = _open_file(artefact, make_private=True)
        descriptor.callback(os.close, fd)
        record = _measure(fd, artefact, key)
        if sys.platform == "win32":
            descriptor.close()  # Windows cannot rename an open file
        else:
            os.fsync(fd)
        # Written before the moves, so that a full disk is detected before anything changes.
        _write_synced(built_sidecar, record.encode())
        undo.callback(_remove, path)
        undo.callback(_remove, sidecar)
        _move(artefact, path)
        _move(built_sidecar, sidecar)
        if sys.platform == "win32":
            fd = _open_file(path)
            descriptor.callback(os.close, fd)
            if _measure(fd, path, key) != record:
                raise NotPrivateError(f"{path} was changed while it was published")
        undo.pop_all()
        return fd


def _write_synced(path: Path, content: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFE_FLAGS, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(fd)


def _move(source: Path, target: Path) -> None:
    try:
        os.replace(source, target)
    except IsADirectoryError:
        import shutil

        shutil.rmtree(target)
        os.replace(source, target)


def _remove_stale_files(directory: Path, *, used: Path) -> None:
    """Remove the files of killed builders, and artefacts that were not used for a month.

    Open artefacts stay usable; a process that was about to open one builds it again.
    """
    with suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            if entry.name != used.name:
                with suppress(OSError):
                    _remove_if_stale(entry)


def _remove_abandoned_fallbacks() -> None:
    """Remove the temporary directories of this user that killed processes left behind."""
    if sys.platform == "win32":
        return
    with suppress(OSError), os.scandir(_temporary_directory()) as entries:
        for entry in entries:
            name = _FALLBACK_NAME.fullmatch(entry.name)
            if name is not None and entry.is_dir(follow_symlinks=False):
                info = entry.stat(follow_symlinks=False)
                is_unused = time.time() - info.st_mtime > _MAX_UNUSED_SECONDS
                is_abandoned = _is_dead(name[1], pid_space=name[2]) if name[1] else is_unused
                if is_abandoned and info.st_uid == os.getuid():
                    import shutil

                    shutil.rmtree(entry.path, ignore_errors=True)


def _temporary_directory() -> str:
    """The directory of `tempfile`, whose import takes as long as everything else here."""
    if (tempfile := sys.modules.get("tempfile")) is not None:
        return tempfile.gettempdir()
    named = (os.environ.get(name) for name in ("TMPDIR", "TEMP", "TMP"))
    return next((path for path in named if path and os.path.isdir(path)), "/tmp")


def _remove_if_stale(entry: os.DirEntry[str]) -> None:
    path = Path(entry.path)
    age_seconds = time.time() - entry.stat(follow_symlinks=False).st_mtime
    if workspace := _WORKSPACE_NAME.fullmatch(entry.name):
        if age_seconds > _MAX_WORKSPACE_SECONDS or _is_dead(workspace[1], pid_space=workspace[2]):
            import shutil

            shutil.rmtree(path, ignore_errors=True)
    elif age_seconds > _MAX_UNUSED_SECONDS and _ARTEFACT_NAME.fullmatch(entry.name):
        # The sidecar first, because a sidecar without its artefact would never be removed.
        _remove(path.with_suffix(".json"))
        _remove(path)


def _is_dead(pid: str, *, pid_space: str) -> bool:
    """Whether the process has ended. Unknown, and so False, for one in another container."""
    # On Windows, `os.kill` with 0 would send a signal.
    if sys.platform == "win32" or pid_space != _pid_space():
        return False
    try:
        os.kill(int(pid), 0)
    except (ProcessLookupError, OverflowError):
        return True
    except OSError:
        return False
    return False


def _pid_space() -> str:
    """Return an id of the boot and pid namespace, within which process ids can be compared."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
        space = boot + os.readlink("/proc/self/ns/pid")
    except OSError:
        space = socket.gethostname()
    return hashlib.sha256(space.encode()).hexdigest()[:16]


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink()


def _remove_own(directory: Path, pid: int) -> None:
    # A forked child inherits the finalizer, but must not remove the directory.
    if os.getpid() == pid:
        import shutil

        shutil.rmtree(directory, ignore_errors=True)
