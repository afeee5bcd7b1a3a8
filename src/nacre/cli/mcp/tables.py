"""Tables for people: in columns, as wide as the terminal; elsewhere one line per row."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Final, Literal

from nacre.cli.terminal import visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nacre.cli.terminal import Printer

Align = Literal["left", "right"]

MAX_CELL_CHARACTERS: Final = 300

# Wider than any row of cells: nothing is wrapped for a program that reads lines.
_WIDTH_ELSEWHERE: Final = 10_000


def write_table(
    printer: Printer,
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: Sequence[str] = (),
    most_characters: int = MAX_CELL_CHARACTERS,
) -> None:
    """Print the rows under their headings; the columns named in `right` hold numbers.

    A cell has `most_characters` at most.
    """
    if not rows:
        return
    # Slow to import, and only people need it.
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in headings:
        align: Align = "right" if heading in right else "left"
        table.add_column(heading, justify=align, overflow="fold", no_wrap=align == "right")
    for row in rows:
        # As text, not as markup: what servers say of themselves is theirs.
        table.add_row(*(Text(cell_text(cell, most_characters=most_characters)) for cell in row))
    page = io.StringIO()
    width = None if printer.is_terminal else _WIDTH_ELSEWHERE
    Console(file=page, color_system=None, width=width).print(table)
    printer.write("".join(f"{line.rstrip()}\n" for line in page.getvalue().splitlines()))


def cell_text(text: str, *, most_characters: int = MAX_CELL_CHARACTERS) -> str:
    """The text on one line, with nothing in it that a terminal would obey, and shortened."""
    line = visible(" ".join(text[: 4 * most_characters].split()))
    return line if len(line) <= most_characters else f"{line[: most_characters - 1]}…"


def count_text(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
