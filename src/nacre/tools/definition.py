"""The definition of a tool, its schema and digest, and the formats of model providers and MCP."""

from __future__ import annotations

import hashlib
import re
import weakref
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from dataclasses import field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, Self, TypeAlias, cast, get_args
from urllib.parse import unquote

from nacre.errors import ToolDefinitionError
from nacre.json_types import NotJsonError, encode_json
from nacre.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from nacre.json_types import JsonObject, JsonValue
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
_OWNER = re.compile(r"[^\s:\x00-\x1f\ud800-\udfff]+")
_NAME = re.compile(r"[^\s\x00-\x1f\ud800-\udfff]+")
_MAX_NAME_CHARACTERS: Final = 256

_MAX_REFERENCE_CHARACTERS: Final = 1_000
_MAX_PARTS: Final = 20_000
_INDEX = re.compile(r"0|[1-9][0-9]{0,8}")


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
`nacre.tools.tool_result` can convert to JSON. An exception becomes an error for the caller."""


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
