"""Trajectories of runs and sessions, as pages of JSON or as JSON Lines."""

from typing import Annotated, Final

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse

from nacre.gateway.errors import ApiError, quote_id
from nacre.gateway.routing import (
    BEARER,
    GatewayState,
    JsonRoute,
    OpaqueMap,
    ResponseModel,
    State,
    error_responses,
)
from nacre.gateway.run_events import json_lines


class TrajectoryEventInfo(ResponseModel):
    """An event. Secrets are redacted, and long values are cut."""

    run_id: str
    event: OpaqueMap
    """`sequence`, `time`, `kind`, `toolCallId`, `parentToolCallId` and `data`."""


class TrajectoryResponse(ResponseModel):
    """A page of events, in the order in which they were stored."""

    events: tuple[TrajectoryEventInfo, ...]
    next_after: int | None = None
    """The value of `after` for the next page. Null if there are no more events yet."""


_JSON_LINES: Final = ("application/jsonl", "application/x-ndjson", "application/json-lines")
_RESPONSES: Final = {
    **error_responses(404),
    200: {
        "model": TrajectoryResponse,
        "description": "A page of events, or with `Accept: application/jsonl` all events as lines.",
        "content": {"application/jsonl": {"schema": {"type": "string"}}},
    },
}

router = APIRouter(
    prefix="/api", tags=["trajectories"], route_class=JsonRoute, dependencies=[BEARER]
)

After = Annotated[int, Query(description="The `nextAfter` of the previous page.", ge=-1, le=2**62)]
Limit = Annotated[int, Query(ge=1, le=5000)]


@router.get(
    "/runs/{run_id}/trajectory",
    summary="Get the events of a run",
    responses=_RESPONSES,
    response_class=JSONResponse,
)
async def run_trajectory(
    run_id: str, request: Request, state: State, after: After = -1, limit: Limit = 1000
) -> Response:
    """Get the events of a run. With `Accept: application/jsonl`, returns all of them as lines."""
    await _check_stored(run_id, state)
    if _wants_lines(request):
        return _json_lines_response(state, run_id=run_id)
    return await _page_response(state, run_id=run_id, after=after, limit=limit)


@router.get(
    "/sessions/{session_id}/trajectory",
    summary="Get the events of a session",
    responses=_RESPONSES,
    response_class=JSONResponse,
)
async def session_trajectory(
    session_id: str, request: Request, state: State, after: After = -1, limit: Limit = 1000
) -> Response:
    """Get the events of all runs of a session, in the same formats as for one run."""
    store = state.system.store
    if await store.session(session_id) is None:
        raise ApiError(404, f"there is no session {quote_id(session_id)}")
    if _wants_lines(request):
        return _json_lines_response(state, session_id=session_id)
    return await _page_response(state, session_id=session_id, after=after, limit=limit)


async def _check_stored(run_id: str, state: GatewayState) -> None:
    system, shown = state.system, quote_id(run_id)
    run = system.agents.run(run_id)
    if run is not None and not run.is_stored:
        raise ApiError(
            404,
            f"the run {shown} is not stored, because it has no session; follow its events while it "
            "is in memory",
        )
    store = system.store
    is_known = run is not None or await store.turn(run_id) is not None
    if not is_known and not await store.events(run_id=run_id, limit=1):
        raise ApiError(404, f"there is no run {shown}")


def _wants_lines(request: Request) -> bool:
    accepted = request.headers.get("accept", "").lower()
    return any(kind in accepted for kind in _JSON_LINES)


def _json_lines_response(
    state: GatewayState, *, run_id: str | None = None, session_id: str | None = None
) -> Response:
    lines = json_lines(state.system.store, run_id=run_id, session_id=session_id)
    return StreamingResponse(lines, media_type=_JSON_LINES[0])


async def _page_response(
    state: GatewayState,
    *,
    run_id: str | None = None,
    session_id: str | None = None,
    after: int,
    limit: int,
) -> Response:
    found = await state.system.store.events(
        run_id=run_id, session_id=session_id, after=after, limit=limit + 1
    )
    page = found[:limit]
    answer = TrajectoryResponse(
        events=tuple(TrajectoryEventInfo(run_id=it.run_id, event=it.event) for it in page),
        next_after=page[-1].number if len(found) > limit else None,
    )
    return Response(answer.model_dump_json(), media_type="application/json")
