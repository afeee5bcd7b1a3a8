"""What is in a folder: in order, and never more than was asked for."""

from __future__ import annotations

import heapq
import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from nacre.tools.core.workspace import problems_of, shown_name

if TYPE_CHECKING:
    from nacre.json_types import JsonObject
    from nacre.tools.core.workspace import Place

EntryKind = Literal["file", "folder", "link", "other"]


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class FolderEntry:
    """One name in a folder."""

    name: str
    kind: EntryKind
    size: int = 0

    def to_json(self) -> JsonObject:
        shown: JsonObject = {"name": self.name, "type": self.kind}
        return {**shown, "bytes": self.size} if self.kind == "file" else shown


@dataclass(frozen=True, kw_only=True, slots=True)
class Listing:
    """Some names of a folder, and how many there are."""

    entries: tuple[FolderEntry, ...]
    total: int
    is_cut: bool
    """Whether more names follow the last of these."""


def list_folder(place: Place, *, after: str, most: int) -> Listing:
    """The first names behind `after`; raises FileProblem."""
    folder = place.open_folder()
    try:
        with problems_of(place.shown), os.scandir(folder) as found:
            names = [entry.name for entry in found]
        # As they are shown, since that is how the page before tells where it ended.
        behind = [name for name in names if shown_name(name) > after]
        # A folder may have a million names, and only a few are looked at closely.
        chosen = heapq.nsmallest(most, behind, key=shown_name)
        entries = tuple(_entry(folder, name) for name in chosen)
    finally:
        os.close(folder)
    return Listing(entries=entries, total=len(names), is_cut=len(behind) > len(chosen))


def _entry(folder: int, name: str) -> FolderEntry:
    shown = shown_name(name)
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        # Gone since its name was read.
        return FolderEntry(name=shown, kind="other")
    mode = status.st_mode
    if stat.S_ISREG(mode):
        return FolderEntry(name=shown, kind="file", size=status.st_size)
    kind: EntryKind = "folder" if stat.S_ISDIR(mode) else "link" if stat.S_ISLNK(mode) else "other"
    return FolderEntry(name=shown, kind=kind)
