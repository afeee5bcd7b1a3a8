"""The ASGI application: routes and middleware."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import anyio.to_thread
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from starlette.routing import Route

import nacre
from nacre.gateway.auth import AuthMiddleware, is_probe
from nacre.gateway.errors import add_error_handlers
from nacre.gateway.metrics import Metrics, RequestMeter, log_failures
from nacre.gateway.openai import create_openai_api, openai_router
from nacre.gateway.routes import (
    ag_ui,
    approvals,
    catalog,
    cells,
    configuration,
    contents,
    events,
    media,
    operate,
    replay,
    runs,
    session_changes,
    sessions,
    trajectories,
    web,
)
from nacre.gateway.routes import system as system_routes
from nacre.gateway.routing import BodyLimit, GatewayState
from nacre.gateway.web import ASSETS, web_routes

if TYPE_CHECKING:
    from pathlib import Path

    from nacre.bootstrap import System
    from nacre.config import ConfigFile

_DESCRIPTION: Final = """Agents over HTTP: sessions, runs, approvals and trajectories under `/api`,
and the same agents under `/v1` for OpenAI clients. Times are seconds since the epoch."""

_ROUTERS: Final = (
    system_routes.open_router,
    system_routes.metrics_router,
    events.router,
    runs.router,
    trajectories.router,
    replay.router,
    sessions.router,
    session_changes.router,
    approvals.router,
    contents.router,
    media.router,
    operate.heartbeats_router,
    system_routes.router,
    web.open_router,
    web.router,
    operate.router,
    cells.router,
    catalog.router,
    ag_ui.router,
    configuration.router,
    openai_router,
)


def create_app(
    system: System,
    *,
    generated_token: str = "",
    config_file: ConfigFile | None = None,
    assets: Path = ASSETS,
) -> FastAPI:
    """Create the application of an open system, which the caller closes.

    `generated_token` applies if the configuration has no token. Clients can read and change
    `config_file`. `assets` is the folder of the built web app. Raises ConfigError if a token is
    required and there is none.
    """
    metrics = Metrics(system)
    system.diagnostics.sources["metrics.txt"] = metrics.render
    state = GatewayState(
        system, metrics=metrics, generated_token=generated_token, config_file=config_file
    )
    system.agents.watch_runs(log_failures)
    app = FastAPI(
        # `include_router` would build each of them again, with the first request.
        routes=[
            *(route for router in _ROUTERS for route in router.routes),
            Route("/openapi.json", _get_document, include_in_schema=False),
        ],
        openapi_url=None,
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
    app.state.openai = create_openai_api(system)
    app.router.routes.extend(web_routes(assets))
    add_error_handlers(app)
    # The last one runs first.
    app.add_middleware(BodyLimit, state)
    app.add_middleware(AuthMiddleware, state)
    app.add_middleware(RequestMeter, metrics)
    return app


async def _get_document(request: Request) -> JSONResponse:
    # In a thread: the first time, it takes half a second, in which the loop would serve nobody.
    return JSONResponse(await anyio.to_thread.run_sync(request.app.openapi))
