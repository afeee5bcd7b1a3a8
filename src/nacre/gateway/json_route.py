"""Route classes that read request bodies as strict JSON."""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
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


class OpenAiRoute(JsonRoute):
    """A body that does not fit is a bad request: 400, where our own API says 422."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            try:
                return await handler(request)
            except RequestValidationError as error:
                raise _bad_request(error.errors()) from None

        return handle


def _bad_request(problems: Sequence[Mapping[str, Any]]) -> ApiError:
    first = problems[0]
    path = _format_path(first["loc"])
    if not path:
        return ApiError(400, "the body has to be a JSON object, sent as application/json")
    return ApiError(400, f"`{path}`: {first['msg']}", path=path)


def _format_path(location: Sequence[str | int]) -> str:
    path = ""
    for step in location[1:]:
        if isinstance(step, int):
            path += f"[{step}]"
        elif not _is_alternative(step):
            path += f".{step}" if path else step
    return path


def _is_alternative(step: str) -> bool:
    """Where a member may be of several types, pydantic names the one that it tried."""
    return step == "str" or step.startswith("list[") or step[:1].isupper()
