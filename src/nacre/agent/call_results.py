"""What came of a call, as text for the model: a value, a cell's result, or what went wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from nacre.json_types import NotJsonError, decode_json, encode_json
from nacre.tools.tool_result import part_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nacre.json_types import JsonObject, JsonValue

MAX_RESULT_BYTES: Final = 256 * 1024
_MAX_LISTED_NAMES: Final = 40


@dataclass(frozen=True, kw_only=True, slots=True)
class CallResult:
    """As the model reads it."""

    content: str
    is_error: bool = False


def format_result(value: JsonValue, *, is_mcp: bool = False) -> CallResult:
    """A text as it is, anything else as JSON; of an MCP result its parts."""
    if is_mcp and isinstance(value, dict):
        parts = value.get("content")
        if isinstance(parts, list):
            return _format_mcp_parts(value, parts)
    return CallResult(content=truncate_result(_format_value(value)))


def format_error_result(message: str) -> CallResult:
    return CallResult(content=truncate_result(message), is_error=True)


def parse_arguments(text: str) -> JsonObject | CallResult:
    """The arguments that a model wrote, or the result that tells it what is wrong with them."""
    if not text.strip():
        return {}
    try:
        arguments = decode_json(text.encode(errors="replace"))
    except NotJsonError as error:
        return format_error_result(f"the arguments are not JSON: {error}; nothing was called")
    if not isinstance(arguments, dict):
        kind = type(arguments).__name__
        return format_error_result(f"the arguments are a {kind}; they have to be an object")
    return arguments


def unknown_tool(name: str, known: Sequence[str]) -> CallResult:
    shown = ", ".join(known[:_MAX_LISTED_NAMES]) or "none"
    more = len(known) - _MAX_LISTED_NAMES
    rest = f" and {more} more" if more > 0 else ""
    return format_error_result(f"there is no tool {name[:120]!r}; there are: {shown}{rest}")


def truncate_result(text: str) -> str:
    """At most so many bytes; a longer one says how long it was."""
    sound = text.encode(errors="replace")
    if len(sound) <= MAX_RESULT_BYTES:
        return text if text.isascii() else sound.decode()
    kept = sound[:MAX_RESULT_BYTES].decode(errors="ignore")
    return f"{kept}\n[cut: the whole result has {len(sound)} bytes; ask for less at a time]"


def _format_value(value: JsonValue) -> str:
    return value if isinstance(value, str) else encode_json(value).decode()


def _format_mcp_parts(result: JsonObject, parts: list[JsonValue]) -> CallResult:
    texts = [part_text(cast("JsonObject", part)) for part in parts if isinstance(part, dict)]
    structured = result.get("structuredContent")
    if not texts and structured is not None:
        texts = [_format_value(structured)]
    return CallResult(
        content=truncate_result("\n".join(texts)), is_error=result.get("isError") is True
    )
