"""What a tool returned, as JSON: its value itself, never an envelope around it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from nacre.errors import ToolFailedError
from nacre.json_types import NotJsonError, encode_json
from nacre.tools.result_conversion import json_from

if TYPE_CHECKING:
    from nacre.json_types import JsonObject, JsonValue
    from nacre.tools.definition import Tool

_ENVELOPE_KEYS: Final = frozenset({"content", "structuredContent", "details", "isError", "_meta"})
_MAX_MESSAGE_CHARACTERS: Final = 8_000


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolResult:
    """For a tool that says more than a value: text beside structured data, or an error."""

    structured: object = None
    text: str | None = None
    is_error: bool = False


def value_of_result(tool: Tool, returned: object) -> JsonValue:
    """The value that a caller gets. Raises ToolFailedError for an error result, and for what JSON
    cannot hold (`invalid_tool_result`).

    An MCP tool's result goes through as it is: its callers know the shape from the protocol.
    """
    try:
        return _value_of(tool, returned)
    except ToolFailedError:
        raise
    except NotJsonError as error:
        problem = f"what JSON cannot hold: {error}"
        raise _invalid(tool, problem) from error
    except Exception as error:
        # What is returned may have methods of its own, and those may do anything.
        problem = f"what cannot be read: its own code raised {type(error).__name__}"
        raise _invalid(tool, problem) from error


def _value_of(tool: Tool, returned: object) -> JsonValue:
    if isinstance(returned, ToolResult):
        structured, text = json_from(returned.structured), json_from(returned.text)
        if text is not None and not isinstance(text, str):
            raise NotJsonError("text", f"is a {type(text).__name__}, not text")
        return _unwrap(tool, structured, text, is_error=returned.is_error)
    value = json_from(returned)
    if tool.source == "mcp" or not isinstance(value, dict) or not _is_envelope(value):
        return value
    return _from_envelope(tool, value)


def _invalid(tool: Tool, problem: str) -> ToolFailedError:
    message = (
        f"{tool.name} returned {problem}; "
        "the tool has to return JSON values, dataclasses or pydantic models"
    )
    return ToolFailedError(message, code="invalid_tool_result", tool_id=tool.id)


def _is_envelope(value: JsonObject) -> bool:
    content = value.get("content")
    if not isinstance(content, list) or not value.keys() <= _ENVELOPE_KEYS:
        return False
    has_parts = all(
        isinstance(part, dict) and isinstance(part.get("type"), str) for part in content
    )
    # A lone empty list may be data.
    return has_parts and (bool(content) or len(value) > 1)


def _from_envelope(tool: Tool, envelope: JsonObject) -> JsonValue:
    structured = envelope.get("structuredContent")
    if structured is None:
        structured = envelope.get("details")
    parts = cast("list[JsonObject]", envelope["content"])
    text = "\n".join(part_text(part) for part in parts)
    return _unwrap(tool, structured, text, is_error=envelope.get("isError") is True)


def _unwrap(tool: Tool, structured: JsonValue, text: str | None, *, is_error: bool) -> JsonValue:
    if not is_error:
        return text if structured is None else structured
    message = text or _message_in(structured) or f"{tool.name} reported an error without a message"
    if len(message) > _MAX_MESSAGE_CHARACTERS:
        message = f"{message[:_MAX_MESSAGE_CHARACTERS]}… ({len(message)} characters)"
    raise ToolFailedError(
        message,
        code="tool_failed",
        tool_id=tool.id,
        details={} if structured is None else {"structured": structured},
    )


def _message_in(structured: JsonValue) -> str:
    if isinstance(structured, dict):
        for key in ("message", "error"):
            found = structured.get(key)
            if isinstance(found, str) and found:
                return found
    if structured is None:
        return ""
    return structured if isinstance(structured, str) else encode_json(structured).decode()


def part_text(part: JsonObject) -> str:
    """A part's text; what is not text is named, so that nobody takes it for absent."""
    match part:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": "resource", "resource": {"text": str(text)}}:
            return text
        case {"type": "resource", "resource": {"uri": str(uri)} as resource}:
            return _describe_part("resource", uri, resource.get("mimeType"), resource.get("blob"))
        case {"type": str(kind)}:
            return _describe_part(kind, part.get("uri"), part.get("mimeType"), part.get("data"))
        case _:
            return _describe_part("part", None, None, None)


def _describe_part(kind: str, uri: JsonValue, media_type: JsonValue, base64: JsonValue) -> str:
    names = [kind, *(name for name in (uri, media_type) if isinstance(name, str))]
    size = f", {_decoded_bytes(base64)} bytes" if isinstance(base64, str) else ""
    return f"[{' '.join(names)}{size}]"


def _decoded_bytes(base64: str) -> int:
    return len(base64.rstrip("=")) * 3 // 4
