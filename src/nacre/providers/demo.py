"""The embedded demonstration model: a few fixed habits, no network, and no intelligence at all."""

from __future__ import annotations

import re
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import anyio.lowlevel

from nacre.json_types import encode_json
from nacre.messages import (
    AssistantMessage,
    SystemMessage,
    TextPart,
    ToolCallPart,
    ToolMessage,
    Usage,
    UserMessage,
)
from nacre.providers.base import Answered, SentPayload, TextDelta, ToolCallDelta
from nacre.providers.demo_answers import next_move
from nacre.providers.demo_intents import intent_of
from nacre.providers.demo_moves import Move, first_move, surface_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from nacre.json_types import JsonValue
    from nacre.messages import Message
    from nacre.providers.base import ModelEvent, ModelRequest

DEMO_NOTE: Final = (
    "(I am Nacre's built-in demonstration model, not a real one. For a real one, set "
    "`agents.defaults.model` in the configuration, such as `openai/gpt-6`, and give its "
    "provider a key, such as OPENAI_API_KEY.)"
)
_MODEL_ID: Final = "demo/demo"
_CONTEXT_TOKENS: Final = 128_000
_CHARACTERS_PER_TOKEN: Final = 4
_WORD = re.compile(r"\s*\S+\s*|\s+")


class DemoProvider:
    """Answers without a key, always in the same way, so that the rest can be seen at work."""

    @property
    def model_id(self) -> str:
        return _MODEL_ID

    @property
    def context_tokens(self) -> int:
        return _CONTEXT_TOKENS

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[ModelEvent]]:
        events = _events(request)
        try:
            yield events
        finally:
            await events.aclose()


async def _events(request: ModelRequest) -> AsyncGenerator[ModelEvent]:
    sent = _payload_of(request)
    if request.check is not None:
        request.check(sent)
    move = _move_for(request)
    if isinstance(move, Move):
        call = ToolCallPart(
            call_id=f"call_demo_{len(request.messages)}",
            name=move.name,
            arguments=move.arguments_text,
        )
        await anyio.lowlevel.checkpoint()
        yield ToolCallDelta(call_id=call.call_id, name=call.name, arguments=call.arguments)
        yield _answered(call, sent, written=call.arguments)
        return
    text = move if _has_said_what_it_is(request) else f"{move}\n\n{DEMO_NOTE}"
    for word in _WORD.findall(text):
        # Whoever leaves in the middle is to be able to.
        await anyio.lowlevel.checkpoint()
        yield TextDelta(text=word)
    yield _answered(TextPart(text=text), sent, written=text)


def _move_for(request: ModelRequest) -> Move | str:
    """What a person said last, and what came of the calls since then, say all."""
    asked = UserMessage(parts=())
    results: list[ToolMessage] = []
    for message in request.messages:
        match message:
            case UserMessage():
                asked, results = message, []
            case ToolMessage():
                results.append(message)
            case AssistantMessage() | SystemMessage():
                pass
    intent = intent_of(asked.text)
    if results:
        return next_move(intent, results, surface_of(request.tools))
    return first_move(intent, request.tools)


def _has_said_what_it_is(request: ModelRequest) -> bool:
    """Once in a session is enough."""
    return any(
        isinstance(message, AssistantMessage) and DEMO_NOTE in message.text
        for message in request.messages
    )


def _answered(part: TextPart | ToolCallPart, sent: SentPayload, *, written: str) -> Answered:
    usage = Usage(
        input_tokens=sent.payload_bytes // _CHARACTERS_PER_TOKEN + 1,
        output_tokens=len(written) // _CHARACTERS_PER_TOKEN + 1,
    )
    return Answered(
        message=AssistantMessage(
            parts=(part,),
            model=_MODEL_ID,
            usage=usage,
            finish_reason="tool_calls" if isinstance(part, ToolCallPart) else "stop",
        )
    )


def _payload_of(request: ModelRequest) -> SentPayload:
    """As if there were a wire, so that the same checks and counts hold as for a real model."""
    tools: list[JsonValue] = [
        {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
        for tool in request.tools
    ]
    tool_bytes = len(encode_json(tools))
    said = sum(_bytes_of(message) for message in request.messages)
    return SentPayload(
        tool_names=tuple(tool.name for tool in request.tools),
        tool_bytes=tool_bytes,
        payload_bytes=tool_bytes + said + len(request.instructions.encode(errors="replace")),
    )


def _bytes_of(message: Message) -> int:
    match message:
        case UserMessage() | SystemMessage():
            texts = [message.text]
        case ToolMessage():
            texts = [message.content]
        case AssistantMessage():
            texts = [message.text, *(call.arguments for call in message.tool_calls)]
    return sum(len(text.encode(errors="replace")) for text in texts)
