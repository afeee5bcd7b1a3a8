"""The ASGI application: routes and middleware."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fastapi import FastAPI, Security
from fastapi.security import HTTPBearer

import nacre
from nacre.gateway.errors import add_error_handlers
from nacre.gateway.metrics import Metrics, log_failures
from nacre.gateway.middleware import AuthMiddleware, BodyLimit, RequestMeter, is_probe
from nacre.gateway.openai import openai_router
from nacre.gateway.routes import approvals, runs, sessions, trajectories
from nacre.gateway.routes import system as system_routes
from nacre.gateway.routing import GatewayState

if TYPE_CHECKING:
    from starlette.types import Scope

    from nacre.bootstrap import System

_DESCRIPTION: Final = """Agents over HTTP: sessions, runs, approvals and trajectories under `/api`,
and the same agents under `/v1` for OpenAI clients. Times are seconds since the epoch."""

# For the OpenAPI document only: `AuthMiddleware` checks the token.
_BEARER: Final = HTTPBearer(auto_error=False, description="The token of the gateway.")


def create_app(system: System, *, generated_token: str = "") -> FastAPI:
    """Create the application of an open system, which the caller closes.

    `generated_token` applies if the configuration has no token. Raises ConfigError if a token is
    required and there is none.
    """
    metrics = Metrics(system)
    state = GatewayState(system, metrics=metrics, generated_token=generated_token)
    system.agents.watch_runs(log_failures)
    app = FastAPI(
        title="Nacre gateway",
        version=nacre.__version__,
        description=_DESCRIPTION,
        # These pages would run scripts of another server.
        docs_url=None,
        redoc_url=None,
        separate_input_output_schemas=False,
        # FastAPI creates a span per request; its inner spans are not useful.
        telemetry={"operation_spans": False, "exclude": is_probe},
        # A redirect has no error body, and not all clients repeat the request's body.
        redirect_slashes=False,
    )
    app.state.gateway = state
    app.include_router(system_routes.open_router)
    for router in (
        system_routes.metrics_router,
        runs.router,
        trajectories.router,
        sessions.router,
        approvals.router,
        system_routes.router,
    ):
        app.include_router(router, dependencies=[Security(_BEARER)])
    app.include_router(openai_router(system), dependencies=[Security(_BEARER)])
    add_error_handlers(app)
    # The last one runs first.
    app.add_middleware(BodyLimit, state)
    app.add_middleware(AuthMiddleware, state)
    app.add_middleware(RequestMeter, metrics)
    _build_routes(app)
    return app


def _build_routes(app: FastAPI) -> None:
    """Let FastAPI build its routes now. With the first request, it would stop the event loop."""
    unknown: Scope = {"type": "http", "method": "GET", "path": "", "root_path": "", "headers": []}
    for route in app.routes:
        route.matches(unknown)
