"""Messages of a session, as callers read them."""

from typing import Annotated, Literal, assert_never

from pydantic import Field

from nacre.gateway.schemas.base import Answer
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
from nacre.storage import StoredMessage


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
