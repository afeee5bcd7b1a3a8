"""A tool call on one line: what was called with what, what came of it, and how long it took."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from nacre.cli.output import cell_text
from nacre.json_types import encode_json
from nacre.mcp_server.shown_text import escape

if TYPE_CHECKING:
    from nacre.json_types import JsonValue

MARKS: Final = {"completed": "✓", "failed": "✗", "waiting": "…", "running": "…"}

_MAX_INPUT_CHARACTERS: Final = 120
_MAX_VALUE_CHARACTERS: Final = 160
_MAX_ERROR_CHARACTERS: Final = 300


def input_text(given: JsonValue) -> str:
    """The input as JSON on one line, shortened; nothing for none."""
    return "" if given in (None, {}) else value_text(given, most_characters=_MAX_INPUT_CHARACTERS)


def value_text(value: JsonValue, *, most_characters: int = _MAX_VALUE_CHARACTERS) -> str:
    """Any value as JSON on one line, shortened."""
    text = encode_json(value).decode()
    # Spelled out: what turns the direction of writing would turn the rest of the line, too.
    shown = escape(text[:most_characters])
    return shown if len(text) <= most_characters else f"{shown}…"


def error_text(error: str, code: str = "") -> str:
    """What went wrong on one line, its code first."""
    text = escape(cell_text(error, most_characters=_MAX_ERROR_CHARACTERS))
    return f"{code}: {text}" if code and text else text or code


def program_of(given: JsonValue) -> str:
    """The program in the input of `exec` or of `tool_search_code`; nothing for other inputs."""
    if not isinstance(given, dict):
        return ""
    code = given.get("code") or given.get("command")
    return code if isinstance(code, str) else ""


def program_status(result: JsonValue) -> str:
    """How a program stands by the result of `exec` or `wait`; nothing for other results."""
    match result:
        case {"status": ("completed" | "waiting" | "failed") as status, "telemetry": _}:
            return status
        case _:
            return ""


def result_text(result: JsonValue) -> str:
    """What came of a call: of a program's result its status and value, else the value itself."""
    if not isinstance(result, dict) or not program_status(result):
        return "" if result is None else value_text(result)
    match program_status(result):
        case "completed":
            value = result.get("value")
            return "" if value is None else value_text(value)
        case "waiting":
            return f"waiting: {cell_text(str(result.get('reason', '')))}"
        case _:
            return error_text(str(result.get("error", "")), str(result.get("code", "")))
