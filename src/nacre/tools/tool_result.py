"""Converts the return values of tools to JSON."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final, cast

from nacre.errors import ToolFailedError
from nacre.json_types import MAX_JSON_DEPTH, NotJsonError, TooLargeError, encode_json, type_name
from nacre.large_json import SizeLimit, is_plain, is_small, run_in_json_thread
from nacre.lazy_dataclasses import dataclass
from nacre.messages import MAX_IMAGES, InvalidImage, check_image

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import date

    from nacre.json_types import JsonObject, JsonValue
    from nacre.messages import ImagePart
    from nacre.tools.definition import Tool


_MAX_KEY_CHARACTERS: Final = 60
_BYTES = (bytes, bytearray, memoryview)
# A value can be of such a type only if something has imported the module.
_TEXT_TYPES: Final = (("uuid", "UUID"), ("decimal", "Decimal"))
_TIME_TYPES: Final = (("datetime", "date"), ("datetime", "time"))
_ARRAYS = (list, tuple, set, frozenset)
_NOT_SCALAR: Final = object()


def json_from(value: object) -> JsonValue:
    """Convert a value to JSON; raises NotJsonError with the path, or TooLargeError.

    A value that is already JSON is returned unchanged. NaN, the infinities and keys become text;
    bytes become a note with their length.
    """
    if is_plain(value):
        return cast("JsonValue", value)
    return _Conversion().convert(value, "$")


class _Conversion:
    """Converts one value; tracks its size and the containers around the current part."""

    def __init__(self) -> None:
        self._inside: set[int] = set()
        self._size = SizeLimit()

    def convert(self, value: object, path: str) -> JsonValue:
        scalar = _scalar(value)
        self._size.count(1, len(scalar) if isinstance(scalar, str) else 0)
        if scalar is not _NOT_SCALAR:
            return cast("JsonValue", scalar)
        if isinstance(value, Enum):
            return self.convert(value.value, path)
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
            return [self.convert(item, f"{path}[{index}]") for index, item in enumerate(items)]
        if _is_pydantic_model(value):
            return self.convert(_dump_model(value, path), path)
        if is_dataclass(value) and not isinstance(value, type):
            members = ((field.name, getattr(value, field.name)) for field in fields(value))
            return self._object(members, path)
        raise NotJsonError(path, f"is of type {type_name(value)}, which JSON does not support")

    def _object(self, members: Iterable[tuple[object, object]], path: str) -> JsonObject:
        converted: JsonObject = {}
        for key, member in members:
            name = _key_text(key, path)
            self._size.count(0, len(name))
            if name in converted:
                raise NotJsonError(
                    path, f"has two keys that are {name[:_MAX_KEY_CHARACTERS]!r} as text"
                )
            converted[name] = self.convert(member, f"{path}.{name[:_MAX_KEY_CHARACTERS]}")
        return converted


def _scalar(value: object) -> object:
    """The value as a JSON scalar, or as a note for bytes; else `_NOT_SCALAR`."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, Enum):
        return _NOT_SCALAR
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else _not_finite(value)
    if _is_one_of(value, _TIME_TYPES):
        return cast("date", value).isoformat()
    if isinstance(value, PurePath) or _is_one_of(value, _TEXT_TYPES):
        return str(value)
    if isinstance(value, _BYTES):
        return {"type": "bytes", "length": memoryview(cast("bytes", value)).nbytes}
    return _NOT_SCALAR


def _is_one_of(value: object, types: Iterable[tuple[str, str]]) -> bool:
    """Whether the value has one of these types: pairs of a module and a name."""
    modules = sys.modules
    return any(
        module in modules and isinstance(value, getattr(modules[module], name))
        for module, name in types
    )


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
    # If pydantic is not imported, there are no models.
    pydantic = cast("Any", sys.modules.get("pydantic"))
    return pydantic is not None and isinstance(value, pydantic.BaseModel)


def _dump_model(model: object, path: str) -> object:
    try:
        return cast("Any", model).model_dump(mode="json", by_alias=True)
    except ValueError as error:
        name = type_name(model)
        raise NotJsonError(path, f"is a {name} that cannot be dumped to JSON: {error}") from error


_ENVELOPE_KEYS: Final = frozenset({"content", "structuredContent", "details", "isError", "_meta"})
_MAX_MESSAGE_CHARACTERS: Final = 8_000


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolResult:
    """A result with structured data and text, or an error."""

    structured: object = None
    text: str | None = None
    is_error: bool = False


async def convert_result(tool: Tool, returned: object) -> JsonValue:
    """Call `value_of_result`, in a thread if the value is large."""
    if _is_small(returned):
        return value_of_result(tool, returned)
    return await run_in_json_thread(value_of_result, tool, returned)


def _is_small(returned: object) -> bool:
    try:
        return is_small(returned)
    except Exception:
        # The methods of the returned object may raise anything. The conversion reports it.
        return True


def value_of_result(tool: Tool, returned: object) -> JsonValue:
    """The JSON value of a tool's return value.

    Raises ToolFailedError for an error result, for a value that is not JSON
    (`invalid_tool_result`), and for one that is too large (`result_too_large`). The result of an
    MCP tool is not unwrapped, because its callers expect the format of the protocol.
    """
    try:
        return _value_of(tool, returned)
    except ToolFailedError:
        raise
    except TooLargeError as error:
        message = f"the result of {tool.name} {error.problem}; request less data at a time"
        raise ToolFailedError(message, code="result_too_large", tool_id=tool.id) from error
    except NotJsonError as error:
        raise _invalid_result(tool, f"a value that is not JSON: {error}") from error
    except Exception as error:
        # The methods of the returned object may raise anything.
        problem = f"a value whose own code raised {type(error).__name__}"
        raise _invalid_result(tool, problem) from error


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


def _invalid_result(tool: Tool, problem: str) -> ToolFailedError:
    message = (
        f"{tool.name} returned {problem}; "
        "a tool must return JSON values, dataclasses or pydantic models"
    )
    return ToolFailedError(message, code="invalid_tool_result", tool_id=tool.id)


def _is_envelope(value: JsonObject) -> bool:
    content = value.get("content")
    if not isinstance(content, list) or not value.keys() <= _ENVELOPE_KEYS:
        return False
    has_parts = all(
        isinstance(part, dict) and isinstance(part.get("type"), str) for part in content
    )
    # An object with only an empty `content` may be data.
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
    message = text or _find_message(structured) or f"{tool.name} failed without an error message"
    if len(message) > _MAX_MESSAGE_CHARACTERS:
        message = f"{message[:_MAX_MESSAGE_CHARACTERS]}… ({len(message)} characters)"
    raise ToolFailedError(
        message,
        code="tool_failed",
        tool_id=tool.id,
        details={} if structured is None else {"structured": structured},
    )


def _find_message(structured: JsonValue) -> str:
    if isinstance(structured, dict):
        for key in ("message", "error"):
            message = structured.get(key)
            if isinstance(message, str) and message:
                return message
    if structured is None:
        return ""
    return structured if isinstance(structured, str) else encode_json(structured).decode()


def take_images(result: JsonValue) -> tuple[JsonValue, tuple[ImagePart, ...]]:
    """Replace the images of an MCP result by markers, and return them. Other values stay as is.

    The marker of an image that no model can take says why.
    """
    content = result.get("content") if isinstance(result, dict) else None
    if not isinstance(result, dict) or not isinstance(content, list):
        return result, ()
    images: list[ImagePart] = []
    parts = [_take_image(part, images) for part in content]
    return {**result, "content": parts}, tuple(images)


def _take_image(part: JsonValue, images: list[ImagePart]) -> JsonValue:
    match part:
        case {"type": "image", "data": str(data), "mimeType": str(media_type)}:
            pass
        case _:
            return part
    marker: JsonObject = {
        "type": "image",
        "mimeType": media_type[:_MAX_KEY_CHARACTERS],
        "bytes": _decoded_bytes(data),
    }
    try:
        if len(images) >= MAX_IMAGES:
            raise InvalidImage(f"a result may have {MAX_IMAGES} images")
        images.append(check_image(media_type, data))
    except InvalidImage as problem:
        marker["omitted"] = str(problem)
    return marker


def part_text(part: JsonObject) -> str:
    """The text of a content part; other parts are described in brackets."""
    match part:
        case {"type": "text", "text": str(text)}:
            return text
        case {"type": "resource", "resource": {"text": str(text)}}:
            return text
        case {"type": "resource", "resource": {"uri": str(uri)} as resource}:
            return _describe_part("resource", uri, resource.get("mimeType"), resource.get("blob"))
        case {"type": "image", "mimeType": str(media_type), "bytes": int(size)}:
            omitted = part.get("omitted")
            reason = f", left out: {omitted}" if isinstance(omitted, str) else ""
            return f"[image {media_type}, {size} bytes{reason}]"
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
