"""Results of code mode as MCP has them: structured content, and all of it as text as well."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

import mcp_types as types
from pydantic import ValidationError

from nacre.code_mode import Failed
from nacre.json_types import decode_json, encode_json

if TYPE_CHECKING:
    from nacre.code_mode import CodeModeResult, DirectResult
    from nacre.json_types import JsonObject, JsonValue

OUTPUT_SCHEMA: Final[JsonObject] = {
    "type": "object",
    "properties": {
        "status": {"enum": ["completed", "waiting", "failed"]},
        "value": {},
        "runId": {"type": "string"},
        "error": {"type": "string"},
    },
    "required": ["status"],
}
"""Flat, since not every client takes a union; and short, since every client sends it twice."""


def code_mode_result(
    result: CodeModeResult, *, awaited: JsonObject | None = None
) -> types.CallToolResult:
    """`awaited` is what a waiting result says besides: see `awaited_approvals`."""
    wire = result.to_json()
    telemetry = wire.pop("telemetry")
    text = encode_json({**wire, **(awaited or {}), "telemetry": telemetry})
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text.decode())],
        # From the text: what is no JSON in a strict sense would end the connection.
        structured_content=decode_json(text),
        is_error=isinstance(result, Failed),
    )


def direct_result(result: DirectResult, *, has_output_schema: bool) -> types.CallToolResult:
    """What a tool returned that the client called by its own name."""
    if result.is_error:
        return _text_result(result.error, is_error=True)
    native = _native_result(result.value)
    if native is not None:
        return native
    value = result.to_json()["value"]
    text = value if isinstance(value, str) else encode_json(value).decode()
    shown = _text_result(text)
    if has_output_schema:
        shown.structured_content = decode_json(encode_json(value))
    return shown


def _native_result(value: object) -> types.CallToolResult | None:
    """A value that is an MCP result already, images and all; None for any other value."""
    if not isinstance(value, dict) or "content" not in value:
        return None
    try:
        sound = decode_json(encode_json(cast("dict[str, JsonValue]", value)))
        return types.CallToolResult.model_validate(sound, by_name=False)
    except (ValidationError, ValueError):
        return None


def _text_result(text: str, *, is_error: bool = False) -> types.CallToolResult:
    sound = text.encode(errors="replace").decode()
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=sound)], is_error=is_error
    )
