"""Turns the tools, resources and prompts of a server into tools."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from fnmatch import translate
from typing import TYPE_CHECKING, Any, Final, Protocol

from nacre.errors import ToolDefinitionError, ToolFailedError
from nacre.json_types import NotJsonError, encode_json
from nacre.mcp_client.peer_errors import RpcError
from nacre.mcp_client.results import limit_result_size
from nacre.tools import OPERATION_MARK, Execute, Tool, ToolCall, possible_guest_names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from nacre.config import McpServerConfig
    from nacre.json_types import JsonObject, JsonValue
    from nacre.mcp_client.handshake import ServerFacts


# A server that reports without end must not fill the record of a run.
_MAX_UPDATES: Final = 200
_MAX_MESSAGE_CHARACTERS: Final = 2_000


class Ask(Protocol):
    """Asks the server of a connection, which is started for it. Raises RpcError for an error that
    the server answers with, small and without secrets, ToolServerError when there is no answer,
    NotJsonError for params."""

    async def __call__(
        self,
        method: str,
        params: JsonObject,
        *,
        on_progress: Callable[[JsonObject], None] | None = None,
    ) -> JsonObject: ...


def execute_with(
    ask: Ask,
    config: McpServerConfig,
    *,
    tool_id: str,
    method: str,
    params_from: Callable[[JsonObject], JsonObject],
) -> Execute:
    """What a tool does when it is called."""

    async def execute(given: dict[str, Any], call: ToolCall) -> JsonObject:
        try:
            params = params_from(given)
            result = await ask(method, params, on_progress=_forward_progress(call))
            return await limit_result_size(result, max_bytes=config.max_result_bytes)
        except RpcError as error:
            raise _tool_error(error, tool_id) from error
        except NotJsonError as error:
            problem = f"the input cannot be sent: {error}"
            raise ToolFailedError(problem, code="tool_failed", tool_id=tool_id) from error

    return execute


def _forward_progress(call: ToolCall) -> Callable[[JsonObject], None]:
    left = _MAX_UPDATES

    def update(progress: JsonObject) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            return
        message = progress.get("message")
        if isinstance(message, str):
            progress["message"] = message[:_MAX_MESSAGE_CHARACTERS]
        if left == 0:
            progress["message"] = f"more than {_MAX_UPDATES} reports; no others are kept"
        call.update(progress)

    return update


def _tool_error(error: RpcError, tool_id: str) -> ToolFailedError:
    details: dict[str, object] = {"rpcCode": error.code}
    if error.data is not None:
        details["data"] = error.data
    message = error.message or f"the server answered with error {error.code} and no message"
    return ToolFailedError(message, code="tool_failed", tool_id=tool_id, details=details)


class ToolPatterns:
    """Globs without regard to case. One matches a tool by the name that the server gave it, by
    those that programs may call it by, and by its id; an operation with and without its mark."""

    def __init__(self, server: str, patterns: Sequence[str]) -> None:
        self._server = server
        self._compiled = {text: re.compile(translate(_fold(text))) for text in patterns}

    def matches(self, name: str) -> bool:
        if not self._compiled:
            return False
        names = [_fold(known) for known in _known_names(self._server, name)]
        return any(_matches_one(pattern, names) for pattern in self._compiled.values())

    def without_match(self, names: Iterable[str]) -> list[str]:
        """The patterns that match none of the names."""
        left = dict(self._compiled)
        for name in names:
            if not left:
                break
            known = [_fold(known) for known in _known_names(self._server, name)]
            for text in [text for text, found in left.items() if _matches_one(found, known)]:
                del left[text]
        return list(left)


class ToolPermissions:
    """What the configuration of a server says of its tools and operations."""

    def __init__(self, config: McpServerConfig) -> None:
        self._config = config
        self._allow = None if config.allow is None else ToolPatterns(config.name, config.allow)
        self._deny = ToolPatterns(config.name, config.deny)
        self._asked = ToolPatterns(config.name, config.require_approval)

    def permits(self, name: str) -> bool:
        """Without an allow list, all that is not denied; what is denied is so, allowed or not."""
        is_allowed = self._allow is None or self._allow.matches(name)
        return is_allowed and not self._deny.matches(name)

    def approval_for(self, name: str) -> str:
        """Why a person has to agree to a call; empty if nobody has to."""
        if not self._asked.matches(name):
            return ""
        return f"the configuration of {self._config.name} asks for it"

    def notes(self, names: Sequence[str]) -> Iterator[str]:
        """A pattern that matches none of the names has no effect: most likely a slip."""
        config = self._config
        settings = (
            ("allow", config.allow or ()),
            ("deny", config.deny),
            ("requireApproval", config.require_approval),
        )
        for setting, patterns in settings:
            # `*` means all, even where there is nothing.
            named = [pattern for pattern in patterns if pattern != "*"]
            for pattern in ToolPatterns(config.name, named).without_match(names):
                yield f"`{setting}` has {pattern!r}, which matches no tool of this server"


def _known_names(server: str, name: str) -> Iterator[str]:
    plain = name.removeprefix(OPERATION_MARK)
    for spelled in {name, plain}:
        yield spelled
        yield f"mcp:{server}:{spelled}"
    if plain == name:
        yield from possible_guest_names(name)


def _matches_one(pattern: re.Pattern[str], names: Sequence[str]) -> bool:
    return any(map(pattern.match, names))


def _fold(text: str) -> str:
    return unicodedata.normalize("NFC", text).casefold()


_MAX_SCHEMA_BYTES: Final = 256 * 1024
_MAX_ALL_SCHEMAS_BYTES: Final = 32 * 1024 * 1024
_MAX_DESCRIPTION_CHARACTERS: Final = 16_000
_MAX_TITLE_CHARACTERS: Final = 200
_MAX_SHOWN_CHARACTERS: Final = 60
_MAX_NOTE_CHARACTERS: Final = 200


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolListing:
    """The tools of a server, and notes on those that are not as it listed them."""

    tools: tuple[Tool, ...]
    notes: tuple[str, ...]
    listed_bytes: int = 0
    """What the server's own list takes as compact JSON."""


def build_tools(raw: Sequence[JsonValue], config: McpServerConfig, ask: Ask) -> ToolListing:
    """Takes some 20 microseconds per tool; may be called in a thread."""
    made = _ToolMaker(config, ask)
    for item in raw:
        made.add(item)
    return ToolListing(tools=tuple(made.tools.values()), notes=tuple(made.notes))


class _ToolMaker:
    """Makes one tool after the other; they share what their schemas may take."""

    def __init__(self, config: McpServerConfig, ask: Ask) -> None:
        self._config = config
        self._permissions = ToolPermissions(config)
        self._ask = ask
        self._left_bytes = _MAX_ALL_SCHEMAS_BYTES
        self.tools: dict[str, Tool] = {}
        self.notes: list[str] = []

    def add(self, item: JsonValue) -> None:
        if not isinstance(item, dict) or not isinstance(item.get("name"), str):
            self.notes.append("an entry of its list is no tool; it is left out")
            return
        name = str(item["name"])
        if not self._permissions.permits(name):
            return
        problem = self._problem_with(name)
        if not problem:
            try:
                self.tools[name] = self._tool(name, item)
            except ToolDefinitionError as error:
                problem = str(error)
        if problem:
            self._note(name, f"left out: {problem}")

    def _problem_with(self, name: str) -> str:
        if name.startswith(OPERATION_MARK):
            return f"names that start with {OPERATION_MARK} are taken"
        return "another tool has the same name" if name in self.tools else ""

    def _tool(self, name: str, item: JsonObject) -> Tool:
        config = self._config
        return Tool(
            name=name,
            source="mcp",
            owner=config.name,
            description=_text(item.get("description"), _MAX_DESCRIPTION_CHARACTERS),
            label=_title(item),
            parameters=self._input_schema(name, item.get("inputSchema")),
            output_schema=self._output_schema(name, item.get("outputSchema")),
            needs_approval=self._permissions.approval_for(name),
            execute=execute_with(
                self._ask,
                config,
                tool_id=f"mcp:{config.name}:{name}",
                method="tools/call",
                params_from=lambda given: {"name": name, "arguments": given},
            ),
        )

    def _input_schema(self, name: str, schema: JsonValue) -> JsonObject:
        if isinstance(schema, dict) and schema.get("type", "object") == "object":
            problem = self._schema_problem(schema)
            if not problem:
                return schema
        else:
            problem = "describes no object"
        self._note(name, f"its input schema {problem}; any object is accepted")
        return {"type": "object"}

    def _output_schema(self, name: str, schema: JsonValue) -> JsonObject | None:
        if schema is None:
            return None
        problem = self._schema_problem(schema) if isinstance(schema, dict) else "is no object"
        if isinstance(schema, dict) and not problem:
            return schema
        self._note(name, f"its output schema {problem}; it is left out")
        return None

    def _schema_problem(self, schema: JsonObject) -> str:
        try:
            size_bytes = len(encode_json(schema))
        except NotJsonError as error:
            return f"is not JSON: {error}"
        if size_bytes > _MAX_SCHEMA_BYTES:
            return f"has {size_bytes:,} bytes, more than {_MAX_SCHEMA_BYTES:,}"
        if size_bytes > self._left_bytes:
            return f"comes after {_MAX_ALL_SCHEMAS_BYTES:,} bytes of others"
        self._left_bytes -= size_bytes
        return ""

    def _note(self, name: str, text: str) -> None:
        shown = text[:_MAX_NOTE_CHARACTERS]
        self.notes.append(f"tool {name[:_MAX_SHOWN_CHARACTERS]!r}: {shown}")


def _title(item: JsonObject) -> str | None:
    annotations = item.get("annotations")
    hint = annotations.get("title") if isinstance(annotations, dict) else None
    title = _text(item.get("title"), _MAX_TITLE_CHARACTERS) or _text(hint, _MAX_TITLE_CHARACTERS)
    return title or None


def _text(value: JsonValue, max_characters: int) -> str:
    if not isinstance(value, str):
        return ""
    return value if len(value) <= max_characters else f"{value[:max_characters]}…"


_CURSOR: Final[JsonObject] = {
    "type": "object",
    "properties": {
        "cursor": {"type": "string", "description": "`nextCursor` of the page before"},
    },
}
_URI: Final[JsonObject] = {
    "type": "object",
    "properties": {"uri": {"type": "string"}},
    "required": ["uri"],
}
_PROMPT: Final[JsonObject] = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "arguments": {"type": "object", "additionalProperties": {"type": "string"}},
    },
    "required": ["name"],
}


@dataclass(frozen=True, kw_only=True, slots=True)
class _Operation:
    name: str
    capability: str
    method: str
    description: str
    parameters: JsonObject


_OPERATIONS: Final = (
    _Operation(
        name="resources.list",
        capability="resources",
        method="resources/list",
        description="List the resources of this server, a page at a time.",
        parameters=_CURSOR,
    ),
    _Operation(
        name="resources.read",
        capability="resources",
        method="resources/read",
        description="Read a resource of this server.",
        parameters=_URI,
    ),
    _Operation(
        name="resources.templates",
        capability="resources",
        method="resources/templates/list",
        description="List the templates for addresses of resources, a page at a time.",
        parameters=_CURSOR,
    ),
    _Operation(
        name="prompts.list",
        capability="prompts",
        method="prompts/list",
        description="List the prompts of this server, a page at a time.",
        parameters=_CURSOR,
    ),
    _Operation(
        name="prompts.get",
        capability="prompts",
        method="prompts/get",
        description="Get a prompt of this server, filled in.",
        parameters=_PROMPT,
    ),
)

OPERATION_NAMES: Final = tuple(f"{OPERATION_MARK}{operation.name}" for operation in _OPERATIONS)


def build_operations(facts: ServerFacts, config: McpServerConfig, ask: Ask) -> Iterator[Tool]:
    """Only what the server says it has and the configuration permits, as with tools."""
    permissions = ToolPermissions(config)
    for operation in _OPERATIONS:
        name = f"{OPERATION_MARK}{operation.name}"
        if not facts.has(operation.capability) or not permissions.permits(name):
            continue
        yield Tool(
            name=name,
            source="mcp",
            owner=config.name,
            description=operation.description,
            parameters=operation.parameters,
            needs_approval=permissions.approval_for(name),
            execute=execute_with(
                ask,
                config,
                tool_id=f"mcp:{config.name}:{name}",
                method=operation.method,
                params_from=dict,
            ),
        )
