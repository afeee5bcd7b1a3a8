"""Schemas of sessions: turns, messages, tool calls and trajectories."""

from typing import Annotated, Literal, assert_never

from pydantic import Field

from nacre.gateway.schemas.base import Answer, OpaqueJson, OpaqueMap
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
from nacre.trajectory import CallNode


class UsageInfo(Answer):
    """Tokens, as the provider counts them."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0


class ImageInfo(Answer):
    """A picture that a person sent."""

    url: str


class ToolCallInfo(Answer):
    """A call that the model made."""

    call_id: str
    name: str
    arguments: str
    """JSON text as the model wrote it."""


class _Placed(Answer):
    sequence: int
    """Its place in the session."""
    run_id: str
    """The turn that it is of; empty for a summary."""


class SystemMessageInfo(_Placed):
    """What the model is told besides, such as the summary of all that came before."""

    role: Literal["system"] = "system"
    text: str
    is_summary: bool = False


class UserMessageInfo(_Placed):
    """What a person said."""

    role: Literal["user"] = "user"
    text: str
    images: tuple[ImageInfo, ...] = ()


class AssistantMessageInfo(_Placed):
    """What the model said, thought and called."""

    role: Literal["assistant"] = "assistant"
    text: str
    thinking: str = ""
    tool_calls: tuple[ToolCallInfo, ...] = ()
    model: str = ""
    usage: UsageInfo
    finish_reason: FinishReason


class ToolMessageInfo(_Placed):
    """What came of a call."""

    role: Literal["tool"] = "tool"
    call_id: str
    name: str
    content: str
    is_error: bool = False


MessageInfo = Annotated[
    SystemMessageInfo | UserMessageInfo | AssistantMessageInfo | ToolMessageInfo,
    Field(discriminator="role"),
]


def usage_answer(usage: Usage) -> UsageInfo:
    return UsageInfo(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cached_tokens=usage.cached_tokens,
    )


def message_answer(
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
            return _assistant(stored, message)
        case ToolMessage():
            return ToolMessageInfo(
                sequence=stored.sequence,
                run_id=stored.run_id,
                call_id=message.call_id,
                name=message.name,
                content=message.content,
                is_error=message.is_error,
            )
        case _:
            assert_never(message)


def _assistant(stored: StoredMessage, message: AssistantMessage) -> AssistantMessageInfo:
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
        usage=usage_answer(message.usage),
        finish_reason=message.finish_reason,
    )


def parts_from(text: str, images: tuple[str, ...]) -> tuple[TextPart | ImagePart, ...]:
    """A person's message: its words first, then its pictures."""
    words = (TextPart(text=text),) if text else ()
    return (*words, *(ImagePart(url=url) for url in images))


class CallInfo(Answer):
    """One call, and those that were made inside it. Secrets and long values are cut out."""

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
    """Of a call that returned all the same: `exec` does, with a program that was aborted."""
    started_at: float | None
    """Seconds since the epoch, here and everywhere."""
    ended_at: float | None
    duration_ms: float | None
    approvals: tuple[OpaqueMap, ...] = ()
    updates: int = 0
    """How often the tool reported progress."""
    children: tuple["CallInfo", ...] = ()


def call_answer(node: CallNode) -> CallInfo:
    # As deep as the projection lets calls stand, which is not deep.
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
        children=tuple(map(call_answer, node.children)),
    )


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


class TrajectoryEventInfo(Answer):
    """One thing that happened; secrets and long values are cut out."""

    run_id: str
    event: OpaqueMap
    """`sequence`, `time`, `kind`, `toolCallId`, `parentToolCallId` and `data`."""


class TrajectoryResponse(Answer):
    """A page of events, in the order in which they were stored."""

    events: tuple[TrajectoryEventInfo, ...]
    next_after: int | None = None
    """For `after`: the next page. Null when this is all there is so far."""
