"""Tells the errors that a server answers with from those that the SDK makes up in its name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mcp.shared.message import SessionMessage
from mcp_types import CONNECTION_CLOSED, JSONRPCError

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from mcp.shared._stream_protocols import ReadStream

SERVERS_OWN_CODE: Final = CONNECTION_CLOSED - 1_000_000
"""Stands for the SDK's code of a lost connection where the server itself answered with that."""

# By the transport over HTTP, which has no other way to say that a stream broke off.
_SDK_ERROR_PREFIX: Final = "SSE stream "


class ServerErrorStream:
    """The messages of a transport. An error with the code of a lost connection gets another one,
    unless the transport made it up: many servers use that code for errors of their own."""

    def __init__(
        self, stream: ReadStream[SessionMessage | Exception], *, is_made_up_possible: bool
    ) -> None:
        self._stream = stream
        self._is_made_up_possible = is_made_up_possible

    @property
    def last_context(self) -> object:
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        return self._mark_server_error(await self._stream.receive())

    async def aclose(self) -> None:
        await self._stream.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        return self._mark_server_error(await self._stream.__anext__())

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> bool | None:
        return await self._stream.__aexit__(exc_type, exc_val, exc_tb)

    def _mark_server_error(self, item: SessionMessage | Exception) -> SessionMessage | Exception:
        if not isinstance(item, SessionMessage) or not isinstance(item.message, JSONRPCError):
            return item
        error = item.message.error
        is_made_up = self._is_made_up_possible and error.message.startswith(_SDK_ERROR_PREFIX)
        if error.code == CONNECTION_CLOSED and not is_made_up:
            error.code = SERVERS_OWN_CODE
        return item
