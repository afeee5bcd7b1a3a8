"""The input of a call that somebody has to judge: all of it, and nothing in it that can pretend."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from nacre.mcp_server.shown_input import format_input
from nacre.mcp_server.shown_text import escape

if TYPE_CHECKING:
    from nacre.json_types import JsonObject, JsonValue

_MAX_LINES: Final = 120
_MAX_CHARACTERS: Final = 12_000
# As `shown_input` has it.
_CUT_MARK: Final = "… (cut: "
_CUT_NOTE: Final = "(long texts are cut; `e` shows all of it in your editor)"


def format_input_lines(given: JsonObject) -> list[str]:
    """One or more lines per member; texts of several lines as such, behind a bar.

    Raises UnshowableInputError for an input of too many parts.
    """
    # First: it refuses what is too deep or has too many parts to be written out below.
    short = format_input(given)
    if not given:
        return ["(no input)"]
    lines = [line for key, value in given.items() for line in _member_lines(key, value)]
    if len(lines) <= _MAX_LINES and sum(map(len, lines)) <= _MAX_CHARACTERS:
        return lines
    return [short, _CUT_NOTE] if _CUT_MARK in short else [short]


def _member_lines(key: str, value: JsonValue) -> list[str]:
    name = escape(json.dumps(key, ensure_ascii=False))
    if isinstance(value, str) and "\n" in value:
        text = [f"  | {escape(line.expandtabs(4))}" for line in value.split("\n")]
        return [f"{name}:", *text]
    written = json.dumps(value, ensure_ascii=False, indent=2).split("\n")
    first, *rest = (escape(line) for line in written)
    return [f"{name}: {first}", *rest]
