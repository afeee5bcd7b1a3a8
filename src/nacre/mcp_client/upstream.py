"""What servers ask of us: passed on to whoever is on the other side, or refused in plain words."""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Final, Protocol

from nacre.errors import NacreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from nacre.json_types import JsonObject, JsonValue

logger = logging.getLogger(__name__)

METHOD_NOT_FOUND: Final = -32601
INTERNAL_ERROR: Final = -32603
MAX_QUESTIONS_PER_CALL: Final = 20
"""How often a server may ask a person or a model during one call of it."""

_REFUSED: Final = -32000
# A server that asks without end must not fill our memory, nor a person's screen.
_MAX_OPEN: Final = 8
# By method: the capability that a client announces for it.
_CAPABILITIES: Final = {
    "elicitation/create": "elicitation",
    "sampling/createMessage": "sampling",
    "roots/list": "roots",
}


class UpstreamRefusal(NacreError):
    """Raised to refuse a server's request; the message goes to the server."""

    def __init__(self, message: str, *, code: int = _REFUSED) -> None:
        super().__init__(message)
        self.message = message
        self.code = code


class UpstreamRequests(Protocol):
    """Answers what a server asks. Params and results are as MCP has them; raises UpstreamRefusal.

    An answer may take as long as a person needs: the timeouts of calls stand still meanwhile.
    """

    @property
    def capabilities(self) -> JsonObject:
        """What can be asked now, as a client announces it: any of `elicitation`, `sampling` and
        `roots`, each with an object."""
        ...

    async def elicit(self, server: str, params: JsonObject) -> JsonObject: ...

    async def sample(self, server: str, params: JsonObject) -> JsonObject: ...

    async def roots(self, server: str, params: JsonObject) -> JsonObject: ...


class UpstreamGate:
    """The requests of one server: known methods, announced capabilities, a few at a time."""

    def __init__(
        self,
        server: str,
        upstream: UpstreamRequests | None,
        *,
        asking: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._server = server
        self._upstream = upstream
        self._asking = asking
        self._open_count = 0

    def capabilities(self) -> JsonObject:
        """What to announce to the server."""
        if self._upstream is None:
            return {}
        known = _CAPABILITIES.values()
        return {key: value for key, value in self._upstream.capabilities.items() if key in known}

    async def answer(self, method: str, params: JsonObject) -> JsonObject:
        """The result for the server; raises UpstreamRefusal."""
        if method == "ping":
            return {}
        capability = _CAPABILITIES.get(method)
        if capability is None:
            raise UpstreamRefusal(
                f"{method[:80]} is not known to this client", code=METHOD_NOT_FOUND
            )
        if self._upstream is None or capability not in self._upstream.capabilities:
            problem = f"{capability} is not supported: nobody is there to answer {method}"
            raise UpstreamRefusal(problem, code=METHOD_NOT_FOUND)
        if self._open_count >= _MAX_OPEN:
            raise UpstreamRefusal(f"{_MAX_OPEN} requests are open already; wait for an answer")
        self._open_count += 1
        try:
            with self._asking():
                return await self._forward(self._upstream, capability, params)
        finally:
            self._open_count -= 1

    async def answer_all(self, requests: JsonValue) -> JsonObject:
        """The answers to what a result asks for before it is complete, by their keys."""
        answers: JsonObject = {}
        asked = requests if isinstance(requests, dict) else {}
        if len(asked) > MAX_QUESTIONS_PER_CALL:
            # Before the first: answers to some of them are of no use to anybody.
            raise UpstreamRefusal(
                f"the result asks {len(asked)} questions; the most is {MAX_QUESTIONS_PER_CALL}"
            )
        for key, request in asked.items():
            match request:
                case {"method": str(method), **rest}:
                    params = rest.get("params")
                    known = params if isinstance(params, dict) else {}
                    answers[key] = await self.answer(method, known)
                case _:
                    raise UpstreamRefusal("a request for input has no method")
        return answers

    async def _forward(
        self, upstream: UpstreamRequests, capability: str, params: JsonObject
    ) -> JsonObject:
        try:
            match capability:
                case "elicitation":
                    return await upstream.elicit(self._server, params)
                case "sampling":
                    return await upstream.sample(self._server, params)
                case _:
                    return await upstream.roots(self._server, params)
        except UpstreamRefusal:
            raise
        except Exception as error:
            # The server learns that it failed; why is for the operator.
            logger.exception("%s for the MCP server %s failed", capability, self._server)
            raise UpstreamRefusal(f"{capability} failed", code=INTERNAL_ERROR) from error
