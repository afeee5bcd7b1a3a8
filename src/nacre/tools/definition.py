"""A tool: its definition, schema and digest, its results as JSON, and the formats of providers."""

from __future__ import annotations

import hashlib
import math
import sys
import weakref
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from dataclasses import field, fields, is_dataclass
from enum import Enum
from functools import cached_property
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, Self, TypeAlias, cast, get_args
from urllib.parse import unquote

from nacre.errors import ToolDefinitionError, ToolFailedError
from nacre.json_types import MAX_JSON_DEPTH, NotJsonError, TooLargeError, encode_json, type_name
from nacre.large_json import SizeLimit, is_plain, is_small, run_in_json_thread
from nacre.lazy_dataclasses import dataclass
from nacre.lazy_exports import lazy_pattern
from nacre.messages import MAX_IMAGES, InvalidImage, check_image

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import date

    from nacre.json_types import JsonObject, JsonValue
    from nacre.messages import ImagePart
    from nacre.run_context import AbortSignal, RunContext

ToolSource = Literal["openclaw", "mcp", "client"]
CatalogMode = Literal["catalog", "direct-only"]

SOURCES: Final[tuple[ToolSource, ...]] = get_args(ToolSource)
GUEST_SOURCES: Final[tuple[ToolSource, ...]] = ("openclaw", "client")
"""The sources of `ALL_TOOLS` and `tools.search` in programs; MCP tools are under `MCP`."""
CATALOG_MODES: Final[tuple[CatalogMode, ...]] = get_args(CatalogMode)
CORE_OWNER: Final = "core"

# An id consists of three parts with colons between them. It has no line breaks, and no unpaired
# surrogates, which cannot be encoded.
_OWNER = lazy_pattern(r"[^\s:\x00-\x1f\ud800-\udfff]+")
_NAME = lazy_pattern(r"[^\s\x00-\x1f\ud800-\udfff]+")
_MAX_NAME_CHARACTERS: Final = 256

_MAX_REFERENCE_CHARACTERS: Final = 1_000
_MAX_PARTS: Final = 20_000
_INDEX = lazy_pattern(r"0|[1-9][0-9]{0,8}")

_MAX_KEY_CHARACTERS: Final = 60
_BYTES = (bytes, bytearray, memoryview)
# A value can be of such a type only if something has imported the module.
_TEXT_TYPES: Final = (("uuid", "UUID"), ("decimal", "Decimal"))
_TIME_TYPES: Final = (("datetime", "date"), ("datetime", "time"))
_ARRAYS = (list, tuple, set, frozenset)
_NOT_SCALAR: Final = object()


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolCall:
    """The call that a tool serves: its ids, its context and its abort signal."""

    id: str
    parent_id: str
    """The id of the `exec` call that contains this nested call; empty for a direct call."""
    context: RunContext
    abort: AbortSignal
    update: Callable[[JsonValue], None]
    """Reports progress to the readers of the run; it is not part of the result."""
    pause_timeout: Callable[[], AbstractContextManager[None]] = nullcontext
    """Enter it while the tool waits for a client, to pause the timeout of the program."""
    idempotency_key: str = ""
    """The same for a call and its repetition after a restart, and for no other call."""


Execute: TypeAlias = Callable[[dict[str, Any], ToolCall], Awaitable[object]]
"""The function of a tool. Its input has been validated. It returns JSON, or a value that
`nacre.tools.definition` can convert to JSON. An exception becomes an error for the caller."""


def _any_object() -> JsonObject:
    return {"type": "object", "properties": {}}


@dataclass(frozen=True, kw_only=True)
class Tool:
    """A tool that a model can call; raises ToolDefinitionError if the definition is invalid."""

    name: str
    description: str = ""
    parameters: JsonObject = field(default_factory=_any_object)
    """The JSON Schema of the input, which is an object."""
    execute: Execute
    label: str | None = None
    """A short name for people."""
    output_schema: JsonObject | None = None
    owner: str = CORE_OWNER
    """The provider of the tool: `core`, a plugin id, or the name of an MCP server or client."""
    source: ToolSource = "openclaw"
    is_bundled: bool = False
    """Whether it belongs to a bundled plugin; these tools are listed first."""
    catalog_mode: CatalogMode = "catalog"
    """`direct-only` if results are not JSON; the model then sees the tool next to `exec`."""
    needs_approval: str = ""
    """Why every call needs an approval; empty if none does."""
    is_idempotent: bool = False
    """Whether a call with the same input, or the same `idempotency_key`, can be repeated safely.
    If a process ends during such a call of a durable cell, the next one repeats it."""

    def __post_init__(self) -> None:
        self._check_names()
        if self.source not in SOURCES:
            raise self._definition_error(
                f"source is {self.source!r}; allowed: {', '.join(SOURCES)}"
            )
        if self.catalog_mode not in CATALOG_MODES:
            allowed = ", ".join(CATALOG_MODES)
            raise self._definition_error(
                f"catalog_mode is {self.catalog_mode!r}; allowed: {allowed}"
            )
        if not callable(self.execute):
            raise self._definition_error("execute is not callable; it must be an async function")
        self._check_schema("parameters", self.parameters)
        if self.output_schema is not None:
            self._check_schema("output_schema", self.output_schema)

    @cached_property
    def id(self) -> str:
        """`<source>:<owner>:<name>`."""
        return f"{self.source}:{self.owner}:{self.name}"

    def _check_names(self) -> None:
        for field_name, value, shape, rule in (
            ("name", self.name, _NAME, "text without spaces"),
            ("owner", self.owner, _OWNER, "text without spaces and colons"),
        ):
            is_text = isinstance(value, str)  # pyright: ignore[reportUnnecessaryIsInstance]
            if not is_text or len(value) > _MAX_NAME_CHARACTERS or not shape.fullmatch(value):
                raise ToolDefinitionError(
                    f"a tool's {field_name} is {value!r}; it must be {rule}, "
                    f"at most {_MAX_NAME_CHARACTERS} characters"
                )
        if not isinstance(self.description, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise self._definition_error("description is not text")

    def _check_schema(self, field_name: str, schema: object) -> None:
        if not isinstance(schema, Mapping):
            raise self._definition_error(
                f"{field_name} is a {type(schema).__name__}; it must be a dict"
            )
        members = cast("Mapping[str, object]", schema)
        kind = members.get("type", "object")
        if field_name == "parameters" and kind != "object":
            raise self._definition_error(f"parameters describe a {kind!r}; a tool takes one object")
        try:
            encode_json(members)
        except NotJsonError as error:
            raise self._definition_error(f"{field_name} is not JSON: {error}") from error

    def _definition_error(self, problem: str) -> ToolDefinitionError:
        return ToolDefinitionError(f"tool {self.name!r} of {self.owner!r}: {problem}")


_EMPTY_DEFINITION: Final = b'{"type":"function","function":{"name":,"description":,"parameters":}}'


class _Measured(weakref.ref[Tool]):
    """The digest of a tool, and the size of its definition. A reference, to save memory."""

    __slots__ = ("definition_bytes", "digest", "key")

    def __new__(cls, tool: Tool) -> Self:
        return super().__new__(cls, tool, _forget)

    def __init__(self, tool: Tool) -> None:
        # `weakref.ref` is complete after `__new__`.
        self.key = id(tool)
        # Three times faster than JSON; a catalog may have thousands of tools.
        said = repr((tool.id, tool.label, tool.description, tool.parameters))
        self.digest = hashlib.sha256(said.encode(errors="surrogatepass")).digest()
        self.definition_bytes = 0


def _forget(measured: weakref.ref[Tool]) -> None:
    _MEASURED.pop(cast("_Measured", measured).key, None)


# By identity, because tools are not hashable. An entry is removed together with its tool.
_MEASURED: Final[dict[int, _Measured]] = {}


def tool_digest(tool: Tool) -> bytes:
    """A digest of the id, the label, the description and the parameters."""
    return _measured(tool).digest


def definition_bytes(tool: Tool) -> int:
    """The size of its definition in a request to a model, in the format of OpenAI."""
    measured = _measured(tool)
    if not measured.definition_bytes:
        parts = (tool.name, tool.description, tool.parameters)
        size = sum(len(encode_json(part)) for part in parts)
        measured.definition_bytes = len(_EMPTY_DEFINITION) + size
    return measured.definition_bytes


def _measured(tool: Tool) -> _Measured:
    known = _MEASURED.get(id(tool))
    if known is None or known() is not tool:
        known = _MEASURED[id(tool)] = _Measured(tool)
    return known


DefinitionFormat = Literal["openai", "openai-responses", "anthropic", "mcp"]


def format_tool(tool: Tool, format: DefinitionFormat) -> JsonObject:
    """The definition of a tool for a model provider or MCP."""
    return format_definition(
        tool.name, tool.description, tool.parameters, format, output_schema=tool.output_schema
    )


def format_definition(
    name: str,
    description: str,
    parameters: JsonObject,
    format: DefinitionFormat,
    *,
    output_schema: JsonObject | None = None,
) -> JsonObject:
    """A tool definition in one format. Only `mcp` supports an output schema."""
    # A copy, because some SDKs modify schemas in place.
    schema = deepcopy(parameters)
    common: JsonObject = {"name": name, "description": description}
    match format:
        case "openai":
            return {"type": "function", "function": {**common, "parameters": schema}}
        case "openai-responses":
            # The default is strict, which makes all optional parameters required.
            return {"type": "function", **common, "parameters": schema, "strict": False}
        case "anthropic":
            return {**common, "input_schema": schema}
        case "mcp":
            output: JsonObject = (
                {} if output_schema is None else {"outputSchema": deepcopy(output_schema)}
            )
            return {**common, "inputSchema": schema, **output}
        case _:  # pyright: ignore[reportUnnecessaryComparison]
            allowed = ", ".join(get_args(DefinitionFormat))
            raise ValueError(f"format is {format!r}; allowed: {allowed}")


OPERATION_MARK: Final = "$"
"""Prefix of server operations other than tools, such as `$resources.read`. They are tools too, so
that all calls use the same call path; the name of a server's own tool cannot start with it."""


class ToolServer(Protocol):
    """An MCP server as code mode sees it; it may not be connected, or may fail."""

    @property
    def name(self) -> str:
        """Its name in the configuration; the owner of its tools."""
        ...

    @property
    def description(self) -> str:
        """The server's own description; empty until it is connected."""
        ...

    @property
    def known_tools(self) -> Sequence[Tool] | None:
        """The tools as last listed, None before that; a new object after each change."""
        ...

    async def tools(self) -> Sequence[Tool]:
        """Connect and list the tools if necessary; raises ToolServerError.

        A caller that is cancelled must not stop the listing: searches wait only for a short time.
        """
        ...


class ListedServer:
    """A server with a fixed list of tools."""

    def __init__(self, name: str, tools: Sequence[Tool]) -> None:
        self.name = name
        self.description = ""
        self.known_tools: Sequence[Tool] = tools

    async def tools(self) -> Sequence[Tool]:
        return self.known_tools


def servers_of(tools: Iterable[Tool]) -> list[ToolServer]:
    """The MCP tools among these, grouped into one server per owner."""
    by_owner: dict[str, list[Tool]] = {}
    for tool in tools:
        if tool.source == "mcp":
            by_owner.setdefault(tool.owner, []).append(tool)
    return [ListedServer(owner, owned) for owner, owned in by_owner.items()]


def as_list(value: object) -> list[object]:
    """The items of an array; an empty list for other values."""
    return list(cast("Iterable[object]", value)) if isinstance(value, (list, tuple)) else []


def as_dict(value: object) -> dict[str, object]:
    """The object; an empty dict for other values."""
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}


def target_of(root: object, reference: str) -> object:
    """The target of a local reference; None if it does not exist or is not local."""
    pointer = reference.removeprefix("#")
    is_local = reference.startswith("#") and (not pointer or pointer.startswith("/"))
    if not is_local or len(reference) > _MAX_REFERENCE_CHARACTERS:
        return None
    found = root
    for step in pointer.split("/")[1:]:
        key = unquote(step).replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict):
            found = as_dict(cast("object", found)).get(key)
        elif isinstance(found, list) and _INDEX.fullmatch(key):
            items = cast("list[object]", found)
            found = items[int(key)] if int(key) < len(items) else None
        else:
            return None
    return found


def count_references(root: object) -> Counter[str]:
    """How often the schema uses each reference; only its first parts are counted."""
    uses: Counter[str] = Counter()
    todo, visited = [root], 0
    while todo and visited < _MAX_PARTS:
        part = todo.pop()
        visited += 1
        if isinstance(part, dict):
            node = as_dict(cast("object", part))
            reference = node.get("$ref")
            if isinstance(reference, str):
                uses[reference] += 1
            todo.extend(node.values())
        elif isinstance(part, (list, tuple)):
            todo.extend(as_list(cast("object", part)))
    return uses


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
