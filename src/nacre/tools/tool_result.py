"""Converts what a tool returned to JSON."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final, cast
from uuid import UUID

from nacre.errors import ToolFailedError
from nacre.json_types import MAX_JSON_DEPTH, NotJsonError, encode_json, type_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nacre.json_types import JsonObject, JsonValue
    from nacre.tools.definition import Tool


_PLAIN_SCALARS: Final = frozenset((str, int, bool, type(None)))
_MAX_SHOWN_KEY: Final = 60
_BYTES = (bytes, bytearray, memoryview)
_TEXT_TYPES = (UUID, PurePath, Decimal)
_ARRAYS = (list, tuple, set, frozenset)
_NO_WAY: Final = object()


def json_from(value: object) -> JsonValue:
    """The value as JSON, the same object if it is JSON already; raises NotJsonError by path.

    NaN and the infinities become text; bytes, a note of their length; other keys than text, text.
    """
    if _is_plain(value):
        return cast("JsonValue", value)
    return _Conversion().of(value, "$")


def _is_plain(value: object) -> bool:
    """Whether every part is exactly of a JSON type; False also where only a closer look tells."""
    level, seen = [value], set[int]()
    for _ in range(MAX_JSON_DEPTH + 1):
        below: list[object] = []
        for part in level:
            kind = type(part)
            if kind in _PLAIN_SCALARS or (kind is float and math.isfinite(cast("float", part))):
                continue
            # Met twice, it may be a part of itself.
            if kind not in (dict, list) or id(part) in seen:
                return False
            seen.add(id(part))
            if isinstance(part, dict):
                members = cast("dict[object, object]", part)
                if not all(type(key) is str for key in members):
                    return False
                below.extend(members.values())
            else:
                below.extend(cast("list[object]", part))
        if not below:
            return True
        level = below
    return False


class _Conversion:
    """Walks down one value; knows what it is inside of."""

    def __init__(self) -> None:
        self._inside: set[int] = set()

    def of(self, value: object, path: str) -> JsonValue:
        scalar = _scalar(value)
        if scalar is not _NO_WAY:
            return cast("JsonValue", scalar)
        if isinstance(value, Enum):
            return self.of(value.value, path)
        if id(value) in self._inside:
            raise NotJsonError(path, "is a part of itself")
        if len(self._inside) >= MAX_JSON_DEPTH:
            raise NotJsonError("$", f"is nested more than {MAX_JSON_DEPTH} levels deep")
        self._inside.add(id(value))
        try:
            return self._container(value, path)
        finally:
            self._inside.discard(id(value))

    def _container(self, value: object, path: str) -> JsonValue:
        if isinstance(value, Mapping):
            return self._object(cast("Mapping[object, object]", value).items(), path)
        if isinstance(value, _ARRAYS):
            items = cast("Iterable[object]", value)
            return [self.of(item, f"{path}[{index}]") for index, item in enumerate(items)]
        if _is_pydantic_model(value):
            return self.of(_dump_model(value, path), path)
        if is_dataclass(value) and not isinstance(value, type):
            members = ((field.name, getattr(value, field.name)) for field in fields(value))
            return self._object(members, path)
        raise NotJsonError(path, f"is of type {type_name(value)}, which has no form in JSON")

    def _object(self, members: Iterable[tuple[object, object]], path: str) -> JsonObject:
        converted: JsonObject = {}
        for key, member in members:
            name = _key_text(key, path)
            if name in converted:
                raise NotJsonError(path, f"has two keys that are {name[:_MAX_SHOWN_KEY]!r} as text")
            converted[name] = self.of(member, f"{path}.{name[:_MAX_SHOWN_KEY]}")
        return converted


def _scalar(value: object) -> object:
    """The value as a JSON scalar or a note, or `_NO_WAY`."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, Enum):
        return _NO_WAY
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else _not_finite(value)
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    if isinstance(value, _TEXT_TYPES):
        return str(value)
    if isinstance(value, _BYTES):
        return {"type": "bytes", "length": memoryview(cast("bytes", value)).nbytes}
    return _NO_WAY


def _not_finite(number: float) -> str:
    if math.isnan(number):
        return "NaN"
    return "Infinity" if number > 0 else "-Infinity"


def _key_text(key: object, path: str) -> str:
    while isinstance(key, Enum):
        key = key.value
    scalar = _scalar(key)
    match scalar:
        case str():
            return scalar
        case bool():
            return "true" if scalar else "false"
        case None:
            return "null"
        case int() | float():
            return repr(scalar)
        case _:
            raise NotJsonError(path, f"has a key of type {type_name(key)}, which is not text")


def _is_pydantic_model(value: object) -> bool:
    # Who has not imported pydantic has no models.
    pydantic = cast("Any", sys.modules.get("pydantic"))
    return pydantic is not None and isinstance(value, pydantic.BaseModel)


def _dump_model(model: object, path: str) -> object:
    try:
        return cast("Any", model).model_dump(mode="json", by_alias=True)
    except ValueError as error:
        name = type_name(model)
        raise NotJsonError(path, f"is a {name} that cannot be written as JSON: {error}") from error


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
