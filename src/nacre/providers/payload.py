"""Inspects the body of a model request before it is sent: which tools it contains.

One HTTP client serves many requests at once; which of them a body belongs to is known by context.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

from nacre.errors import ProviderError
from nacre.json_types import JsonValue, NotJsonError, decode_json, encode_json
from nacre.providers.base import SentPayload

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from nacre.json_types import JsonObject
    from nacre.providers.base import PayloadCheck


# Where a body may hold tools: `functions` is what Chat Completions had before `tools`.
_TOOL_KEYS: Final = ("tools", "functions")
_GOOGLE_KEYS: Final = ("functionDeclarations", "function_declarations")
# Members that give a model tools without naming one: servers of Anthropic's connector, searches of
# OpenAI, xAI and OpenRouter, and what was stored at the provider with tools of its own.
_HIDING_KEYS: Final = (
    "mcp_servers",
    "web_search_options",
    "search_parameters",
    "plugins",
    "prompt",
    "cachedContent",
    "cached_content",
)
# Any other type is a tool that the provider has of its own, whatever name it is given.
_OUR_TYPES: Final = (None, "function", "custom")


class UnreadableToolsError(ValueError):
    """A body in which something stands for a tool and has no name."""


class PayloadRefusedError(Exception):
    """Nothing was sent, for `reason`: what the check raised. Not to be tried again."""

    def __init__(self, reason: Exception) -> None:
        super().__init__(reason)
        self.reason = reason


class Exchange:
    """One attempt to ask a model: sees every body before it is sent."""

    def __init__(self, check: PayloadCheck | None, *, attempt: int = 1) -> None:
        self._check = check
        self.attempt = attempt
        self.refusal: Exception | None = None
        """Why nothing was sent; clients wrap what is raised while they send, or try again."""

    def inspect(self, body: bytes) -> None:
        """Raises what the check raises, and again for everything that is tried afterwards."""
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
    def is_current(self) -> Generator[None]:
        """What is sent meanwhile belongs to this exchange. Never to be held across a `yield`."""
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)


_current: ContextVar[Exchange | None] = ContextVar("nacre_model_exchange", default=None)


def current_exchange() -> Exchange:
    """Raises ProviderError where there is none: what nobody checks is not sent."""
    exchange = _current.get()
    if exchange is None:
        raise ProviderError("a request to a model was not sent: it belongs to nobody's question")
    return exchange


def sent_payload(body: bytes) -> SentPayload:
    """Raises UnreadableToolsError for a body whose tools cannot be told."""
    try:
        content = decode_json(body)
    except NotJsonError as error:
        raise UnreadableToolsError(f"its body {error.problem}") from None
    if not isinstance(content, dict):
        raise UnreadableToolsError("its body is not a JSON object")
    lists = list(_tool_lists(content))
    names = [name for tools in lists for tool in tools for name in _names_of(tool)]
    # An empty object counts: `web_search_options` is on with one.
    hiding = [key for key in _HIDING_KEYS if content.get(key) not in (None, "", [])]
    return SentPayload(
        tool_names=(*names, *hiding),
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
    # OpenAI Responses can declare tools in the middle of a conversation, too.
    items = content.get("input")
    for item in items if isinstance(items, list) else []:
        if isinstance(item, dict) and "tools" in item and not _is_message(item):
            yield from _tool_lists({"tools": item["tools"]})


def _is_message(item: JsonObject) -> bool:
    # A role alone does not make one: items that declare tools have it as well.
    return "role" in item and item.get("type", "message") == "message"


def _names_of(tool: JsonValue) -> Iterator[str]:
    """Chat: `function.name`; Responses, Anthropic: `name`; Google: `functionDeclarations[].name`.

    Tools that a provider has of its own have no name but a type, or are just a key.
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
    elif tool.get("type") not in _OUR_TYPES:
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
