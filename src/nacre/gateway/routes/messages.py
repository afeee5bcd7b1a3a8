"""Messages and tool calls as responses show them: long values are cut."""

from typing import Annotated, Final, Literal, assert_never

from pydantic import Field

from nacre.gateway.routing import OpaqueJson, OpaqueMap, ResponseModel
from nacre.json_types import JsonValue, encode_json
from nacre.messages import (
    AssistantMessage,
    FinishReason,
    ImagePart,
    Message,
    SystemMessage,
    ThinkingPart,
    ToolCallPart,
    ToolMessage,
    Usage,
    UserMessage,
)
from nacre.storage import StoredMessage
from nacre.trajectory import CallNode


class UsageInfo(ResponseModel):
    """Token counts of the provider."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0


class CutInfo(ResponseModel):
    """The value beside it is only the start of the whole value."""

    is_cut: bool = True
    bytes: int
    """The size of the whole value. For a value that is not a text, of its JSON."""


class ImageInfo(ResponseModel):
    """An image in a message."""

    url: str
    """A `data:` URL, a URL of another server, or the path of a large image at this gateway."""


class ToolCallInfo(ResponseModel):
    """A tool call of the model."""

    call_id: str
    name: str
    arguments: str
    """JSON text, as written by the model."""
    arguments_cut: CutInfo | None = None


class _StoredMessageInfo(ResponseModel):
    sequence: int
    """Its position in the session."""
    run_id: str
    """The run of its turn; empty for a summary."""
    content_cut: CutInfo | None = None
    """Set if `text` or `content` is cut."""


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
    thinking_cut: CutInfo | None = None
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


_MAX_SHOWN_BYTES: Final = 16 * 1024


def cut_text(text: str) -> tuple[str, CutInfo | None]:
    """The start of a long text, and its whole size."""
    # A character has at most four bytes.
    if len(text) <= _MAX_SHOWN_BYTES // 4:
        return text, None
    encoded = text.encode(errors="replace")
    if len(encoded) <= _MAX_SHOWN_BYTES:
        return text, None
    start = encoded[:_MAX_SHOWN_BYTES].decode(errors="ignore")
    return start, CutInfo(bytes=len(encoded))


def cut_json(value: JsonValue) -> tuple[JsonValue, CutInfo | None]:
    """The value, or the start of its JSON as a text."""
    if isinstance(value, (bool, int, float, type(None))):
        return value, None
    if isinstance(value, str):
        return cut_text(value)
    encoded = encode_json(value)
    if len(encoded) <= _MAX_SHOWN_BYTES:
        return value, None
    return encoded[:_MAX_SHOWN_BYTES].decode(errors="ignore"), CutInfo(bytes=len(encoded))


def message_info(
    stored: StoredMessage, session_id: str
) -> SystemMessageInfo | UserMessageInfo | AssistantMessageInfo | ToolMessageInfo:
    """The message, with long texts cut."""
    message = stored.message
    match message:
        case SystemMessage():
            text, cut = cut_text(message.text)
            return SystemMessageInfo(
                sequence=stored.sequence,
                run_id=stored.run_id,
                text=text,
                content_cut=cut,
                is_summary=stored.is_summary,
            )
        case UserMessage():
            text, cut = cut_text(message.text)
            return UserMessageInfo(
                sequence=stored.sequence,
                run_id=stored.run_id,
                text=text,
                content_cut=cut,
                images=_image_infos(stored, session_id),
            )
        case AssistantMessage():
            return _assistant_info(stored, message)
        case ToolMessage():
            content, cut = cut_text(message.content)
            return ToolMessageInfo(
                sequence=stored.sequence,
                run_id=stored.run_id,
                call_id=message.call_id,
                name=message.name,
                content=content,
                content_cut=cut,
                is_error=message.is_error,
                images=_image_infos(stored, session_id),
            )
        case _:
            assert_never(message)


def _assistant_info(stored: StoredMessage, message: AssistantMessage) -> AssistantMessageInfo:
    text, cut = cut_text(message.text)
    thinking, thinking_cut = cut_text(message_thinking(message))
    return AssistantMessageInfo(
        sequence=stored.sequence,
        run_id=stored.run_id,
        text=text,
        content_cut=cut,
        thinking=thinking,
        thinking_cut=thinking_cut,
        tool_calls=tuple(map(_tool_call_info, message.tool_calls)),
        model=message.model,
        usage=usage_info(message.usage),
        finish_reason=message.finish_reason,
    )


def _tool_call_info(call: ToolCallPart) -> ToolCallInfo:
    arguments, cut = cut_text(call.arguments)
    return ToolCallInfo(
        call_id=call.call_id, name=call.name, arguments=arguments, arguments_cut=cut
    )


def message_thinking(message: AssistantMessage) -> str:
    return "\n".join(it.text for it in message.parts if isinstance(it, ThinkingPart))


def message_images(message: Message) -> tuple[ImagePart, ...]:
    match message:
        case UserMessage():
            return tuple(part for part in message.parts if isinstance(part, ImagePart))
        case ToolMessage():
            return message.images
        case _:
            return ()


def _image_infos(stored: StoredMessage, session_id: str) -> tuple[ImageInfo, ...]:
    path = f"/api/sessions/{session_id}/messages/{stored.sequence}/images"
    return tuple(
        ImageInfo(
            url=f"{path}/{index}"
            if image.url.startswith("data:") and len(image.url) > _MAX_SHOWN_BYTES
            else image.url
        )
        for index, image in enumerate(message_images(stored.message))
    )


class CallInfo(ResponseModel):
    """A tool call and its nested calls. Secrets are redacted, and long values are cut."""

    tool_call_id: str
    tool_id: str
    tool_name: str
    source: str
    input: OpaqueJson = None
    input_cut: CutInfo | None = None
    """Then `input` is the start of its JSON."""
    outcome: Literal["completed", "failed", "running"]
    result: OpaqueJson = None
    result_cut: CutInfo | None = None
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
    given, input_cut = cut_json(node.input)
    result, result_cut = cut_json(node.result)
    return CallInfo(
        tool_call_id=node.call_id,
        tool_id=node.tool_id,
        tool_name=node.tool_name,
        source=node.source,
        input=given,
        input_cut=input_cut,
        outcome=node.outcome,
        result=result,
        result_cut=result_cut,
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
