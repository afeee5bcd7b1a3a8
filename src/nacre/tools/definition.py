"""The definition of a tool, its digest, and the formats of model providers and MCP."""

from __future__ import annotations

import hashlib
import re
import weakref
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias, cast, get_args

from nacre.errors import ToolDefinitionError
from nacre.json_types import NotJsonError, encode_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from nacre.json_types import JsonObject, JsonValue
    from nacre.run_context import AbortSignal, RunContext


ToolSource = Literal["openclaw", "mcp", "client"]
CatalogMode = Literal["catalog", "direct-only"]

SOURCES: Final[tuple[ToolSource, ...]] = get_args(ToolSource)
CATALOG_MODES: Final[tuple[CatalogMode, ...]] = get_args(CatalogMode)
CORE_OWNER: Final = "core"

# An id is three parts with colons between them, one line of text wherever it is shown. Halves of
# surrogate pairs are no text.
_OWNER = re.compile(r"[^\s:\x00-\x1f\ud800-\udfff]+")
_NAME = re.compile(r"[^\s\x00-\x1f\ud800-\udfff]+")
_MAX_NAME_CHARACTERS: Final = 256


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolCall:
    """What a tool learns about the call that it serves, besides its input."""

    id: str
    parent_id: str
    """The call of `exec` that this one is nested in; empty for a direct call."""
    context: RunContext
    abort: AbortSignal
    update: Callable[[JsonValue], None]
    """Report progress: shown to whoever follows the run, not part of the result."""
    away: Callable[[], AbstractContextManager[None]] = nullcontext
    """To be entered while the tool waits for a client: that time is not the program's."""


Execute: TypeAlias = Callable[[dict[str, Any], ToolCall], Awaitable[object]]
"""Does the work. Input has been checked against the schema. What it returns has to be JSON, or what
`nacre.tools.tool_result` can turn into JSON; what it raises becomes an error for the caller."""


def _any_object() -> JsonObject:
    return {"type": "object", "properties": {}}


@dataclass(frozen=True, kw_only=True)
class Tool:
    """Something that a model may call. Raises ToolDefinitionError for what cannot be a tool."""

    name: str
    description: str = ""
    parameters: JsonObject = field(default_factory=_any_object)
    """JSON Schema of the input, an object."""
    execute: Execute
    label: str | None = None
    """A short name for people."""
    output_schema: JsonObject | None = None
    owner: str = CORE_OWNER
    """Who provides it: `core`, a plugin's id, an MCP server's or an application's name."""
    source: ToolSource = "openclaw"
    is_bundled: bool = False
    """Whether the plugin that owns it came with the installation; such tools are listed first."""
    catalog_mode: CatalogMode = "catalog"
    """`direct-only` for results that JSON cannot hold: shown to the model beside `exec`."""
    needs_approval: str = ""
    """Why a person has to agree to every call of it; empty if nobody has to."""

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
            raise self._definition_error("execute cannot be called; it has to be an async function")
        self._check_schema("parameters", self.parameters)
        if self.output_schema is not None:
            self._check_schema("output_schema", self.output_schema)

    @cached_property
    def id(self) -> str:
        """`<source>:<owner>:<name>`, stable across equal sets of tools."""
        return f"{self.source}:{self.owner}:{self.name}"

    def _check_names(self) -> None:
        for field_name, value, shape, rule in (
            ("name", self.name, _NAME, "text without spaces"),
            ("owner", self.owner, _OWNER, "text without spaces and colons"),
        ):
            is_text = isinstance(value, str)  # pyright: ignore[reportUnnecessaryIsInstance]
            if not is_text or len(value) > _MAX_NAME_CHARACTERS or not shape.fullmatch(value):
                raise ToolDefinitionError(
                    f"a tool's {field_name} is {value!r}; it has to be {rule}, "
                    f"at most {_MAX_NAME_CHARACTERS} characters"
                )
        if not isinstance(self.description, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise self._definition_error("description is not text")

    def _check_schema(self, field_name: str, schema: object) -> None:
        if not isinstance(schema, Mapping):
            raise self._definition_error(
                f"{field_name} is a {type(schema).__name__}; it has to be a dict"
            )
        described = cast("Mapping[str, object]", schema)
        kind = described.get("type", "object")
        if field_name == "parameters" and kind != "object":
            raise self._definition_error(f"parameters describe a {kind!r}; a tool takes one object")
        try:
            encode_json(described)
        except NotJsonError as error:
            raise self._definition_error(f"{field_name} is not JSON: {error}") from error

    def _definition_error(self, problem: str) -> ToolDefinitionError:
        return ToolDefinitionError(f"tool {self.name!r} of {self.owner!r}: {problem}")


# By identity, since a tool holds dicts and has no hash; an entry goes when its tool does.
_DIGESTS: Final[dict[int, tuple[weakref.ref[Tool], bytes]]] = {}


def tool_digest(tool: Tool) -> bytes:
    """Equal for tools whose names, texts and parameters are written alike."""
    key = id(tool)
    known = _DIGESTS.get(key)
    if known is not None and known[0]() is tool:
        return known[1]
    told = [tool.id, tool.label, tool.description, tool.parameters]
    digest = hashlib.sha256(encode_json(told)).digest()
    _DIGESTS[key] = (weakref.ref(tool, lambda _: _DIGESTS.pop(key, None)), digest)
    return digest


DefinitionFormat = Literal["openai", "openai-responses", "anthropic", "mcp"]


def format_tool(tool: Tool, format: DefinitionFormat) -> JsonObject:
    """A tool as the model sees it where nothing stands before it."""
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
    """`openai` is the shape of chat completions. Only `mcp` has a place for an output schema."""
    # SDKs rewrite schemas in place; the tool keeps its own.
    schema = deepcopy(parameters)
    shown: JsonObject = {"name": name, "description": description}
    match format:
        case "openai":
            return {"type": "function", "function": {**shown, "parameters": schema}}
        case "openai-responses":
            # Strict, the default there, would make every optional parameter a required one.
            return {"type": "function", **shown, "parameters": schema, "strict": False}
        case "anthropic":
            return {**shown, "input_schema": schema}
        case "mcp":
            output: JsonObject = (
                {} if output_schema is None else {"outputSchema": deepcopy(output_schema)}
            )
            return {**shown, "inputSchema": schema, **output}
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
        """Connect and list the tools if necessary; raises ToolServerError."""
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
