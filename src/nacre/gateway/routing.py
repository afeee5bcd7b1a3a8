"""What all routes share: the state of the gateway, and JSON request bodies."""

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Annotated, Any, cast

from fastapi import Depends, Request, Response
from fastapi.routing import APIRoute

from nacre.errors import ConfigError
from nacre.gateway.errors import ApiError
from nacre.json_types import NotJsonError, decode_json

if TYPE_CHECKING:
    from nacre.bootstrap import System
    from nacre.gateway.metrics import Metrics


class GatewayState:
    """The system behind the gateway, and how the gateway itself does."""

    def __init__(self, system: "System", *, metrics: "Metrics", made_token: str = "") -> None:
        """`made_token` is what callers need where the configuration has no token."""
        self.system = system
        self.metrics = metrics
        self.is_closing = False
        """Whether no new work is taken; what runs is being finished."""
        self.made_token = made_token
        if system.config.gateway.auth_mode == "token" and not self.token:
            raise ConfigError("gateway.auth.token", "is not set, and none was made")

    @property
    def token(self) -> str:
        return self.system.config.gateway.token or self.made_token


async def _state_of(request: Request) -> GatewayState:
    # Async though it awaits nothing: FastAPI would run a plain function in a thread.
    return cast("GatewayState", request.app.state.gateway)


State = Annotated[GatewayState, Depends(_state_of)]


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
