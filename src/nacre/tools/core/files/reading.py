"""Text of a file, by lines and within a bound."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from nacre.tools.core.workspace import FileProblem, FileVersion, problems_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from io import BufferedReader

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
