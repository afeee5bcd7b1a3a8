"""Resolves paths inside a workspace directory without leaving it.

A model names the path, and what it runs may swap folders for links at any moment. So no path is
checked first and used later: each part is opened in the folder that is already open, links are
followed by hand, and `..` goes back the way that was come.
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
"""Of a folder. All folders on the way to it are open at once, and a process may open so many."""
OPEN_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# A named pipe would keep whoever opens it waiting.
OPEN_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class FileProblem(Exception):
    """Something cannot be done with a path; the message is for the model, and names the path."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """A name in a folder that is open: nobody can move it elsewhere. `.` is the folder itself."""

    folder: int
    """A descriptor; closed when the place is left."""
    name: str
    shown: str
    """The path from the workspace, links followed."""

    def status(self) -> os.stat_result | None:
        """None if nothing is there; a link is not followed."""
        with suppress(FileNotFoundError):
            return os.stat(self.name, dir_fd=self.folder, follow_symlinks=False)
        return None

    def open_file(self) -> int:
        """A descriptor of the plain file; raises FileProblem for anything else."""
        with problems_of(self.shown):
            descriptor = os.open(self.name, OPEN_FILE, dir_fd=self.folder)
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISREG(mode):
            return descriptor
        os.close(descriptor)
        hint = "; list it" if stat.S_ISDIR(mode) else ""
        raise FileProblem(f"{self.shown} is {kind_of(mode)}, not a file{hint}")

    def open_folder(self) -> int:
        """A descriptor of the folder; raises FileProblem for anything else."""
        with problems_of(self.shown):
            return os.open(self.name, OPEN_FOLDER, dir_fd=self.folder)


@dataclass(frozen=True, kw_only=True, slots=True)
class FileVersion:
    """What tells a file from what it is after somebody wrote to it, or put another one there."""

    number: int
    size: int
    changed_ns: int

    @classmethod
    def of(cls, status: os.stat_result | None) -> FileVersion | None:
        if status is None:
            return None
        return cls(number=status.st_ino, size=status.st_size, changed_ns=status.st_mtime_ns)


class Workspace:
    """The root, and the way to what is in it. Blocks: to be used in a thread."""

    def __init__(self, root: Path) -> None:
        self._root = root

    @cached_property
    def root(self) -> str:
        """Links followed. Made where it is missing, when it is first needed."""
        with problems_of("the workspace"):
            os.makedirs(self._root, exist_ok=True)
        return os.path.realpath(self._root)

    @contextmanager
    def locate(self, path: str, *, is_made: bool = False) -> Generator[Place]:
        """Where a path leads; raises FileProblem if it leads out of the workspace, or nowhere.

        What it names need not be there, but its folder has to; `is_made` makes missing ones.
        """
        steps = _Steps(self.root, path)
        try:
            yield steps.walk(self._parts_of(path), is_made=is_made)
        finally:
            steps.close()

    def _parts_of(self, path: str) -> list[str]:
        if not _is_path(path):
            raise FileProblem(
                f"path is {path[:60]!r}; it has to be a path in the workspace, such as src/main.py"
            )
        if path == "~" or path.startswith("~/"):
            raise FileProblem(f"{path} is in a home folder; name a path in the workspace")
        if not os.path.isabs(path):
            return path.split("/")
        if path == self.root or path.startswith(f"{self.root.rstrip('/')}/"):
            return path[len(self.root) :].split("/")
        raise _outside(path)


class _Steps:
    """One walk from the root: the folders on the way, open, and their names."""

    def __init__(self, root: str, path: str) -> None:
        self._path = path
        self._names: list[str] = []
        self._links_left = _MAX_LINKS
        with problems_of("the workspace"):
            self._folders = [os.open(root, OPEN_FOLDER)]

    def walk(self, parts: list[str], *, is_made: bool) -> Place:
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
                self._enter(part, is_made=is_made)
            else:
                return self._place(part)
        return self._place(".")

    def close(self) -> None:
        while self._folders:
            os.close(self._folders.pop())

    def _place(self, name: str) -> Place:
        shown = "/".join(self._names if name == "." else [*self._names, name])
        return Place(folder=self._folders[-1], name=name, shown=shown_name(shown) or ".")

    def _go_back(self) -> None:
        if len(self._folders) == 1:
            raise _outside(self._path)
        os.close(self._folders.pop())
        self._names.pop()

    def _enter(self, name: str, *, is_made: bool) -> None:
        here = self._folders[-1]
        if len(self._folders) > MAX_DEPTH:
            raise FileProblem(f"{self._path[:60]}… goes through more than {MAX_DEPTH} folders")
        with problems_of(self._path):
            try:
                folder = os.open(name, OPEN_FOLDER, dir_fd=here)
            except FileNotFoundError:
                if not is_made:
                    raise
                # Somebody else may have made it meanwhile, which is as good.
                with suppress(FileExistsError):
                    os.mkdir(name, dir_fd=here)
                folder = os.open(name, OPEN_FOLDER, dir_fd=here)
        self._folders.append(folder)
        self._names.append(name)

    def _link_target(self, name: str) -> str | None:
        """Where a link leads; None for what is no link, or not there."""
        try:
            target = os.readlink(name, dir_fd=self._folders[-1])
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.ENOENT):
                return None
            with problems_of(self._path):
                raise
        self._links_left -= 1
        if self._links_left < 0:
            raise FileProblem(f"{self._path} leads through more than {_MAX_LINKS} links")
        if os.path.isabs(target):
            raise _outside(self._path)
        return target


def shown_name(name: str) -> str:
    """A name or path as text: what is no UTF-8 in it is told by its bytes, `\\xff`."""
    # Most are, and a folder may have a million.
    return name if name.isascii() else os.fsencode(name).decode(errors="backslashreplace")


def kind_of(mode: int) -> str:
    """What stands at a path, in words."""
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
def problems_of(path: str) -> Generator[None]:
    """What the system says about a path, in words that help."""
    try:
        yield
    except FileNotFoundError as error:
        raise FileProblem(f"{path} is not there") from error
    except NotADirectoryError as error:
        raise FileProblem(f"a part of {path} is not a folder") from error
    except PermissionError as error:
        raise FileProblem(f"{path} may not be used: permission denied") from error
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise FileProblem(f"{path} was changed into a link meanwhile") from error
        if error.errno == errno.ENXIO:
            raise FileProblem(f"{path} is a named pipe or a socket, not a file") from error
        raise FileProblem(f"{path} cannot be used: {error.strerror or error}") from error


def _is_path(path: str) -> bool:
    try:
        # Half a character would stand for a byte, and what is shown would not be what is opened.
        path.encode()
    except UnicodeEncodeError:
        return False
    return bool(path) and "\0" not in path and len(path) <= _MAX_PATH_CHARACTERS


def _meaningful(parts: list[str]) -> list[str]:
    return [part for part in parts if part not in ("", ".")]


def _outside(path: str) -> FileProblem:
    return FileProblem(
        f"{path} is outside of the workspace; name a path in it, such as src/main.py"
    )
