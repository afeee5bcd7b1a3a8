"""Bodies as strict JSON: what comes in can be written again, stored, and passed to a sandbox."""

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute

from nacre.gateway.errors import ApiError
from nacre.json_types import NotJsonError, decode_json


class JsonRoute(APIRoute):
    """A route whose body is read by our own decoder: no NaN, no half characters, no bottomless
    nesting."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            return await handler(_JsonRequest(request.scope, request.receive))

        return handle


class _JsonRequest(Request):
    async def json(self) -> Any:
        try:
            return decode_json(await self.body())
        except NotJsonError as error:
            raise ApiError(400, f"the body {error.problem}", path="body") from None
