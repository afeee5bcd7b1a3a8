"""The four tools that a model may be shown before the catalog: what it is told, what they take."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from nacre.errors import NacreError
from nacre.json_types import NotJsonError, decode_json

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from nacre.config.tool_search import Mode, ToolSearchConfig
    from nacre.json_types import JsonObject, JsonValue

CODE_NAME: Final = "tool_search_code"
SEARCH_NAME: Final = "tool_search"
DESCRIBE_NAME: Final = "tool_describe"
CALL_NAME: Final = "tool_call"

CONTROLS_BY_MODE: Final[Mapping[Mode, tuple[str, ...]]] = MappingProxyType(
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


@dataclass(frozen=True, kw_only=True, slots=True)
class ControlTool:
    """A control as the model sees it. Schemas are flat: some providers refuse `anyOf`."""

    description: str
    """With a place for the owners of the tools."""
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


class InvalidInput(NacreError):
    """Arguments that a control does not take; the message says what it does take."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


def parse_program(given: JsonObject) -> str:
    """The program in the arguments of `tool_search_code`; raises InvalidInput."""
    code = given.get("code")
    if not isinstance(code, str) or not code.strip():
        raise InvalidInput(
            f"{CODE_NAME} takes a JavaScript program as `code`: the body of an async function, "
            'such as `return await openclaw.tools.search("create an issue")`'
        )
    if code.lstrip().startswith("```"):
        raise InvalidInput("the code is fenced as Markdown; send the program alone")
    return code


def parse_tool_args(given: JsonObject) -> JsonValue:
    """What `tool_call` is to call the tool with; some models write the object as JSON text."""
    # A misspelt `args` would be a call without any.
    others = [key[:_MAX_SHOWN] for key in given if key not in ("id", "args")][:_MAX_SHOWN_KEYS]
    if others:
        raise InvalidInput(
            f"{CALL_NAME} takes `id` and `args`; given as well: {', '.join(others)}. "
            "What the tool takes goes into `args`, as one object"
        )
    args = given.get("args")
    if not isinstance(args, str):
        return args
    try:
        return decode_json(args.encode(errors="replace"))
    except NotJsonError as error:
        raise InvalidInput(f"`args` is text that is not JSON: {error}; send an object") from error
