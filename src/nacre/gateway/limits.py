"""How much of a request is read, and for how long; and what is refused when it is too much."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import anyio
from starlette.datastructures import Headers

from nacre.gateway.errors import ApiError, error_response

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from nacre.gateway.state import GatewayState

BODY_SECONDS: Final = 60.0


class BodyLimit:
    """Refuses a body that is too large before it is read, or as soon as it turns out to be; and one
    that does not come to its end."""

    def __init__(
        self, app: ASGIApp, state: GatewayState, *, body_seconds: float = BODY_SECONDS
    ) -> None:
        self._app = app
        self._state = state
        self._body_seconds = body_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        most = self._state.system.config.gateway.max_body_bytes
        announced = Headers(scope=scope).get("content-length", "")
        if announced.isdecimal() and int(announced[:20]) > most:
            await error_response(scope, _too_large(most))(scope, receive, send)
            return
        await self._app(scope, _Body(receive, most, self._body_seconds), send)


class _Body:
    """A `receive` that counts."""

    def __init__(self, receive: Receive, most_bytes: int, seconds: float) -> None:
        self._receive = receive
        self._most_bytes = most_bytes
        self._seconds = seconds
        self._deadline: float | None = None
        self._bytes = 0
        self._is_whole = False

    async def __call__(self) -> Message:
        if self._is_whole:
            # From here on a message only says that the client has gone.
            return await self._receive()
        message = await self._in_time()
        self._bytes += len(message.get("body", b""))
        self._is_whole = not message.get("more_body", False)
        if self._bytes > self._most_bytes:
            raise _too_large(self._most_bytes)
        return message

    async def _in_time(self) -> Message:
        if self._deadline is None:
            self._deadline = anyio.current_time() + self._seconds
        try:
            with anyio.fail_after(self._deadline - anyio.current_time()):
                return await self._receive()
        except TimeoutError:
            raise ApiError(
                408, f"the body was not complete after {self._seconds:g} seconds"
            ) from None


def _too_large(most_bytes: int) -> ApiError:
    return ApiError(413, f"the body is larger than {most_bytes} bytes; see `gateway.maxBodyBytes`")
