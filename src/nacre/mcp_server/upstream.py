"""What upstream servers ask for goes to the client whose call made them ask, or is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from nacre.mcp_client.upstream import METHOD_NOT_FOUND, UpstreamRefusal
from nacre.mcp_server.questions import ClientRefusedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from nacre.json_types import JsonObject
    from nacre.mcp_server.questions import ClientFeature, QuestionMethod
    from nacre.mcp_server.served_calls import ServedCall

_WHAT_IS_MISSING: Final[dict[ClientFeature, str]] = {
    "form": "cannot show forms (elicitation)",
    "url": "cannot open pages (elicitation of mode url)",
    "sampling": "has no sampling",
    "sampling-tools": "has no sampling with tools",
    "roots": "has no roots",
}


class ClientOfSession:
    """The client of one session, for the servers behind it (`UpstreamRequests`)."""

    def __init__(self, call_for: Callable[[str], ServedCall | None]) -> None:
        self._call_for = call_for
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
        # The client shows it as a question of ours, and a person has to know whom they tell.
        named: JsonObject = {**params, "message": f"{server} asks: {params.get('message', '')}"}
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
        call = self._call_for(server)
        if call is None:
            raise UpstreamRefusal(f"{method} is only passed on during a call, and none is open")
        if feature not in call.features:
            problem = f"{method} is refused: the MCP client {_WHAT_IS_MISSING[feature]}"
            raise UpstreamRefusal(problem, code=METHOD_NOT_FOUND)
        # A progress token and the like belong to the server's own connection.
        own = {key: value for key, value in params.items() if key != "_meta"}
        try:
            return await call.ask(method, own)
        except ClientRefusedError as refusal:
            raise UpstreamRefusal(str(refusal)) from refusal
