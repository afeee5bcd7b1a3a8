"""The answer to one HTTP request, as ASGI wants it: whole, in chunks, or broken off."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nacre.json_types import encode_json

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from starlette.types import Send

    from nacre.json_types import JsonObject


@dataclass(kw_only=True, slots=True)
class HttpReply:
    """Begun by the first thing that is sent; `cut` closes the connection as it is."""

    send: Send
    cut: Callable[[], None]
    is_begun: bool = False

    async def json(
        self, status: int, body: JsonObject, headers: Mapping[str, str] | None = None
    ) -> None:
        data = encode_json(body)
        await self._begin(status, "application/json", {"content-length": str(len(data))}, headers)
        await self.send({"type": "http.response.body", "body": data})

    async def chunk(self, data: bytes, *, is_stream: bool) -> None:
        if not self.is_begun:
            await self._begin(200, "text/event-stream" if is_stream else "application/json")
        await self.send({"type": "http.response.body", "body": data, "more_body": True})

    async def end(self) -> None:
        await self.send({"type": "http.response.body", "body": b""})

    async def _begin(
        self, status: int, content_type: str, *headers: Mapping[str, str] | None
    ) -> None:
        self.is_begun = True
        named = {"content-type": content_type, "x-request-id": "req_scripted"}
        for more in headers:
            named |= more or {}
        encoded = [(name.encode(), value.encode()) for name, value in named.items()]
        await self.send({"type": "http.response.start", "status": status, "headers": encoded})
