"""Lines of a text, and edits of it: where one begins, how far it is indented."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

Edit: TypeAlias = tuple[int, int, str]
"""What stands from here to there becomes this."""

BLANKS: Final = " \t\ufeff"
LINE_END: Final = re.compile(r"\r\n|\n|\r")


def apply_edits(text: str, edits: Sequence[Edit]) -> str:
    line_end = LINE_END.search(text)
    pieces: list[str] = []
    done = 0
    for start, end, new in edits:
        pieces += text[done:start], new.replace("\n", line_end[0] if line_end else "\n")
        done = end
    return "".join((*pieces, text[done:]))


def margin_at(text: str, position: int) -> str:
    line = text[line_start(text, position) : position].lstrip("\ufeff")
    return line[: len(line) - len(line.lstrip(" \t"))]


def begins_line(text: str, position: int) -> bool:
    return not text[line_start(text, position) : position].strip(BLANKS)


def line_start(text: str, position: int) -> int:
    return max(text.rfind("\n", 0, position), text.rfind("\r", 0, position)) + 1
