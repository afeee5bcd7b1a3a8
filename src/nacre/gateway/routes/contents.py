"""Whole values that other responses cut: texts and images of messages, inputs and results."""

import base64
import binascii
from typing import Annotated, Final, Literal
from urllib.parse import unquote_to_bytes

from fastapi import APIRouter, Path, Query, Response

from nacre.agent import AgentRun, detect_media_type
from nacre.gateway.errors import ApiError, quote_id
from nacre.gateway.routes.messages import message_images, message_thinking
from nacre.gateway.routing import (
    BEARER,
    GatewayState,
    JsonRoute,
    ResponseModel,
    State,
    error_responses,
)
from nacre.gateway.run_events import stored_pages
from nacre.json_types import JsonObject, encode_json
from nacre.messages import AssistantMessage, Message, ToolMessage
from nacre.storage import StoredMessage


class TextResponse(ResponseModel):
    """A part of a text. Offsets and sizes are numbers of characters."""

    text: str
    offset: int
    total: int
    next_offset: int | None = None
    """Null at the end of the text."""


_MAX_CHARACTERS: Final = 256 * 1024
_SEQUENCE: Final = Path(ge=0, le=2**62)

Offset = Annotated[int, Query(ge=0, le=2**31)]
Limit = Annotated[int, Query(ge=1, le=_MAX_CHARACTERS)]

router = APIRouter(prefix="/api", tags=["sessions"], route_class=JsonRoute, dependencies=[BEARER])


@router.get(
    "/sessions/{session_id}/messages/{sequence}",
    summary="Get a whole text of a message",
    responses=error_responses(404),
)
async def get_message_text(
    session_id: str,
    sequence: Annotated[int, _SEQUENCE],
    state: State,
    part: Annotated[
        Literal["text", "thinking", "arguments"],
        Query(description="`text` is also the content of a result."),
    ] = "text",
    call_id: Annotated[
        str, Query(alias="callId", description="With `arguments`: the call.", max_length=500)
    ] = "",
    offset: Offset = 0,
    limit: Limit = _MAX_CHARACTERS,
) -> TextResponse:
    """Get a text of a message that is cut in the session."""
    stored = await _find_message(session_id, sequence, state)
    return _page(_message_text(stored.message, part, call_id), offset, limit)


@router.get(
    "/sessions/{session_id}/messages/{sequence}/images/{index}",
    summary="Get an image of a message",
    response_class=Response,
    responses={
        **error_responses(404),
        200: {
            "description": "The content of the image.",
            "content": {"application/octet-stream": {"schema": {"type": "string"}}},
        },
    },
)
async def get_message_image(
    session_id: str,
    sequence: Annotated[int, _SEQUENCE],
    index: Annotated[int, Path(ge=0, le=1000)],
    state: State,
) -> Response:
    """Get an image that is part of a message. `Content-Type` is its type by content."""
    stored = await _find_message(session_id, sequence, state)
    images = message_images(stored.message)
    data = _decode_data_url(images[index].url) if index < len(images) else None
    if data is None:
        raise ApiError(404, f"the message {sequence} has no image {index} with its own content")
    return Response(
        data,
        headers={
            "content-type": detect_media_type(data),
            "x-content-type-options": "nosniff",
            "content-security-policy": "default-src 'none'; sandbox",
            # Messages never change, but a session can be deleted.
            "cache-control": "private, max-age=3600",
        },
    )


@router.get(
    "/runs/{run_id}/calls/{tool_call_id}",
    summary="Get the whole input or result of a call",
    responses=error_responses(404),
)
async def get_call_text(
    run_id: str,
    tool_call_id: str,
    state: State,
    part: Literal["input", "result"] = "result",
    offset: Offset = 0,
    limit: Limit = _MAX_CHARACTERS,
) -> TextResponse:
    """Get the input or the result of a tool call as a text.

    A call of the model has its whole input and result as soon as its turn has ended. Nested calls
    and those of running turns have what the trajectory has: redacted, with long values cut.
    """
    run = state.system.agents.run(run_id)
    text = await _stored_call_text(run_id, tool_call_id, part, state)
    if text is None:
        text = await _recorded_call_text(run, run_id, tool_call_id, part, state)
    if text is None:
        raise ApiError(404, f"the run {quote_id(run_id)} has no {part} of such a call")
    return _page(text, offset, limit)


def _page(text: str, offset: int, limit: int) -> TextResponse:
    end = offset + limit
    return TextResponse(
        text=text[offset:end],
        offset=offset,
        total=len(text),
        next_offset=end if end < len(text) else None,
    )


async def _find_message(session_id: str, sequence: int, state: GatewayState) -> StoredMessage:
    found = await state.system.store.message(session_id, sequence)
    if found is None:
        raise ApiError(404, f"the session {quote_id(session_id)} has no message {sequence}")
    return found


def _message_text(message: Message, part: str, call_id: str) -> str:
    match message:
        case AssistantMessage() if part == "thinking":
            return message_thinking(message)
        case AssistantMessage() if part == "arguments":
            for call in message.tool_calls:
                if call.call_id == call_id:
                    return call.arguments
        case ToolMessage() if part == "text":
            return message.content
        case _ if part == "text" and not isinstance(message, ToolMessage):
            return message.text
        case _:
            pass
    raise ApiError(404, f"the message has no {part} of this kind", path="query.part")


def _decode_data_url(url: str) -> bytes | None:
    """The content of a `data:` URL; None for other URLs."""
    head, comma, content = url.partition(",")
    if not head.startswith("data:") or not comma:
        return None
    if not head.endswith(";base64"):
        return unquote_to_bytes(content)
    try:
        return base64.b64decode(content)
    except binascii.Error:
        return None


async def _stored_call_text(
    run_id: str, call_id: str, part: str, state: GatewayState
) -> str | None:
    """From the messages of the turn, which have what the model wrote and read."""
    store = state.system.store
    turn = await store.turn(run_id)
    if turn is None:
        return None
    for stored in await store.messages_of_turns(turn.session_id, [run_id]):
        match stored.message:
            case AssistantMessage(tool_calls=calls) if part == "input":
                for call in calls:
                    if call.call_id == call_id:
                        return call.arguments
            case ToolMessage(call_id=found) if part == "result" and found == call_id:
                return stored.message.content
            case _:
                pass
    return None


async def _recorded_call_text(
    run: AgentRun | None, run_id: str, call_id: str, part: str, state: GatewayState
) -> str | None:
    """From the events of the run, the last one first: an input may have been changed."""
    if run is not None:
        events = [(it.kind, it.data.get("toolCallId"), it.data) for it in run.events.events]
    else:
        events = [
            (it.event.get("kind"), it.event.get("toolCallId"), it.event.get("data"))
            async for page in stored_pages(state.system.store, run_id=run_id)
            for it in page
        ]
    for kind, found_id, data in reversed(events):
        is_call = isinstance(kind, str) and kind.startswith("call.") and found_id == call_id
        if is_call and isinstance(data, dict) and part in data:
            return _to_text(data, part)
    return None


def _to_text(data: JsonObject, part: str) -> str:
    value = data[part]
    return value if isinstance(value, str) else encode_json(value).decode()
