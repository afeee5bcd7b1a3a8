"""Runs: start, look at, follow, abort, and deliver what client tools returned."""

from typing import Annotated, Final

from fastapi import APIRouter, Header, Query, Response
from fastapi.responses import StreamingResponse

from nacre.agent import AgentRun
from nacre.errors import ConfigError, MissingReferenceError, SessionError
from nacre.gateway.errors import RETRY_SECONDS, ApiError
from nacre.gateway.routing import GatewayState, JsonRoute, State
from nacre.gateway.run_events import (
    CURSOR_SHAPE,
    EVENT_SCHEMA,
    RunEventStream,
    cursor_from,
    live_events,
    stored_events,
)
from nacre.gateway.schemas.base import error_answers
from nacre.gateway.schemas.runs import (
    AbortRunRequest,
    AbortRunResponse,
    ClientResultsRequest,
    ClientResultsResponse,
    RunAnswer,
    RunsResponse,
    StartRunRequest,
    StartRunResponse,
    client_call_answers,
    live_run_answer,
    stored_run_answer,
)
from nacre.messages import AssistantMessage
from nacre.storage import TurnRecord

_MAX_SHOWN_ID: Final = 80
_ABORT: Final = AbortRunRequest()

router = APIRouter(prefix="/api/runs", tags=["runs"], route_class=JsonRoute)


@router.post(
    "",
    status_code=202,
    summary="Send a message to an agent",
    responses=error_answers(404, 415, 429),
)
async def start_run(asked: StartRunRequest, response: Response, state: State) -> StartRunResponse:
    """Send a message to an agent.

    Answers at once; follow the run by its events. While another turn of the session runs, the
    message goes by the queue mode: the run that takes it is named.
    """
    if state.is_closing:
        raise _closing()
    try:
        run = await state.system.agents.start(asked.to_request())
    except ConfigError as error:
        if not asked.model or isinstance(error, MissingReferenceError):
            raise
        raise ApiError(404, str(error), code="unknown_model", path="body.model") from None
    except SessionError as error:
        # The service closes before we do.
        raise _closing() if error.code == "ended" else error from None
    response.headers["location"] = f"/api/runs/{run.id}"
    return StartRunResponse(
        run_id=run.id, session_id=run.session_id, agent_id=run.agent_id, state=run.state
    )


@router.get("", summary="Runs that go on, and those that ended lately", responses=error_answers())
async def list_runs(
    state: State, session_id: Annotated[str, Query(alias="sessionId")] = ""
) -> RunsResponse:
    """The runs that go on, and those that ended lately."""
    runs = state.system.agents.runs(session_id or None)
    return RunsResponse(runs=tuple(map(live_run_answer, runs)))


@router.get("/{run_id}", summary="How a run does", responses=error_answers(404))
async def get_run(run_id: str, state: State) -> RunAnswer:
    """How a run does, and what came of it."""
    run = state.system.agents.run(run_id)
    if run is not None:
        return live_run_answer(run)
    turn = await _stored_turn(run_id, state)
    session = await state.system.store.session(turn.session_id)
    agent_id = session.agent_id if session else ""
    return stored_run_answer(turn, agent_id=agent_id, said=await _last_answer(turn, state))


@router.get(
    "/{run_id}/events",
    summary="Follow a run",
    response_class=StreamingResponse,
    responses={
        **error_answers(404),
        200: {
            "description": (
                "Server-sent events: `event` is the kind, `data` is JSON with `sequence`, `time`, "
                "`kind` and `data`. Comments come in between as signs of life."
            ),
            "content": {"text/event-stream": {"schema": EVENT_SCHEMA}},
        },
    },
)
async def follow_run(
    run_id: str,
    state: State,
    after: Annotated[
        str, CURSOR_SHAPE, Query(description="Go on after the event with this id.")
    ] = "",
    last_event_id: Annotated[
        str, CURSOR_SHAPE, Header(description="The same, as browsers send it; counts first.")
    ] = "",
) -> Response:
    """Follow a run as server-sent events, from its beginning or from where you were.

    The stream ends after the run's last event. Of a run that is no longer in memory the stored
    trajectory is told instead: it begins with `replay.started`, and its ids begin with `t`.
    """
    cursor = cursor_from(last_event_id, after)
    run = state.system.agents.run(run_id)
    if run is not None:
        return RunEventStream(live_events(run, cursor))
    turn = await _stored_turn(run_id, state)
    return RunEventStream(stored_events(state, turn, cursor))


@router.post("/{run_id}/abort", summary="End a run", responses=error_answers(404, 415))
async def abort_run(run_id: str, state: State, asked: AbortRunRequest = _ABORT) -> AbortRunResponse:
    """End a run with all that it does. Answers when it has really stopped."""
    run = state.system.agents.run(run_id)
    if run is None:
        turn = await _stored_turn(run_id, state)
        return AbortRunResponse(run_id=turn.run_id, state=turn.status, was_aborted=False)
    was_aborted = await run.abort(asked.reason)
    return AbortRunResponse(run_id=run.id, state=run.state, was_aborted=was_aborted)


@router.post(
    "/{run_id}/client-results",
    summary="Deliver results of client tools",
    responses=error_answers(404, 409, 415),
)
async def deliver_results(
    run_id: str, asked: ClientResultsRequest, state: State
) -> ClientResultsResponse:
    """Deliver what your tools returned. All results are taken, or none."""
    run = state.system.agents.run(run_id)
    if run is None:
        turn = await _stored_turn(run_id, state)
        raise ApiError(409, f"the run {turn.run_id} is over ({turn.status})", code="ended")
    _refuse_unless_all_open(run, asked)
    for result in asked.results:
        run.deliver(result.call_id, result.content, result.is_error)
    return ClientResultsResponse(
        run_id=run.id, state=run.state, pending_client_calls=client_call_answers(run)
    )


def _refuse_unless_all_open(run: AgentRun, asked: ClientResultsRequest) -> None:
    open_ids = {call.call_id for call in run.pending_client_calls}
    for index, result in enumerate(asked.results):
        if result.call_id in open_ids:
            open_ids.remove(result.call_id)
            continue
        path = f"body.results[{index}].callId"
        if any(earlier.call_id == result.call_id for earlier in asked.results[:index]):
            raise ApiError(400, f"{result.call_id[:_MAX_SHOWN_ID]!r} is there twice", path=path)
        try:
            # It is not open: the run says why.
            run.deliver(result.call_id, None)
        except SessionError as error:
            status = 404 if error.code == "not_found" else 409
            raise ApiError(status, error.message, code=error.code, path=path) from None


async def _stored_turn(run_id: str, state: GatewayState) -> TurnRecord:
    turn = await state.system.store.turn(run_id)
    if turn is None:
        raise ApiError(404, f"there is no run {run_id[:_MAX_SHOWN_ID]!r}")
    return turn


async def _last_answer(turn: TurnRecord, state: GatewayState) -> AssistantMessage | None:
    stored = await state.system.store.messages(turn.session_id, whole=True)
    answers = [
        it.message
        for it in stored
        if it.run_id == turn.run_id and isinstance(it.message, AssistantMessage)
    ]
    return answers[-1] if answers else None


def _closing() -> ApiError:
    return ApiError(
        503,
        "the gateway is shutting down",
        code="shutting_down",
        retry_after_seconds=RETRY_SECONDS,
    )
