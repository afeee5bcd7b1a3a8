"""A failed cell as text for people: what went wrong, and where in the program."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, Final

from nacre.cli.output import visible

if TYPE_CHECKING:
    from nacre.cli.exec_command import ProgramText
    from nacre.code_mode.results import Failed
    from nacre.sandbox.results import Position

# Of a line that is longer, the part around the place is shown.
_MAX_SHOWN_CHARACTERS: Final = 100


def failure_text(failed: Failed, program: ProgramText) -> str:
    """Several lines, the last without its end."""
    lines = [f"failed: {failed.error}"]
    if failed.position is not None:
        lines += _excerpt(failed.position, program)
    lines.append(f"  reason {failed.reason}, code {failed.code}")
    return "\n".join(lines)


def _excerpt(position: Position, program: ProgramText) -> list[str]:
    lines = [f"  --> {program.name}:{position.line}:{position.column}"]
    source = program.text.split("\n")
    # A program can write its own stack, and so name any place.
    if position.line <= len(source):
        before, after = _cut_around(source[position.line - 1].removesuffix("\r"), position.column)
        number = str(position.line)
        lines.append(f"  {number} | {before}{after}")
        lines.append(f"  {' ' * len(number)} | {' ' * _width(before)}^")
    return lines


def _cut_around(line: str, column: int) -> tuple[str, str]:
    """What of the line is shown before the column and from it on."""
    at = min(column - 1, len(line))
    start = max(0, min(at - _MAX_SHOWN_CHARACTERS // 2, len(line) - _MAX_SHOWN_CHARACTERS))
    before, after = line[start:at], line[at : start + _MAX_SHOWN_CHARACTERS]
    return _escape_source(before), _escape_source(after)


def _escape_source(text: str) -> str:
    return visible(text.expandtabs(4).replace("\r", " "))


def _width(text: str) -> int:
    """How many columns a terminal takes for the text."""
    return sum(
        0 if unicodedata.combining(character)
        else 2 if unicodedata.east_asian_width(character) in "WF"
        else 1
        for character in text
    )  # fmt: skip
