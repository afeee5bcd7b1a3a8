"""Inspects the body of a model request before it is sent: which tools it contains.

One HTTP client serves many concurrent requests; a context variable holds the current one.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

from nacre.errors import ProviderError
from nacre.json_types import JsonValue, NotJsonError, decode_json, encode_json
from nacre.messages import SentPayload

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from nacre.json_types import JsonObject
    from nacre.providers.base import PayloadCheck


# The members with tools; `functions` is the older form of Chat Completions.
_TOOL_KEYS: Final = ("tools", "functions")
_GOOGLE_KEYS: Final = ("functionDeclarations", "function_declarations")
# Members that give the model tools without naming them: MCP servers of Anthropic's connector, web
# search of OpenAI, xAI and OpenRouter, and stored prompts or contents with their own tools.
_HIDDEN_TOOL_KEYS: Final = (
    "mcp_servers",
    "web_search_options",
    "search_parameters",
    "plugins",
    "prompt",
    "cachedContent",
    "cached_content",
)
# Any other type is a built-in tool of the provider, whatever its name.
_FUNCTION_TYPES: Final = (None, "function", "custom")


class UnreadableToolsError(ValueError):
    """The tools in a body cannot be determined."""


class PayloadRefusedError(Exception):
    """The request was not sent because the check raised `reason`; do not retry."""

    def __init__(self, reason: Exception) -> None:
        super().__init__(reason)
        self.reason = reason


class Exchange:
    """One attempt of a model request; checks each body before it is sent."""

    def __init__(self, check: PayloadCheck | None, *, attempt: int = 1) -> None:
        self._check = check
        self.attempt = attempt
        self.refusal: Exception | None = None
        """The exception of the check. HTTP clients may wrap it when they raise it, or retry."""

    def inspect(self, body: bytes) -> None:
        """Check a body; after the first failure, every further body fails too."""
        if self.refusal is not None:
            raise self.refusal
        if self._check is None:
            return
        try:
            self._check(sent_payload(body))
        except UnreadableToolsError as error:
            self.refusal = ProviderError(f"the request was not sent: {error}")
            raise self.refusal from None
        except Exception as error:
            self.refusal = error
            raise

    @contextmanager
    def activate(self) -> Generator[None]:
        """Make this the current exchange. Do not `yield` inside of the block."""
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)


_current: ContextVar[Exchange | None] = ContextVar("nacre_model_exchange", default=None)


def current_exchange() -> Exchange:
    """The current exchange; raises ProviderError if there is none to check the request."""
    exchange = _current.get()
    if exchange is None:
        raise ProviderError("a request to a model was not sent: it belongs to no exchange")
    return exchange


def sent_payload(body: bytes) -> SentPayload:
    """The tools and the size of a body; raises UnreadableToolsError."""
    try:
        content = decode_json(body)
    except NotJsonError as error:
        raise UnreadableToolsError(f"its body {error.problem}") from None
    if not isinstance(content, dict):
        raise UnreadableToolsError("its body is not a JSON object")
    lists = list(_tool_lists(content))
    names = [name for tools in lists for tool in tools for name in _names_of(tool)]
    # An empty object counts, because it enables `web_search_options`.
    hidden = [key for key in _HIDDEN_TOOL_KEYS if content.get(key) not in (None, "", [])]
    return SentPayload(
        tool_names=(*names, *hidden),
        tool_bytes=sum(len(encode_json(tools)) for tools in lists if tools),
        payload_bytes=len(body),
    )


def _tool_lists(content: JsonObject) -> Iterator[list[JsonValue]]:
    for key in _TOOL_KEYS:
        tools = content.get(key)
        if tools is None:
            continue
        if not isinstance(tools, list):
            raise UnreadableToolsError(f"`{key}` in its body is not a list")
        yield tools
    # OpenAI Responses can also declare tools within the conversation.
    items = content.get("input")
    for item in items if isinstance(items, list) else []:
        if isinstance(item, dict) and "tools" in item and not _is_message(item):
            yield from _tool_lists({"tools": item["tools"]})


def _is_message(item: JsonObject) -> bool:
    # A role is not enough, because items that declare tools have one too.
    return "role" in item and item.get("type", "message") == "message"


def _names_of(tool: JsonValue) -> Iterator[str]:
    """The names in one item of `tools`.

    Chat: `function.name`; Responses and Anthropic: `name`; Google: `functionDeclarations[].name`.
    A built-in tool of a provider has a type instead of a name, or is just a key.
    """
    if not isinstance(tool, dict) or not tool:
        raise UnreadableToolsError("a tool in its body is not an object with members")
    declared = [tool.get(key) for key in _GOOGLE_KEYS if key in tool]
    if declared:
        for functions in declared:
            if not isinstance(functions, list):
                raise UnreadableToolsError("`functionDeclarations` in its body is not a list")
            for function in functions:
                yield _name_in(function)
        yield from (key for key in tool if key not in _GOOGLE_KEYS)
    elif tool.get("type") not in _FUNCTION_TYPES:
        yield str(tool["type"])
    elif "function" in tool:
        yield _name_in(tool["function"])
    elif "name" in tool:
        yield _name_in(tool)
    else:
        yield from tool


def _name_in(function: JsonValue) -> str:
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(name, str):
        raise UnreadableToolsError("a tool in its body has no name")
    return name
