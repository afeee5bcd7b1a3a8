"""Whether the gateway is alive and takes work; and what operators measure."""

from fastapi import APIRouter, Response

import nacre
from nacre.errors import StorageError
from nacre.gateway.metrics import CONTENT_TYPE
from nacre.gateway.routing import State
from nacre.gateway.schemas.base import error_answers
from nacre.gateway.schemas.system import AboutResponse, HealthResponse

open_router = APIRouter(tags=["health"])
router = APIRouter(tags=["health"])


@open_router.get("/", summary="Where to look")
async def about() -> AboutResponse:
    """Where to look."""
    return AboutResponse(
        name="nacre",
        version=nacre.__version__,
        openapi="/openapi.json",
        api="/api",
        openai_api="/v1",
    )


@open_router.get("/healthz", summary="Whether the process answers")
async def is_alive() -> HealthResponse:
    """The process answers."""
    return HealthResponse(status="ok")


@open_router.get(
    "/readyz",
    summary="Whether the gateway takes work",
    responses={503: {"model": HealthResponse, "description": "Not now."}},
)
async def is_ready(response: Response, state: State) -> HealthResponse:
    """Whether runs can be started: it is not shutting down, and the database answers."""
    if state.is_closing:
        response.status_code = 503
        return HealthResponse(status="closing")
    try:
        await state.system.store.sessions(limit=1)
    except StorageError:
        response.status_code = 503
        return HealthResponse(status="unavailable")
    return HealthResponse(status="ready")


@router.get(
    "/metrics",
    summary="Metrics for Prometheus",
    response_class=Response,
    responses={
        **error_answers(),
        200: {
            "description": "In the text format of Prometheus.",
            "content": {"text/plain": {"schema": {"type": "string"}}},
        },
    },
)
async def metrics(state: State) -> Response:
    """Counters, gauges and histograms."""
    return Response(state.metrics.render(), media_type=CONTENT_TYPE)
