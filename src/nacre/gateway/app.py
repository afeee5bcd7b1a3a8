"""The ASGI application: routes, middleware and the log line for each failed run."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from fastapi import FastAPI, Security
from fastapi.security import HTTPBearer

import nacre
from nacre.gateway.errors import add_error_handlers
from nacre.gateway.metrics import Metrics
from nacre.gateway.middleware import OPEN_PATHS, AuthMiddleware, BodyLimit, RequestMeter
from nacre.gateway.openai import openai_router
from nacre.gateway.routes import approvals, health, runs, sessions, trajectories
from nacre.gateway.routes import system as system_routes
from nacre.gateway.routing import GatewayState
from nacre.telemetry.redaction import format_log_line

if TYPE_CHECKING:
    from starlette.types import Scope

    from nacre.agent import AgentRun, RunEvent
    from nacre.bootstrap import System


logger = logging.getLogger(__name__)


def log_failures(run: AgentRun) -> None:
    """Have the run told when it fails; one that somebody aborts has not failed."""
    asked_model = ""

    def handle(event: RunEvent) -> None:
        nonlocal asked_model
        if event.kind == "run.started":
            asked_model = str(event.data["model"])
        elif event.kind == "run.failed":
            _log_failure(
                run.id, str(event.data.get("model") or asked_model), str(event.data.get("error"))
            )

    run.events.subscribe(handle)


def _log_failure(run_id: str, model: str, reason: str) -> None:
    # Callers may name any model, so it is not ours either.
    is_named = not model or model in reason
    told = "" if is_named else f" ({format_log_line(model)})"
    logger.warning("the run %s%s failed: %s", run_id, told, format_log_line(reason))


_ABOUT: Final = """Agents over HTTP: sessions, runs, approvals and trajectories under `/api`; the
same agents under `/v1` for clients of OpenAI. Times are seconds since the epoch."""

# For the document; the doorkeeper asks for the token, before anything else is looked at.
_BEARER: Final = HTTPBearer(auto_error=False, description="The token of the gateway.")

# Asked every few seconds, they would be most of what is traced.
_PROBES: Final = frozenset((*OPEN_PATHS, "/metrics"))


def create_app(system: System, *, made_token: str = "") -> FastAPI:
    """The application of an open system; whoever makes it opens and closes the system.

    `made_token` is the token where the configuration has none. Raises ConfigError where there is
    none at all, though one is needed.
    """
    metrics = Metrics(system)
    state = GatewayState(system, metrics=metrics, made_token=made_token)
    system.agents.watch_runs(log_failures)
    app = FastAPI(
        title="Nacre gateway",
        version=nacre.__version__,
        description=_ABOUT,
        # Those pages run scripts of a foreign server, next to the token.
        docs_url=None,
        redoc_url=None,
        separate_input_output_schemas=False,
        # FastAPI reads `traceparent` and has a span per request; of its own steps nobody needs any.
        telemetry={"operation_spans": False, "exclude": _is_probe},
        # A redirect would be the one answer without a body; and not all clients send theirs twice.
        redirect_slashes=False,
    )
    app.state.gateway = state
    app.include_router(health.open_router)
    for part in (health, runs, trajectories, sessions, approvals, system_routes):
        app.include_router(part.router, dependencies=[Security(_BEARER)])
    app.include_router(openai_router(system), dependencies=[Security(_BEARER)])
    add_error_handlers(app)
    # The last one is the outermost.
    app.add_middleware(BodyLimit, state)
    app.add_middleware(AuthMiddleware, state)
    app.add_middleware(RequestMeter, metrics)
    return app


def _is_probe(scope: Scope) -> bool:
    return scope["path"] in _PROBES
