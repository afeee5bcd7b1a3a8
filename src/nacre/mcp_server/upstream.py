"""Forwards the requests of upstream servers to the client whose call caused them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from nacre.display import is_invisible, visible_lines
from nacre.json_types import encode_json
from nacre.mcp_client.upstream import MAX_QUESTIONS_PER_CALL, METHOD_NOT_FOUND, UpstreamRefusal
from nacre.mcp_server.client_channel import ClientRefusedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from nacre.json_types import JsonObject, JsonValue
    from nacre.mcp_server.client_channel import ClientFeature, QuestionMethod
    from nacre.mcp_server.served_calls import ServedCall


# Keys of words that are only read; all else is a name or a value, which has to come back as it is.
_WORDS: Final = frozenset(("message", "title", "description", "enumNames"))
# MCP has flat forms.
_MAX_LEVELS: Final = 16
_MAX_BYTES: Final = 64 * 1024


def clean_question(params: JsonObject) -> JsonObject:
    """The parameters of an elicitation, cleaned; raises UpstreamRefusal."""
    size_bytes = len(encode_json(params))
    if size_bytes > _MAX_BYTES:
        raise UpstreamRefusal(f"the question has {size_bytes} bytes; the most is {_MAX_BYTES}")
    return {key: _clean(it, key, _MAX_LEVELS) for key, it in params.items()}


def _clean(value: JsonValue, key: str, levels_left: int) -> JsonValue:
    if levels_left == 0:
        raise UpstreamRefusal(f"the question is nested more than {_MAX_LEVELS} levels deep")
    match value:
        case str() if key in _WORDS:
            return visible_lines(value)
        case str():
            return _exact(value)
        case list():
            return [_clean(it, key, levels_left - 1) for it in value]
        case dict():
            return {_exact(name): _clean(it, name, levels_left - 1) for name, it in value.items()}
        case _:
            return value


def _exact(text: str) -> str:
    if any(is_invisible(it) and it not in "\n\t" for it in text):
        raise UpstreamRefusal(
            "a name or value in the question has characters that cannot be seen: "
            f"{text[:80].encode('ascii', 'backslashreplace').decode()}"
        )
    return text


_WHAT_IS_MISSING: Final[dict[ClientFeature, str]] = {
    "form": "cannot show forms (elicitation)",
    "url": "cannot open pages (elicitation of mode url)",
    "sampling": "has no sampling",
    "sampling-tools": "has no sampling with tools",
    "roots": "has no roots",
}


class CallsOfSession(Protocol):
    """The calls that a client waits for, and what servers may ask during them."""

    def call_for(self, server: str) -> ServedCall | None:
        """The call that made a server ask something."""
        ...

    def may_ask(self, server: str, call: ServedCall) -> bool:
        """Whether the server may ask a person or a model once more; counts as asked if so."""
        ...


class ClientOfSession:
    """The client of one session, for the servers behind it (`UpstreamRequests`)."""

    def __init__(self, calls: Callable[[], CallsOfSession]) -> None:
        """`calls` is asked for when a server asks: they are made after this."""
        self._calls = calls
        self.features: frozenset[ClientFeature] = frozenset()
        """What the client could be asked when it was last heard of."""

    @property
    def capabilities(self) -> JsonObject:
        """As a client announces them to a server."""
        offered: JsonObject = {}
        modes: JsonObject = {mode: {} for mode in ("form", "url") if mode in self.features}
        if modes:
            offered["elicitation"] = modes
        if "sampling" in self.features:
            offered["sampling"] = {"tools": {}} if "sampling-tools" in self.features else {}
        if "roots" in self.features:
            offered["roots"] = {}
        return offered

    async def elicit(self, server: str, params: JsonObject) -> JsonObject:
        """The person's answer; the question says which server asks."""
        shown = clean_question({key: it for key, it in params.items() if key != "_meta"})
        # The client shows it as a question of ours, and a person has to know whom they tell.
        named: JsonObject = {**shown, "message": f"{server} asks: {shown.get('message', '')}"}
        feature: ClientFeature = "url" if params.get("mode") == "url" else "form"
        return await self._ask(server, "elicitation/create", named, feature)

    async def sample(self, server: str, params: JsonObject) -> JsonObject:
        """What the client's model says."""
        needs_tools = bool(params.get("tools") or params.get("toolChoice"))
        feature: ClientFeature = "sampling-tools" if needs_tools else "sampling"
        return await self._ask(server, "sampling/createMessage", params, feature)

    async def roots(self, server: str, params: JsonObject) -> JsonObject:
        """The client's roots."""
        return await self._ask(server, "roots/list", params, "roots")

    async def _ask(
        self, server: str, method: QuestionMethod, params: JsonObject, feature: ClientFeature
    ) -> JsonObject:
        call = self._calls().call_for(server)
        if call is None:
            raise UpstreamRefusal(f"{method} is only passed on during a call, and none is open")
        if feature not in call.features:
            problem = f"{method} is refused: the MCP client {_WHAT_IS_MISSING[feature]}"
            raise UpstreamRefusal(problem, code=METHOD_NOT_FOUND)
        if method != "roots/list" and not self._calls().may_ask(server, call):
            raise UpstreamRefusal(
                f"{method} is refused: {MAX_QUESTIONS_PER_CALL} questions were asked during this "
                "call already"
            )
        # A progress token and the like belong to the server's own connection.
        own = {key: value for key, value in params.items() if key != "_meta"}
        try:
            return await call.ask(method, own)
        except ClientRefusedError as refusal:
            raise UpstreamRefusal(str(refusal)) from refusal
