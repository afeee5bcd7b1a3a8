"""Resolves paths inside a workspace directory, and refuses those that lead outside of it.

The model chooses the path, and its commands may replace directories by links at any time. So a path
is not checked first and used later. Each part is opened relative to the directory that is already
open, links are followed manually, and `..` returns to the previous directory.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import deque
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path


_MAX_LINKS: Final = 40
_MAX_PATH_CHARACTERS: Final = 4_096
MAX_DEPTH: Final = 100
"""The maximum nesting of directories; all directories of a path are open at the same time."""
OPEN_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Non-blocking, because opening a named pipe would block.
OPEN_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class FileProblem(Exception):
    """A file operation failed; the message is for the model and contains the path."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ResolvedPath:
    """A name in an open directory, which cannot be moved; `.` is the directory itself."""

    folder: int
    """The descriptor of the directory; closed at the end of `Workspace.locate`."""
    name: str
    path: str
    """The path relative to the workspace, with links resolved."""

    def status(self) -> os.stat_result | None:
        """The status without following a link; None if there is nothing."""
        with suppress(FileNotFoundError):
            return os.stat(self.name, dir_fd=self.folder, follow_symlinks=False)
        return None

    def open_file(self) -> int:
        """Open the regular file; raises FileProblem."""
        with convert_os_errors(self.path):
            descriptor = os.open(self.name, OPEN_FILE, dir_fd=self.folder)
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISREG(mode):
            return descriptor
        os.close(descriptor)
        hint = "; list it" if stat.S_ISDIR(mode) else ""
        raise FileProblem(f"{self.path} is {describe_kind(mode)}, not a file{hint}")

    def open_folder(self) -> int:
        """Open the directory; raises FileProblem."""
        with convert_os_errors(self.path):
            return os.open(self.name, OPEN_FOLDER, dir_fd=self.folder)


@dataclass(frozen=True, kw_only=True, slots=True)
class FileVersion:
    """Identifies the state of a file, to detect that it was changed or replaced."""

    number: int
    size: int
    changed_ns: int

    @classmethod
    def of(cls, status: os.stat_result | None) -> FileVersion | None:
        if status is None:
            return None
        return cls(number=status.st_ino, size=status.st_size, changed_ns=status.st_mtime_ns)


class Workspace:
    """A workspace directory. Its methods block, so call them in a thread."""

    def __init__(self, root: Path) -> None:
        self._root = root

    @cached_property
    def root(self) -> str:
        """The real path of the directory; creates it if it is missing."""
        with convert_os_errors("the workspace"):
            os.makedirs(self._root, exist_ok=True)
        return os.path.realpath(self._root)

    @contextmanager
    def locate(self, path: str, *, create_parents: bool = False) -> Generator[ResolvedPath]:
        """Resolve a path; raises FileProblem if it leads outside of the workspace.

        The file need not exist, but its directory must, unless `create_parents` is set.
        """
        steps = _Steps(self.root, path)
        try:
            yield steps.walk(self._parts_of(path), create_parents=create_parents)
        finally:
            steps.close()

    def _parts_of(self, path: str) -> list[str]:
        if not _is_path(path):
            raise FileProblem(
                f"path is {path[:60]!r}; it must be a path in the workspace, such as src/main.py"
            )
        if path == "~" or path.startswith("~/"):
            raise FileProblem(f"{path} is in a home directory; use a path in the workspace")
        if not os.path.isabs(path):
            return path.split("/")
        if path == self.root or path.startswith(f"{self.root.rstrip('/')}/"):
            return path[len(self.root) :].split("/")
        raise _outside(path)


class _Steps:
    """Resolves one path from the root; holds the open directories on the way."""

    def __init__(self, root: str, path: str) -> None:
        self._path = path
        self._names: list[str] = []
        self._links_left = _MAX_LINKS
        with convert_os_errors("the workspace"):
            self._folders = [os.open(root, OPEN_FOLDER)]

    def walk(self, parts: list[str], *, create_parents: bool) -> ResolvedPath:
        ahead = deque(_meaningful(parts))
        while ahead:
            part = ahead.popleft()
            if part == "..":
                self._go_back()
                continue
            target = self._link_target(part)
            if target is not None:
                ahead.extendleft(reversed(_meaningful(target.split("/"))))
            elif ahead:
                self._enter(part, create_parents=create_parents)
            else:
                return self._place(part)
        return self._place(".")

    def close(self) -> None:
        while self._folders:
            os.close(self._folders.pop())

    def _place(self, name: str) -> ResolvedPath:
        path = "/".join(self._names if name == "." else [*self._names, name])
        return ResolvedPath(folder=self._folders[-1], name=name, path=display_name(path) or ".")

    def _go_back(self) -> None:
        if len(self._folders) == 1:
            raise _outside(self._path)
        os.close(self._folders.pop())
        self._names.pop()

    def _enter(self, name: str, *, create_parents: bool) -> None:
        here = self._folders[-1]
        if len(self._folders) > MAX_DEPTH:
            raise FileProblem(f"{self._path[:60]}… goes through more than {MAX_DEPTH} folders")
        with convert_os_errors(self._path):
            try:
                folder = os.open(name, OPEN_FOLDER, dir_fd=here)
            except FileNotFoundError:
                if not create_parents:
                    raise
                # Another process may have created it in the meantime.
                with suppress(FileExistsError):
                    os.mkdir(name, dir_fd=here)
                folder = os.open(name, OPEN_FOLDER, dir_fd=here)
        self._folders.append(folder)
        self._names.append(name)

    def _link_target(self, name: str) -> str | None:
        """The target of a link; None if it is not a link or does not exist."""
        try:
            target = os.readlink(name, dir_fd=self._folders[-1])
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.ENOENT):
                return None
            with convert_os_errors(self._path):
                raise
        self._links_left -= 1
        if self._links_left < 0:
            raise FileProblem(f"{self._path} leads through more than {_MAX_LINKS} links")
        if os.path.isabs(target):
            raise _outside(self._path)
        return target


def display_name(name: str) -> str:
    """A name or path as valid text; invalid UTF-8 becomes escapes such as `\\xff`."""
    # A fast path, because a directory may have a million names.
    return name if name.isascii() else os.fsencode(name).decode(errors="backslashreplace")


def describe_kind(mode: int) -> str:
    """The kind of a file, for messages."""
    if stat.S_ISREG(mode):
        return "a file"
    if stat.S_ISDIR(mode):
        return "a folder"
    if stat.S_ISLNK(mode):
        return "a link"
    if stat.S_ISFIFO(mode):
        return "a named pipe"
    if stat.S_ISSOCK(mode):
        return "a socket"
    return "a device"


@contextmanager
def convert_os_errors(path: str) -> Generator[None]:
    """Convert OSError in the block to FileProblem."""
    try:
        yield
    except FileNotFoundError as error:
        raise FileProblem(f"{path} does not exist") from error
    except NotADirectoryError as error:
        raise FileProblem(f"a part of {path} is not a folder") from error
    except PermissionError as error:
        raise FileProblem(f"{path}: permission denied") from error
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise FileProblem(f"{path} was replaced by a link in the meantime") from error
        if error.errno == errno.ENXIO:
            raise FileProblem(f"{path} is a named pipe or a socket, not a file") from error
        raise FileProblem(f"{path} cannot be used: {error.strerror or error}") from error


def _is_path(path: str) -> bool:
    try:
        # An unpaired surrogate stands for a byte, so messages would show another path.
        path.encode()
    except UnicodeEncodeError:
        return False
    return bool(path) and "\0" not in path and len(path) <= _MAX_PATH_CHARACTERS


def _meaningful(parts: list[str]) -> list[str]:
    return [part for part in parts if part not in ("", ".")]


def _outside(path: str) -> FileProblem:
    return FileProblem(
        f"{path} is outside of the workspace; use a path inside it, such as src/main.py"
    )
