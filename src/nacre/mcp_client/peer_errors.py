"""How asking a server can fail, in the client's own terms; free of the SDK."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nacre.errors import NacreError

if TYPE_CHECKING:
    from nacre.json_types import JsonValue


class PeerLostError(NacreError):
    """The connection ended before the answer came."""

    def __init__(
        self, problem: str, *, is_unsent: bool = False, is_connection_over: bool = False
    ) -> None:
        super().__init__(problem)
        self.problem = problem
        self.is_unsent = is_unsent
        """Whether the server cannot have acted on the request, so that it may be sent again."""
        self.is_connection_over = is_connection_over
        """Whether nothing else will come through it; why is found out meanwhile."""


class RpcError(NacreError):
    """The server answered with an error."""

    def __init__(self, code: int, message: str, data: JsonValue = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


class PeerSilentError(NacreError):
    """The server did not answer in time; the connection goes on."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem
