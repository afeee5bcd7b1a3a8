"""What all requests share."""

from typing import TYPE_CHECKING, Annotated, cast

from fastapi import Depends, Request

from nacre.errors import ConfigError

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
