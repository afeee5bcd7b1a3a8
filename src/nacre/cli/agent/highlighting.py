"""Programs in colours, for terminals that have them."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Final

from nacre.mcp_server.shown_text import escape

if TYPE_CHECKING:
    from collections.abc import Callable

_MAX_LINES: Final = 60
_MAX_LINE_CHARACTERS: Final = 400
_THEME: Final = "ansi_dark"


def program_lines(code: str, *, colours: Callable[[str], str] | None) -> list[str]:
    """The program's lines, safe for a terminal; of a long one the beginning."""
    lines = [_prepare_line(line) for line in code.strip("\n").split("\n")]
    shown = "\n".join(lines[:_MAX_LINES])
    colour = (colours(shown) if colours else shown).split("\n")
    left_out = len(lines) - _MAX_LINES
    return colour if left_out <= 0 else [*colour, f"… {left_out} more lines"]


def javascript_colours() -> Callable[[str], str]:
    """What colours a program; slow to make, so before anything runs."""
    from rich.console import Console
    from rich.syntax import Syntax

    # TypeScript is a superset. Looked up now: finding the lexer reads files.
    highlighter = Syntax("", "typescript", theme=_THEME, background_color="default")
    lexer = highlighter.lexer or "text"

    def colour(code: str) -> str:
        page = io.StringIO()
        console = Console(file=page, force_terminal=True, color_system="standard", width=10_000)
        syntax = Syntax(code, lexer, theme=_THEME, background_color="default")
        console.print(syntax.highlight(code), end="", soft_wrap=True)
        return page.getvalue().rstrip("\n")

    return colour


def _prepare_line(line: str) -> str:
    line = line.removesuffix("\r").expandtabs(2)
    cut = line if len(line) <= _MAX_LINE_CHARACTERS else f"{line[:_MAX_LINE_CHARACTERS]}…"
    return escape(cut)
