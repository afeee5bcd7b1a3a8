"""Reads, writes, edits and lists files of a workspace within bounds."""

from __future__ import annotations

import heapq
import os
import stat
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from difflib import SequenceMatcher
from heapq import nlargest
from typing import TYPE_CHECKING, Final, Literal

from nacre.tools.core.workspace import FileProblem, FileVersion, kind_of, problems_of, shown_name

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from io import BufferedReader

    from nacre.json_types import JsonObject
    from nacre.tools.core.workspace import Place


# Further in than this, a search finds a place faster than counting lines does.
_MAX_SKIPPED_BYTES: Final = 64 * 1024 * 1024
_LOOK_BYTES: Final = 8_192


@dataclass(frozen=True, kw_only=True, slots=True)
class TextRead:
    """Some lines of a file."""

    text: str
    first_line: int
    line_count: int
    file_bytes: int
    is_cut: bool
    """Whether more follows."""
    is_exact: bool
    """Whether the file is UTF-8; if not, what is none of it is shown as U+FFFD."""


def read_lines(
    place: Place,
    *,
    first_line: int,
    most_lines: int,
    most_bytes: int,
    is_over: Callable[[], bool],
) -> TextRead:
    """Lines from `first_line` on, whole ones if the first of them fits; raises FileProblem."""
    with os.fdopen(place.open_file(), "rb") as file, problems_of(place.shown):
        size = os.fstat(file.fileno()).st_size
        refuse_binary(place, file, size)
        _skip_lines(place, file, first_line - 1, is_over)
        lines: list[bytes] = []
        left = most_bytes
        is_cut = False
        while len(lines) < most_lines:
            line = file.readline(left + 1)
            if not line:
                break
            if len(line) > left:
                is_cut = True
                if not lines:
                    lines.append(line[:left])
                break
            lines.append(line)
            left -= len(line)
        is_cut = is_cut or bool(file.peek(1))
    data = b"".join(lines)
    text = data.decode(errors="replace").removeprefix("\ufeff" if first_line == 1 else "")
    return TextRead(
        text=text,
        first_line=first_line,
        line_count=len(lines),
        file_bytes=size,
        is_cut=is_cut,
        is_exact="\ufffd" not in text,
    )


def read_whole(place: Place, *, most_bytes: int) -> tuple[str, FileVersion | None]:
    """All of a text file, and which one it was; raises FileProblem for one that is too large or
    no UTF-8."""
    with os.fdopen(place.open_file(), "rb") as file, problems_of(place.shown):
        # Looked at before it is read: whoever writes meanwhile is noticed later.
        status = os.fstat(file.fileno())
        size = status.st_size
        refuse_binary(place, file, size)
        data = file.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise FileProblem(f"{place.shown} has {size} bytes; at most {most_bytes} can be edited")
    try:
        return data.decode(), FileVersion.of(status)
    except UnicodeDecodeError as error:
        raise FileProblem(f"{place.shown} is not UTF-8 text; write it anew instead") from error


def refuse_binary(place: Place, file: BufferedReader, size: int) -> None:
    """Raises FileProblem for what is no text."""
    if b"\0" in file.peek(_LOOK_BYTES)[:_LOOK_BYTES]:
        raise FileProblem(f"{place.shown} is a binary file of {size} bytes, not text")


def _skip_lines(
    place: Place, file: BufferedReader, count: int, is_over: Callable[[], bool]
) -> None:
    left, skipped = count, 0
    while left > 0:
        # By pieces, not by lines: there may be a line end in every byte.
        piece = file.peek(_LOOK_BYTES)[:_LOOK_BYTES]
        ends = piece.count(b"\n")
        used = len(piece) if ends < left else _position_after(piece, left)
        file.seek(used, os.SEEK_CUR)
        left -= min(left, ends)
        skipped += used
        if skipped > _MAX_SKIPPED_BYTES or is_over():
            raise FileProblem(
                f"line {count + 1} of {place.shown} is further than {_MAX_SKIPPED_BYTES} bytes in; "
                "use search"
            )
        if not piece:
            raise FileProblem(f"{place.shown} has fewer than {count + 1} lines")


def _position_after(piece: bytes, line_count: int) -> int:
    """Where so many lines end, all of which are in the piece."""
    return len(piece) - len(piece.split(b"\n", line_count)[-1])


_MODE_OF_NEW_FILE: Final = 0o666
"""Without what the user's mask takes away."""
# As many as are not worth counting; two places that share one wait for each other, no more.
_LOCKS: Final = tuple(threading.Lock() for _ in range(64))
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def one_writer(place: Place) -> Generator[None]:
    """Nobody else in this process writes to the place meanwhile. Blocks."""
    folder = os.fstat(place.folder)
    with _LOCKS[hash((folder.st_dev, folder.st_ino, place.name)) % len(_LOCKS)]:
        yield


def write_file(place: Place, data: bytes, *, expected: FileVersion | None = None) -> bool:
    """Put the data there; whether the file is a new one. Raises FileProblem.

    With `expected`, only if the file is still that one.
    """
    before = place.status()
    if before is not None and not stat.S_ISREG(before.st_mode):
        raise FileProblem(f"{place.shown} is {kind_of(before.st_mode)}, so no file can be there")
    mode = _MODE_OF_NEW_FILE if before is None else stat.S_IMODE(before.st_mode)
    temporary = f".{os.urandom(8).hex()}.nacre"
    with problems_of(place.shown):
        descriptor = os.open(temporary, _CREATE, mode, dir_fd=place.folder)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                if before is not None:
                    os.fchmod(file.fileno(), mode)
                os.fsync(file.fileno())
            if expected is not None and FileVersion.of(place.status()) != expected:
                raise FileProblem(f"{place.shown} was changed meanwhile; read it again")
            os.rename(temporary, place.name, src_dir_fd=place.folder, dst_dir_fd=place.folder)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=place.folder)
            raise
    return before is None


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


# What is there after an edit can be edited again.
MAX_EDITED_CHARACTERS: Final = 4 * 1024 * 1024
_MAX_LINES_COMPARED: Final = 5_000
# The closer look takes time that grows with the square of the line.
_MAX_LINES_COMPARED_CLOSELY: Final = 20
_MIN_LIKENESS: Final = 0.6
_MAX_SHOWN: Final = 160
# Longer ones cannot be alike enough.
_MAX_COMPARED: Final = 400


@dataclass(frozen=True, kw_only=True, slots=True)
class Edited:
    """The new text, and what was done to get there."""

    text: str
    count: int
    first_line: int


def replace_text(text: str, *, path: str, old: str, new: str, is_everywhere: bool) -> Edited:
    """The text with `old` replaced; raises FileProblem that says how to do better."""
    if not old:
        raise FileProblem("oldText is empty; write the file instead")
    if "\r\n" in text and "\r\n" not in old:
        # A model reads lines, not line ends.
        old, new = old.replace("\n", "\r\n"), new.replace("\r\n", "\n").replace("\n", "\r\n")
    count = text.count(old)
    if count == 0:
        raise FileProblem(f"oldText is not in {path}{_hint(text, old)}")
    if count > 1 and not is_everywhere:
        raise FileProblem(
            f"oldText is in {path} {count} times; add lines around it until it is there once, "
            "or set replaceAll"
        )
    if old == new:
        raise FileProblem("oldText and newText are the same; nothing to do")
    characters = len(text) + count * (len(new) - len(old))
    if characters > max(len(text), MAX_EDITED_CHARACTERS):
        raise FileProblem(
            f"{path} would have {characters} characters; an edit may make it "
            f"{MAX_EDITED_CHARACTERS} at most"
        )
    return Edited(
        text=text.replace(old, new),
        count=count,
        first_line=text.count("\n", 0, text.index(old)) + 1,
    )


def _hint(text: str, old: str) -> str:
    """The line that comes nearest to the first of those that were looked for."""
    wanted = next((line.strip() for line in old.splitlines() if line.strip()), "")
    lines = text.splitlines()[:_MAX_LINES_COMPARED]
    numbers = {line.strip(): number for number, line in enumerate(lines, start=1)}
    near = _nearest(wanted[:_MAX_SHOWN], [line for line in numbers if len(line) <= _MAX_COMPARED])
    if near is None:
        return "; read it first: every character has to be the same"
    return f"; the nearest is line {numbers[near]}: {near[:_MAX_SHOWN]}"


def _nearest(wanted: str, lines: list[str]) -> str | None:
    likeness = SequenceMatcher[str](None, "", wanted)

    def quick_likeness(line: str) -> float:
        likeness.set_seq1(line)
        return likeness.quick_ratio()

    def exact_likeness(line: str) -> float:
        likeness.set_seq1(line)
        return likeness.ratio()

    likely = nlargest(_MAX_LINES_COMPARED_CLOSELY, lines, key=quick_likeness)
    best = max(likely, key=exact_likeness, default=None)
    return best if best is not None and exact_likeness(best) >= _MIN_LIKENESS else None
