"""The control tools of Tool Search, and which tools the model sees."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal

from nacre.json_types import NotJsonError, decode_json
from nacre.tools import (
    DefinitionFormat,
    InvalidCall,
    format_definition,
    format_tool,
    is_control_tool,
    split_direct_tools,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from nacre.config import ToolSearchConfig, ToolSearchMode
    from nacre.json_types import JsonObject, JsonValue
    from nacre.tools import Tool


CODE_NAME: Final = "tool_search_code"
SEARCH_NAME: Final = "tool_search"
DESCRIBE_NAME: Final = "tool_describe"
CALL_NAME: Final = "tool_call"

CONTROLS_BY_MODE: Final[Mapping[ToolSearchMode, tuple[str, ...]]] = MappingProxyType(
    {"code": (CODE_NAME,), "tools": (SEARCH_NAME, DESCRIBE_NAME, CALL_NAME)}
)

_MAX_SHOWN: Final = 60
_MAX_SHOWN_KEYS: Final = 5

_CODE: Final = (
    "Find and call tools with a short JavaScript program. code is the body of an async function:"
    " await calls, and return the value you need, as plain data.\n"
    "openclaw.tools.search(task, {{limit}}) finds tools: [{{id, name, description, source}}];"
    " openclaw.tools.describe(id) gives a tool's input schema (parameters): look before you guess;"
    " openclaw.tools.call(id, args) calls it and gives its result; a failed call throws an Error"
    " (message, code, toolId). console.log adds output.\n"
    'Example: const [hit] = await openclaw.tools.search("create an issue"); return'
    " openclaw.tools.describe(hit.id)\n"
    "No imports, files or network but through tools. Nothing is kept between programs.\n"
    "Tools are provided by: {owners}."
)
_SEARCH: Final = (
    "Find tools for a task, best first. Then read a tool's input schema with tool_describe and"
    " call it with tool_call. Tools are provided by: {owners}."
)
_DESCRIBE: Final = "What one tool does and takes: its input schema, by the id from tool_search."
_CALL: Final = (
    "Call a tool by the id from tool_search; args have to fit the schema from tool_describe."
)
_MAX_OWNER_CHARACTERS: Final = 400


@dataclass(frozen=True, kw_only=True, slots=True)
class ControlTool:
    """A control tool for the model. Its schema is flat: some providers refuse `anyOf`."""

    description: str
    """With a placeholder for the owners of the tools."""
    parameters: Callable[[ToolSearchConfig], JsonObject]


def _code_parameters(_config: ToolSearchConfig) -> JsonObject:
    return _object({"code": {"type": "string"}}, "code")


def _search_parameters(config: ToolSearchConfig) -> JsonObject:
    limit: JsonObject = {"type": "integer", "minimum": 1, "maximum": config.max_search_limit}
    return _object({"query": {"type": "string"}, "limit": limit}, "query")


def _describe_parameters(_config: ToolSearchConfig) -> JsonObject:
    return _object({"id": {"type": "string"}}, "id")


def _call_parameters(_config: ToolSearchConfig) -> JsonObject:
    return _object({"id": {"type": "string"}, "args": {"type": "object"}}, "id", "args")


def _object(properties: JsonObject, *required: str) -> JsonObject:
    return {"type": "object", "properties": properties, "required": list(required)}


CONTROLS: Final[Mapping[str, ControlTool]] = MappingProxyType(
    {
        CODE_NAME: ControlTool(description=_CODE, parameters=_code_parameters),
        SEARCH_NAME: ControlTool(description=_SEARCH, parameters=_search_parameters),
        DESCRIBE_NAME: ControlTool(description=_DESCRIBE, parameters=_describe_parameters),
        CALL_NAME: ControlTool(description=_CALL, parameters=_call_parameters),
    }
)


def parse_program(given: JsonObject) -> str:
    """Parse the arguments of `tool_search_code`. Raises InvalidCall."""
    code = given.get("code")
    if not isinstance(code, str) or not code.strip():
        raise InvalidCall(
            f"{CODE_NAME} takes a JavaScript program as `code`: the body of an async function, "
            'such as `return await openclaw.tools.search("create an issue")`'
        )
    if code.lstrip().startswith("```"):
        raise InvalidCall("the code is fenced as Markdown; send the program alone")
    return code


def parse_tool_args(given: JsonObject) -> JsonValue:
    """Parse the `args` of `tool_call`; some models write the object as JSON text."""
    # With a misspelt `args` the tool would get no arguments.
    others = [key[:_MAX_SHOWN] for key in given if key not in ("id", "args")][:_MAX_SHOWN_KEYS]
    if others:
        raise InvalidCall(
            f"{CALL_NAME} takes `id` and `args`; given as well: {', '.join(others)}. "
            "What the tool takes goes into `args`, as one object"
        )
    args = given.get("args")
    if not isinstance(args, str):
        return args
    try:
        return decode_json(args.encode(errors="replace"))
    except NotJsonError as error:
        raise InvalidCall(f"`args` is text that is not JSON: {error}; send an object") from error


SurfaceMode = Literal["code", "tools", "direct"]
"""`direct`: Tool Search is not active, and the model sees the tools themselves."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelSurface:
    """The tools of a run: those that the model sees, and those that it can find."""

    mode: SurfaceMode
    direct_tools: tuple[Tool, ...]
    """The tools that the model sees; with Tool Search only direct-only tools."""
    cataloged: tuple[Tool, ...]
    server_names: tuple[str, ...] = ()

    @property
    def control_names(self) -> tuple[str, ...]:
        return () if self.mode == "direct" else CONTROLS_BY_MODE[self.mode]

    @property
    def tool_names(self) -> tuple[str, ...]:
        """The names of all tools that the model sees."""
        return (*self.control_names, *(tool.name for tool in self.direct_tools))

    def definitions(self, format: DefinitionFormat, config: ToolSearchConfig) -> list[JsonObject]:
        """The definitions of these tools, in the format of a provider."""
        owners = _owner_text([*(tool.owner for tool in self.cataloged), *self.server_names])
        controls = [
            format_definition(
                name,
                CONTROLS[name].description.format(owners=owners),
                CONTROLS[name].parameters(config),
                format,
            )
            for name in self.control_names
        ]
        return [*controls, *(format_tool(tool, format) for tool in self.direct_tools)]


def is_tool_search_active(
    config: ToolSearchConfig,
    *,
    is_code_mode: bool,
    tools: Sequence[Tool],
    has_servers: bool = False,
    tools_disabled: bool = False,
) -> bool:
    """Whether the model sees the controls; `tools` are those that policy permits.

    Code mode takes precedence, and a run without tools stays without tools.
    """
    if not config.enabled or is_code_mode or tools_disabled:
        return False
    return has_servers or not all(is_control_tool(tool) for tool in tools)


def searchable_surface(
    tools: Sequence[Tool], *, mode: ToolSearchMode, server_names: Sequence[str]
) -> ModelSurface:
    """The surface with controls. Raises CatalogError if a direct-only tool has the name of one."""
    direct, cataloged = split_direct_tools(
        tools, controls=CONTROLS_BY_MODE[mode], owner="Tool Search"
    )
    return ModelSurface(
        mode=mode,
        direct_tools=direct,
        cataloged=cataloged,
        server_names=tuple(server_names),
    )


def direct_surface(tools: Sequence[Tool]) -> ModelSurface:
    return ModelSurface(mode="direct", direct_tools=tuple(tools), cataloged=())


def _owner_text(owners: Sequence[str]) -> str:
    """List the owners of the tools, so that the model knows what to search for."""
    distinct = list(dict.fromkeys(owners))
    shown: list[str] = []
    left = _MAX_OWNER_CHARACTERS
    for owner in distinct:
        left -= len(owner) + 2
        if left < 0:
            break
        shown.append(owner)
    more = len(distinct) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")
