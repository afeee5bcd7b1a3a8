"""Errors of a request to a server. This module does not import the SDK."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nacre.errors import NacreError

if TYPE_CHECKING:
    from nacre.json_types import JsonValue


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
