"""Sessions: list them, and show one with its turns, messages and calls."""

from typing import Annotated, Final, Literal, assert_never

from fastapi import APIRouter, Query
from pydantic import Field

from nacre.gateway.errors import ApiError
from nacre.gateway.routing import (
    GatewayState,
    JsonRoute,
    OpaqueJson,
    OpaqueMap,
    ResponseModel,
    State,
    TextPattern,
    error_responses,
)
from nacre.gateway.run_events import events_of_run
from nacre.messages import (
    AssistantMessage,
    FinishReason,
    ImagePart,
    SystemMessage,
    TextPart,
    ThinkingPart,
    ToolMessage,
    Usage,
    UserMessage,
)
from nacre.storage import SessionRecord, StoredMessage, TurnRecord, TurnStatus
from nacre.trajectory import CallNode, project


class UsageInfo(ResponseModel):
    """Token counts of the provider."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0


class ImageInfo(ResponseModel):
    """An image in a message."""

    url: str


class ToolCallInfo(ResponseModel):
    """A tool call of the model."""

    call_id: str
    name: str
    arguments: str
    """JSON text, as written by the model."""


class _StoredMessageInfo(ResponseModel):
    sequence: int
    """Its position in the session."""
    run_id: str
    """The run of its turn; empty for a summary."""


class SystemMessageInfo(_StoredMessageInfo):
    """A system message, such as the summary of earlier messages."""

    role: Literal["system"] = "system"
    text: str
    is_summary: bool = False


class UserMessageInfo(_StoredMessageInfo):
    """A message of the user."""

    role: Literal["user"] = "user"
    text: str
    images: tuple[ImageInfo, ...] = ()


class AssistantMessageInfo(_StoredMessageInfo):
    """An answer of the model, with its thinking and tool calls."""

    role: Literal["assistant"] = "assistant"
    text: str
    thinking: str = ""
    tool_calls: tuple[ToolCallInfo, ...] = ()
    model: str = ""
    usage: UsageInfo
    finish_reason: FinishReason


class ToolMessageInfo(_StoredMessageInfo):
    """The result of a tool call."""

    role: Literal["tool"] = "tool"
    call_id: str
    name: str
    content: str
    is_error: bool = False
    images: tuple[ImageInfo, ...] = ()


MessageInfo = Annotated[
    SystemMessageInfo | UserMessageInfo | AssistantMessageInfo | ToolMessageInfo,
    Field(discriminator="role"),
]


def usage_info(usage: Usage) -> UsageInfo:
    return UsageInfo(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cached_tokens=usage.cached_tokens,
    )


def message_info(
    stored: StoredMessage,
) -> SystemMessageInfo | UserMessageInfo | AssistantMessageInfo | ToolMessageInfo:
    message = stored.message
    match message:
        case SystemMessage():
            return SystemMessageInfo(
                sequence=stored.sequence,
                run_id=stored.run_id,
                text=message.text,
                is_summary=stored.is_summary,
            )
        case UserMessage():
            return UserMessageInfo(
                sequence=stored.sequence,
                run_id=stored.run_id,
                text=message.text,
                images=tuple(
                    ImageInfo(url=part.url) for part in message.parts if isinstance(part, ImagePart)
                ),
            )
        case AssistantMessage():
            return _assistant_info(stored, message)
        case ToolMessage():
            return ToolMessageInfo(
                sequence=stored.sequence,
                run_id=stored.run_id,
                call_id=message.call_id,
                name=message.name,
                content=message.content,
                is_error=message.is_error,
                images=tuple(ImageInfo(url=image.url) for image in message.images),
            )
        case _:
            assert_never(message)


def _assistant_info(stored: StoredMessage, message: AssistantMessage) -> AssistantMessageInfo:
    return AssistantMessageInfo(
        sequence=stored.sequence,
        run_id=stored.run_id,
        text=message.text,
        thinking="\n".join(it.text for it in message.parts if isinstance(it, ThinkingPart)),
        tool_calls=tuple(
            ToolCallInfo(call_id=call.call_id, name=call.name, arguments=call.arguments)
            for call in message.tool_calls
        ),
        model=message.model,
        usage=usage_info(message.usage),
        finish_reason=message.finish_reason,
    )


def parts_from(text: str, images: tuple[str, ...]) -> tuple[TextPart | ImagePart, ...]:
    """The parts of a user message: text first, then images."""
    texts = (TextPart(text=text),) if text else ()
    return (*texts, *(ImagePart(url=url) for url in images))


class CallInfo(ResponseModel):
    """A tool call and its nested calls. Secrets are redacted, and long values are cut."""

    tool_call_id: str
    tool_id: str
    tool_name: str
    source: str
    input: OpaqueJson = None
    outcome: Literal["completed", "failed", "running"]
    result: OpaqueJson = None
    error: str = ""
    error_code: str = ""
    abort_reason: str = ""
    """Why the program of a completed `exec` call was aborted."""
    started_at: float | None
    """Seconds since the epoch."""
    ended_at: float | None
    duration_ms: float | None
    approvals: tuple[OpaqueMap, ...] = ()
    updates: int = 0
    """The number of progress reports."""
    children: tuple["CallInfo", ...] = ()


def call_info(node: CallNode) -> CallInfo:
    # The projection limits the depth.
    return CallInfo(
        tool_call_id=node.call_id,
        tool_id=node.tool_id,
        tool_name=node.tool_name,
        source=node.source,
        input=node.input,
        outcome=node.outcome,
        result=node.result,
        error=node.error,
        error_code=node.error_code,
        abort_reason=node.abort_reason,
        started_at=node.started,
        ended_at=node.ended,
        duration_ms=node.duration_ms,
        approvals=tuple(node.approvals),
        updates=node.updates,
        children=tuple(map(call_info, node.children)),
    )


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


class SessionsResponse(ResponseModel):
    """A page of sessions, the most recent first."""

    sessions: tuple[SessionInfo, ...]
    next_cursor: str | None = None
    """The value of `before` for the next page. Null on the last page."""


class TurnInfo(ResponseModel):
    """A turn: its prompt, result, token usage and tool calls."""

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
    )


def turn_info(turn: TurnRecord, *, calls: tuple[CallInfo, ...], has_more_calls: bool) -> TurnInfo:
    return TurnInfo(
        run_id=turn.run_id,
        status=turn.status,
        prompt=getattr(turn.prompt, "text", ""),
        model=turn.model,
        surface=turn.surface,
        usage=usage_info(turn.usage),
        error=turn.error,
        started_at=turn.started,
        ended_at=turn.ended,
        calls=calls,
        has_more_calls=has_more_calls,
    )


# The limit of one response. The trajectory has all events.
_MAX_EVENTS: Final = 20_000
_MAX_SHOWN_ID: Final = 80
_CURSOR_PATTERN: Final = TextPattern(
    pattern=r"[0-9]{1,12}(\.[0-9]{1,20})?~[A-Za-z0-9._~-]{1,300}",
    words="the `nextCursor` of a response",
)

router = APIRouter(prefix="/api/sessions", tags=["sessions"], route_class=JsonRoute)


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
        raise ApiError(404, f"there is no session {session_id[:_MAX_SHOWN_ID]!r}")
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
        messages=tuple(map(message_info, messages)),
        next_cursor=shown[0].run_id if len(found) > turns else None,
    )


async def _turn_infos(turns: list[TurnRecord], state: GatewayState) -> list[TurnInfo]:
    answers: list[TurnInfo] = []
    left = _MAX_EVENTS
    # Newest first: they are the most important.
    for turn in reversed(turns):
        calls: tuple[CallInfo, ...] = ()
        events, has_more = await events_of_run(state.system.store, turn.run_id, max_events=left)
        left -= len(events)
        calls = tuple(map(call_info, project(events)))
        answers.append(turn_info(turn, calls=calls, has_more_calls=has_more))
    answers.reverse()
    return answers
