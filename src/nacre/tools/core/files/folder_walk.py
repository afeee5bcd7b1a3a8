"""Every file below a folder, in order: no link is followed, and no tree is too deep or too wide."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from nacre.tools.core.workspace import MAX_DEPTH, OPEN_FOLDER, shown_name

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

# What people did not write.
_SKIPPED_FOLDERS: Final = frozenset((".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv"))


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundFile:
    """A name that is no folder's; what it is has to be looked at when it is opened."""

    path: str
    """From the workspace, as it may be shown."""
    name: str
    folder: int
    """A descriptor, open until the next file is asked for."""


@dataclass(kw_only=True, slots=True)
class FolderWalk:
    """One way through a tree, by folders: first the files of one, then the folders in it."""

    prefix: str
    """What stands before the paths."""
    at_each_folder: Callable[[], None]
    """May end the walk by raising: there may be folders without end, and no file in them."""
    unread_folders: int = 0
    """Folders that could not be opened, or are too deep."""
    _open: list[int] = field(default_factory=list[int])

    def files(self, top: int) -> Generator[FoundFile]:
        """All files below the folder, whose descriptor is closed at the end."""
        self._open = [top]
        ahead = [self._list_folder(top, self.prefix)]
        try:
            yield from ahead[-1].files
            while ahead:
                here = ahead[-1]
                name = next(here.folders, None)
                if name is None:
                    ahead.pop()
                    os.close(self._open.pop())
                    continue
                entered = self._enter(here, name)
                if entered is not None:
                    ahead.append(entered)
                    yield from entered.files
        finally:
            while self._open:
                os.close(self._open.pop())

    def _enter(self, here: _FolderContent, name: str) -> _FolderContent | None:
        self.at_each_folder()
        if len(self._open) > MAX_DEPTH:
            self.unread_folders += 1
            return None
        try:
            # Not followed, should it be a link by now; nor waited for, should it be a pipe.
            folder = os.open(name, OPEN_FOLDER, dir_fd=self._open[-1])
        except OSError:
            self.unread_folders += 1
            return None
        self._open.append(folder)
        return self._list_folder(folder, f"{here.prefix}{name}/")

    def _list_folder(self, folder: int, prefix: str) -> _FolderContent:
        files: list[str] = []
        folders: list[str] = []
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    is_folder = entry.is_dir(follow_symlinks=False)
                    (folders if is_folder else files).append(entry.name)
        except OSError:
            self.unread_folders += 1
        return _FolderContent(
            prefix=prefix,
            folders=iter(sorted(set(folders) - _SKIPPED_FOLDERS)),
            files=(
                FoundFile(path=shown_name(f"{prefix}{name}"), name=name, folder=folder)
                for name in sorted(files)
            ),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class _FolderContent:
    """What is in one folder."""

    prefix: str
    folders: Iterator[str]
    files: Iterator[FoundFile]
