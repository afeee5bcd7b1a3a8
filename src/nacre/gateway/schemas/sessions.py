"""Sessions and their turns on the wire."""

from nacre.gateway.schemas.base import Answer
from nacre.gateway.schemas.calls import CallInfo
from nacre.gateway.schemas.messages import MessageInfo, UsageInfo, usage_answer
from nacre.storage import SessionRecord, TurnRecord, TurnStatus


class SessionInfo(Answer):
    """A conversation. Times are seconds since the epoch."""

    id: str
    agent_id: str
    key: str = ""
    """The caller's own name for it, if it has one."""
    title: str = ""
    channel: str = ""
    sender: str = ""
    created_at: float
    updated_at: float
    turn_count: int
    message_count: int


class SessionsResponse(Answer):
    """A page of sessions, the last used first."""

    sessions: tuple[SessionInfo, ...]
    next_cursor: str | None = None
    """For `before`: the next page. Null on the last one."""


class TurnInfo(Answer):
    """One turn: what was asked, how it ended, what it cost, and what was called in it."""

    run_id: str
    status: TurnStatus
    prompt: str = ""
    model: str = ""
    surface: str = ""
    usage: UsageInfo
    error: str = ""
    started_at: float
    ended_at: float | None
    calls: tuple[CallInfo, ...] = ()
    has_more_calls: bool = False
    """Whether there was too much to show: all of it is in the trajectory."""


class SessionResponse(Answer):
    """A session with its last turns and their messages."""

    session: SessionInfo
    turns: tuple[TurnInfo, ...]
    """Oldest first."""
    messages: tuple[MessageInfo, ...]
    """Those of these turns, in their order."""


def session_answer(record: SessionRecord) -> SessionInfo:
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
    )


def turn_answer(turn: TurnRecord, *, calls: tuple[CallInfo, ...], has_more_calls: bool) -> TurnInfo:
    return TurnInfo(
        run_id=turn.run_id,
        status=turn.status,
        prompt=getattr(turn.prompt, "text", ""),
        model=turn.model,
        surface=turn.surface,
        usage=usage_answer(turn.usage),
        error=turn.error,
        started_at=turn.started,
        ended_at=turn.ended,
        calls=calls,
        has_more_calls=has_more_calls,
    )
