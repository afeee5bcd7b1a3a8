"""Errors of requests to a server, and the requests that servers send to the client.

Servers may request elicitation, sampling and roots. This module does not import the SDK.
"""

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
"""How many requests for a person or a model a server may make during one call."""

_REFUSED: Final = -32000
# Limits the memory and the dialogs that one server can use.
_MAX_OPEN: Final = 8
# The capability that a client announces, by method.
_CAPABILITIES: Final = {
    "elicitation/create": "elicitation",
    "sampling/createMessage": "sampling",
    "roots/list": "roots",
}


class PeerLostError(NacreError):
    """The connection ended before the response arrived."""

    def __init__(
        self, problem: str, *, is_unsent: bool = False, is_connection_over: bool = False
    ) -> None:
        super().__init__(problem)
        self.problem = problem
        self.is_unsent = is_unsent
        """Whether the server has not processed the request, so that it can be sent again."""
        self.is_connection_over = is_connection_over
        """Whether the connection is closed. The reason may not be known yet."""


class RpcError(NacreError):
    """The server responded with an error."""

    def __init__(self, code: int, message: str, data: JsonValue = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


class PeerSilentError(NacreError):
    """The server did not respond in time. The connection stays open."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem


class UpstreamRefusal(NacreError):
    """Refuses a request of a server. The server gets the message."""

    def __init__(self, message: str, *, code: int = _REFUSED) -> None:
        super().__init__(message)
        self.message = message
        self.code = code


class UpstreamRequests(Protocol):
    """Answers requests of servers. Params and results are those of MCP. Raises UpstreamRefusal.

    An answer may take as long as a person needs: the timeouts of calls are paused meanwhile.
    """

    @property
    def capabilities(self) -> JsonObject:
        """The current client capabilities: `elicitation`, `sampling`, `roots` with an object."""
        ...

    async def elicit(self, server: str, params: JsonObject) -> JsonObject: ...

    async def sample(self, server: str, params: JsonObject) -> JsonObject: ...

    async def roots(self, server: str, params: JsonObject) -> JsonObject: ...


class UpstreamGate:
    """Checks the requests of one server and forwards them. `asking` pauses the timeouts."""

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
        """Return the capabilities to announce to the server."""
        if self._upstream is None:
            return {}
        known = _CAPABILITIES.values()
        return {key: value for key, value in self._upstream.capabilities.items() if key in known}

    async def answer(self, method: str, params: JsonObject) -> JsonObject:
        """Return the result for the server. Raises UpstreamRefusal."""
        if method == "ping":
            return {}
        capability = _CAPABILITIES.get(method)
        if capability is None:
            raise UpstreamRefusal(f"{method[:80]} is unknown to this client", code=METHOD_NOT_FOUND)
        if self._upstream is None or capability not in self._upstream.capabilities:
            problem = f"{capability} is not supported: there is no client to answer {method}"
            raise UpstreamRefusal(problem, code=METHOD_NOT_FOUND)
        if self._open_count >= _MAX_OPEN:
            raise UpstreamRefusal(f"{_MAX_OPEN} requests are already open; wait for an answer")
        self._open_count += 1
        try:
            with self._asking():
                return await self._forward(self._upstream, capability, params)
        finally:
            self._open_count -= 1

    async def answer_all(self, requests: JsonValue) -> JsonObject:
        """Return the answers to the input requests of an incomplete result, by key."""
        answers: JsonObject = {}
        by_key = requests if isinstance(requests, dict) else {}
        if len(by_key) > MAX_QUESTIONS_PER_CALL:
            # Checked first, because the server needs all answers.
            raise UpstreamRefusal(
                f"the result has {len(by_key)} requests for input; "
                f"the limit is {MAX_QUESTIONS_PER_CALL}"
            )
        for key, request in by_key.items():
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
            # The details go to the log, not to the server.
            logger.exception("%s for the MCP server %s failed", capability, self._server)
            raise UpstreamRefusal(f"{capability} failed", code=INTERNAL_ERROR) from error
