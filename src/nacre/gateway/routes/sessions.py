"""Sessions: list them, and show one with its turns, messages and calls."""

from typing import Annotated, Final

from fastapi import APIRouter, Query

from nacre.agent import ToolBytes, tool_bytes_of
from nacre.gateway.errors import ApiError, quote_id
from nacre.gateway.routes.media import MediaInfo, media_info
from nacre.gateway.routes.messages import (
    CallInfo,
    MessageInfo,
    UsageInfo,
    call_info,
    cut_text,
    message_info,
    usage_info,
)
from nacre.gateway.routing import (
    BEARER,
    GatewayState,
    JsonRoute,
    ResponseModel,
    State,
    TextPattern,
    error_responses,
)
from nacre.gateway.run_events import events_of_run
from nacre.storage import (
    MediaRecord,
    SessionRecord,
    TurnRecord,
    TurnStatus,
    Visibility,
)
from nacre.trajectory import project


class SessionInfo(ResponseModel):
    """A session. Times are seconds since the epoch."""

    id: str
    agent_id: str
    key: str = ""
    """The client's own name for it, if it has one."""
    title: str = ""
    channel: str = ""
    sender: str = ""
    created_at: float
    updated_at: float
    turn_count: int
    message_count: int
    model: str = ""
    """The model that was chosen with `/model`; empty for the agent's."""
    queue_mode: str = ""
    """The queue mode that was chosen with `/queue`; empty for the configured one."""


class SessionsResponse(ResponseModel):
    """A page of sessions, the most recent first."""

    sessions: tuple[SessionInfo, ...]
    next_cursor: str | None = None
    """The value of `before` for the next page. Null on the last page."""


class ToolBytesInfo(ResponseModel):
    """The size of the definitions of tools in all model requests of a turn."""

    sent: int
    direct: int
    """What all tools of the turn would have cost if the model saw them directly."""
    sent_tokens: int
    """An estimate: four bytes per token."""
    direct_tokens: int


class TurnInfo(ResponseModel):
    """A turn: its prompt, result, token usage and tool calls."""

    run_id: str
    status: TurnStatus
    prompt: str = ""
    """Cut if it is long; the first message of the turn has it, too."""
    model: str = ""
    surface: str = ""
    usage: UsageInfo
    tool_bytes: ToolBytesInfo | None = None
    """Null if no model was asked, or if the runtime does not say."""
    error: str = ""
    reply: str = ""
    """The reply of a chat command, whose turn has no messages and the surface `command`."""
    started_at: float
    ended_at: float | None
    trigger: str = ""
    """`heartbeat` if no message started the turn."""
    visibility: Visibility = "visible"
    """Whether the user saw the last answer; see the result of a run."""
    sent: tuple[str, ...] = ()
    """The texts that the agent sent to the user during the turn."""
    media: tuple[MediaInfo, ...] = ()
    """The files of the reply."""
    calls: tuple[CallInfo, ...] = ()
    has_more_calls: bool = False
    """Whether calls are left out. The trajectory has all of them."""


class SessionResponse(ResponseModel):
    """A session with its last turns and their messages."""

    session: SessionInfo
    turns: tuple[TurnInfo, ...]
    """Oldest first."""
    messages: tuple[MessageInfo, ...]
    """The messages of these turns, in order."""
    next_cursor: str | None = None
    """The value of `before` for the turns before these. Null if there are none."""


def session_info(record: SessionRecord) -> SessionInfo:
    return SessionInfo(
        id=record.id,
        agent_id=record.agent_id,
        key=record.key,
        title=record.title,
        channel=record.channel,
        sender=record.sender,
        created_at=record.created,
        updated_at=record.updated,
        turn_count=record.turn_count,
        message_count=record.message_count,
        model=record.model,
        queue_mode=record.queue_mode,
    )


def turn_reply(turn: TurnRecord) -> str:
    """The reply of a chat command; empty for other turns."""
    return str(turn.data.get("reply", ""))


def turn_info(
    turn: TurnRecord,
    *,
    media: tuple[MediaInfo, ...],
    calls: tuple[CallInfo, ...],
    has_more_calls: bool,
) -> TurnInfo:
    return TurnInfo(
        run_id=turn.run_id,
        status=turn.status,
        prompt=cut_text(getattr(turn.prompt, "text", ""))[0],
        model=turn.model,
        surface=turn.surface,
        usage=usage_info(turn.usage),
        tool_bytes=tool_bytes_info(tool_bytes_of(turn.data)),
        error=turn.error,
        reply=turn_reply(turn),
        started_at=turn.started,
        ended_at=turn.ended,
        trigger=str(turn.data.get("trigger", "")),
        visibility=turn.visibility,
        sent=turn.sent,
        media=media,
        calls=calls,
        has_more_calls=has_more_calls,
    )


def tool_bytes_info(found: ToolBytes | None) -> ToolBytesInfo | None:
    return None if found is None else ToolBytesInfo.model_validate(found.to_json())


# The limit of one response. The trajectory has all events.
_MAX_EVENTS: Final = 20_000
_CURSOR_PATTERN: Final = TextPattern(
    pattern=r"[0-9]{1,12}(\.[0-9]{1,20})?~[A-Za-z0-9._~-]{1,300}",
    words="the `nextCursor` of a response",
)

router = APIRouter(
    prefix="/api/sessions", tags=["sessions"], route_class=JsonRoute, dependencies=[BEARER]
)


@router.get("", summary="List sessions", responses=error_responses())
async def list_sessions(
    state: State,
    agent_id: Annotated[str | None, Query(alias="agentId", max_length=500)] = None,
    session_key: Annotated[
        str | None,
        Query(
            alias="sessionKey",
            description="Only sessions with this key; there is at most one per agent.",
            min_length=1,
            max_length=500,
        ),
    ] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
    before: Annotated[
        Annotated[str, _CURSOR_PATTERN] | None,
        Query(description="The `nextCursor` of the previous page."),
    ] = None,
) -> SessionsResponse:
    """List sessions, the most recent first."""
    found = await state.system.store.sessions(
        agent_id=agent_id, key=session_key, limit=limit + 1, before=before
    )
    page = found[:limit]
    return SessionsResponse(
        sessions=tuple(map(session_info, page)),
        next_cursor=page[-1].cursor if len(found) > limit else None,
    )


@router.get(
    "/{session_id}", summary="A session with its last turns", responses=error_responses(404)
)
async def get_session(
    session_id: str,
    state: State,
    turns: Annotated[int, Query(description="The number of turns.", ge=1, le=200)] = 20,
    before: Annotated[
        str | None,
        Query(description="The `nextCursor` of a response: get earlier turns.", max_length=500),
    ] = None,
) -> SessionResponse:
    """Get a session with its last turns, their messages and tool calls."""
    store = state.system.store
    session = await store.session(session_id)
    if session is None:
        raise ApiError(404, f"there is no session {quote_id(session_id)}")
    if before is not None:
        last = await store.turn(before)
        if last is None or last.session_id != session_id:
            raise ApiError(404, "must be the `nextCursor` of a response", path="query.before")
    found = await store.turns(session_id, turns + 1, before=before)
    shown = found[-turns:]
    messages = await store.messages_of_turns(session_id, [turn.run_id for turn in shown])
    return SessionResponse(
        session=session_info(session),
        turns=tuple(await _turn_infos(shown, state)),
        messages=tuple(message_info(it, session_id) for it in messages),
        next_cursor=shown[0].run_id if len(found) > turns else None,
    )


async def _turn_infos(turns: list[TurnRecord], state: GatewayState) -> list[TurnInfo]:
    answers: list[TurnInfo] = []
    left = _MAX_EVENTS
    media = await state.system.store.media.of_runs([turn.run_id for turn in turns])
    # Newest first: they are the most important.
    for turn in reversed(turns):
        calls: tuple[CallInfo, ...] = ()
        events, has_more = await events_of_run(state.system.store, turn.run_id, max_events=left)
        left -= len(events)
        calls = tuple(map(call_info, project(events)))
        answers.append(
            turn_info(turn, media=_media_of(turn, media), calls=calls, has_more_calls=has_more)
        )
    answers.reverse()
    return answers


def _media_of(turn: TurnRecord, media: list[MediaRecord]) -> tuple[MediaInfo, ...]:
    return tuple(media_info(it) for it in media if it.run_id == turn.run_id)
