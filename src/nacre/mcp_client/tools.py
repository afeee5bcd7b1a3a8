"""Turns the tools, resources and prompts of a server into tools."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from fnmatch import translate
from typing import TYPE_CHECKING, Any, Final, Protocol

from nacre.errors import ToolDefinitionError, ToolFailedError
from nacre.json_types import NotJsonError, encode_json
from nacre.mcp_client.results import limit_result_size
from nacre.mcp_client.upstream import RpcError
from nacre.tools import OPERATION_MARK, Execute, Tool, ToolCall, possible_guest_names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from nacre.config import McpServerConfig
    from nacre.json_types import JsonObject, JsonValue


# A server must not fill the record of a run with progress updates.
_MAX_UPDATES: Final = 200
_MAX_MESSAGE_CHARACTERS: Final = 2_000


class SendRequest(Protocol):
    """Sends a request to a server, which is started if needed.

    Raises RpcError if the server responds with an error, ToolServerError if there is no response,
    and NotJsonError for invalid params.
    """

    async def __call__(
        self,
        method: str,
        params: JsonObject,
        *,
        on_progress: Callable[[JsonObject], None] | None = None,
    ) -> JsonObject: ...


def execute_with(
    send: SendRequest,
    config: McpServerConfig,
    *,
    tool_id: str,
    method: str,
    params_from: Callable[[JsonObject], JsonObject],
) -> Execute:
    """Return the `execute` function of a tool."""

    async def execute(given: dict[str, Any], call: ToolCall) -> JsonObject:
        try:
            params = params_from(given)
            result = await send(method, params, on_progress=_forward_progress(call))
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
            progress["message"] = f"more than {_MAX_UPDATES} updates; later ones are dropped"
        call.update(progress)

    return update


def _tool_error(error: RpcError, tool_id: str) -> ToolFailedError:
    details: dict[str, object] = {"rpcCode": error.code}
    if error.data is not None:
        details["data"] = error.data
    message = error.message or f"the server responded with error {error.code} without a message"
    return ToolFailedError(message, code="tool_failed", tool_id=tool_id, details=details)


class ToolPatterns:
    """Case-insensitive glob patterns for tools.

    A pattern matches the name on the server, the names in programs, or the id of a tool. For an
    operation, it matches the name with and without its mark.
    """

    def __init__(self, server: str, patterns: Sequence[str]) -> None:
        self._server = server
        self._compiled = {text: re.compile(translate(_fold(text))) for text in patterns}

    def matches(self, name: str) -> bool:
        if not self._compiled:
            return False
        names = [_fold(known) for known in _candidate_names(self._server, name)]
        return any(_matches_one(pattern, names) for pattern in self._compiled.values())

    def find_unmatched(self, names: Iterable[str]) -> list[str]:
        """Return the patterns that match none of the names."""
        left = dict(self._compiled)
        for name in names:
            if not left:
                break
            known = [_fold(known) for known in _candidate_names(self._server, name)]
            for text in [text for text, found in left.items() if _matches_one(found, known)]:
                del left[text]
        return list(left)


class ToolPermissions:
    """Which tools and operations of a server the configuration allows."""

    def __init__(self, config: McpServerConfig) -> None:
        self._config = config
        self._allow = None if config.allow is None else ToolPatterns(config.name, config.allow)
        self._deny = ToolPatterns(config.name, config.deny)
        self._need_approval = ToolPatterns(config.name, config.require_approval)

    def permits(self, name: str) -> bool:
        """Whether the tool is allowed. `deny` wins. Without `allow`, all others are allowed."""
        is_allowed = self._allow is None or self._allow.matches(name)
        return is_allowed and not self._deny.matches(name)

    def approval_for(self, name: str) -> str:
        """Return why a call needs an approval, or an empty string."""
        if not self._need_approval.matches(name):
            return ""
        return f"the configuration of {self._config.name} requires it"

    def notes(self, names: Sequence[str]) -> Iterator[str]:
        """Yield a note for each pattern that matches none of the names, as it is likely a typo."""
        config = self._config
        settings = (
            ("allow", config.allow or ()),
            ("deny", config.deny),
            ("requireApproval", config.require_approval),
        )
        for setting, patterns in settings:
            # `*` is valid without any tools.
            specific = [pattern for pattern in patterns if pattern != "*"]
            for pattern in ToolPatterns(config.name, specific).find_unmatched(names):
                yield f"`{setting}` has {pattern!r}, which matches no tool of this server"


def _candidate_names(server: str, name: str) -> Iterator[str]:
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
    """The tools of a server, and notes about tools that were changed or left out."""

    tools: tuple[Tool, ...]
    notes: tuple[str, ...]
    left_out: tuple[str, ...] = ()
    """Which tools cannot be called, and why."""
    listed_bytes: int = 0
    """The size of the server's list as compact JSON."""


def build_tools(
    raw: Sequence[JsonValue], config: McpServerConfig, send: SendRequest
) -> ToolListing:
    """Convert the tools of a server. Takes about 20 microseconds per tool. Thread-safe."""
    builder = _ToolBuilder(config, send)
    for item in raw:
        builder.add(item)
    return ToolListing(
        tools=tuple(builder.tools.values()),
        notes=tuple(builder.notes),
        left_out=tuple(builder.left_out),
    )


class _ToolBuilder:
    """Builds the tools of a server, with a limit on the total size of their schemas."""

    def __init__(self, config: McpServerConfig, send: SendRequest) -> None:
        self._config = config
        self._permissions = ToolPermissions(config)
        self._send = send
        self._left_bytes = _MAX_ALL_SCHEMAS_BYTES
        self.tools: dict[str, Tool] = {}
        self.notes: list[str] = []
        self.left_out: list[str] = []

    def add(self, item: JsonValue) -> None:
        if not isinstance(item, dict) or not isinstance(item.get("name"), str):
            self.notes.append("an entry of its list is not a tool; it is left out")
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
            self.left_out.append(self.notes[-1])

    def _problem_with(self, name: str) -> str:
        if name.startswith(OPERATION_MARK):
            return f"names that start with {OPERATION_MARK} are reserved"
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
            is_idempotent=_is_idempotent(item),
            execute=execute_with(
                self._send,
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
            problem = "does not describe an object"
        self._note(name, f"its input schema {problem}; any object is accepted")
        return {"type": "object"}

    def _output_schema(self, name: str, schema: JsonValue) -> JsonObject | None:
        if schema is None:
            return None
        problem = self._schema_problem(schema) if isinstance(schema, dict) else "is not an object"
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
            return f"exceeds the total of {_MAX_ALL_SCHEMAS_BYTES:,} bytes for all schemas"
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


def _is_idempotent(item: JsonObject) -> bool:
    """Whether the server says that a call can be repeated."""
    hints = item.get("annotations")
    if not isinstance(hints, dict):
        return False
    return hints.get("idempotentHint") is True or hints.get("readOnlyHint") is True


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


def build_operations(
    capabilities: JsonObject, config: McpServerConfig, send: SendRequest
) -> Iterator[Tool]:
    """Yield tools for the resources and prompts that the server has and that are permitted."""
    permissions = ToolPermissions(config)
    for operation in _OPERATIONS:
        name = f"{OPERATION_MARK}{operation.name}"
        is_offered = isinstance(capabilities.get(operation.capability), dict)
        if not is_offered or not permissions.permits(name):
            continue
        yield Tool(
            name=name,
            source="mcp",
            owner=config.name,
            description=operation.description,
            parameters=operation.parameters,
            needs_approval=permissions.approval_for(name),
            execute=execute_with(
                send,
                config,
                tool_id=f"mcp:{config.name}:{name}",
                method=operation.method,
                params_from=dict,
            ),
        )
