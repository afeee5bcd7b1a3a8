"""Sessions: the list, and one with its turns, messages and calls."""

from typing import Annotated, Final

from fastapi import APIRouter, Query

from nacre.gateway.errors import ApiError
from nacre.gateway.routing import GatewayState, JsonRoute, State
from nacre.gateway.run_events import events_of_run
from nacre.gateway.schemas.base import error_answers
from nacre.gateway.schemas.sessions import (
    CallInfo,
    SessionResponse,
    SessionsResponse,
    TurnInfo,
    call_answer,
    message_answer,
    session_answer,
    turn_answer,
)
from nacre.gateway.schemas.text_shapes import TextShape
from nacre.storage import TurnRecord
from nacre.trajectory import project

# What one answer may hold; whoever wants all of it asks for the trajectory.
_MAX_EVENTS: Final = 20_000
_MAX_SHOWN_ID: Final = 80
_CURSOR_SHAPE: Final = TextShape(
    pattern=r"[0-9]{1,12}(\.[0-9]{1,20})?~[A-Za-z0-9._~-]{1,300}",
    words="the `nextCursor` of an answer, as it was given",
)

router = APIRouter(prefix="/api/sessions", tags=["sessions"], route_class=JsonRoute)


@router.get("", summary="Sessions, the last used first", responses=error_answers())
async def list_sessions(
    state: State,
    agent_id: Annotated[str | None, Query(alias="agentId", max_length=500)] = None,
    session_key: Annotated[
        str | None,
        Query(
            alias="sessionKey",
            description="Only those with this name of yours: one for each agent.",
            min_length=1,
            max_length=500,
        ),
    ] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    before: Annotated[
        Annotated[str, _CURSOR_SHAPE] | None,
        Query(description="`nextCursor` of the page before."),
    ] = None,
) -> SessionsResponse:
    """Sessions, the last used first."""
    found = await state.system.store.sessions(
        agent_id=agent_id, key=session_key, limit=limit + 1, before=before
    )
    page = found[:limit]
    return SessionsResponse(
        sessions=tuple(map(session_answer, page)),
        next_cursor=page[-1].cursor if len(found) > limit else None,
    )


@router.get("/{session_id}", summary="A session with its last turns", responses=error_answers(404))
async def get_session(
    session_id: str,
    state: State,
    turns: Annotated[int, Query(description="So many of the last turns.", ge=1, le=200)] = 20,
) -> SessionResponse:
    """A session with its last turns, their messages, and what was called in them."""
    store = state.system.store
    session = await store.session(session_id)
    if session is None:
        raise ApiError(404, f"there is no session {session_id[:_MAX_SHOWN_ID]!r}")
    shown = await store.turns(session_id, turns)
    ids = {turn.run_id for turn in shown}
    messages = await store.messages(session_id, whole=True)
    return SessionResponse(
        session=session_answer(session),
        turns=tuple(await _with_calls(shown, state)),
        messages=tuple(message_answer(it) for it in messages if it.run_id in ids),
    )


async def _with_calls(turns: list[TurnRecord], state: GatewayState) -> list[TurnInfo]:
    answers: list[TurnInfo] = []
    left = _MAX_EVENTS
    # The newest first: they are what people look at.
    for turn in reversed(turns):
        calls: tuple[CallInfo, ...] = ()
        events, has_more = await events_of_run(state.system.store, turn.run_id, most=left)
        left -= len(events)
        calls = tuple(map(call_answer, project(events)))
        answers.append(turn_answer(turn, calls=calls, has_more_calls=has_more))
    answers.reverse()
    return answers
