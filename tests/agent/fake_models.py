"""Models that answer what a test wrote down, and remember what they were asked."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

import anyio

from nacre.errors import ConfigError
from nacre.json_types import JsonObject, encode_json
from nacre.messages import AssistantMessage, SentPayload, TextPart, ToolCallPart, Usage
from nacre.providers.base import Answered, ModelEvent, ModelRequest, TextDelta

Reply = AssistantMessage | Exception | Callable[[ModelRequest], Awaitable[AssistantMessage]]


def say(text: str, *, tokens: int = 10) -> AssistantMessage:
    return AssistantMessage(parts=(TextPart(text=text),), usage=Usage(output_tokens=tokens))


def call(
    name: str, arguments: JsonObject | str | None = None, *, call_id: str = "call_1"
) -> AssistantMessage:
    return calls((call_id, name, arguments if arguments is not None else {}))


def calls(*made: tuple[str, str, JsonObject | str]) -> AssistantMessage:
    return AssistantMessage(
        parts=tuple(
            ToolCallPart(
                call_id=call_id,
                name=name,
                arguments=given if isinstance(given, str) else encode_json(given).decode(),
            )
            for call_id, name, given in made
        ),
        usage=Usage(output_tokens=10),
        finish_reason="tool_calls",
    )


class FakeModel:
    """Gives its replies one after the other."""

    def __init__(self, model_id: str = "fake/model", *, context_tokens: int = 100_000) -> None:
        self.model_id = model_id
        self.context_tokens = context_tokens
        self.replies: list[Reply] = []
        self.requests: list[ModelRequest] = []
        self.sent_names: Callable[[ModelRequest], tuple[str, ...]] = names_of
        self.open_streams = 0
        self.breaks_after_text: Exception | None = None
        self.skips_check = False
        self.holds_after_text: anyio.Event | None = None

    def will(self, *replies: Reply) -> None:
        self.replies.extend(replies)

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[ModelEvent]]:
        self.open_streams += 1
        try:
            yield self._events(request)
        finally:
            self.open_streams -= 1

    async def _events(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        if request.check is not None and not self.skips_check:
            names = self.sent_names(request)
            request.check(SentPayload(tool_names=names, tool_bytes=100, payload_bytes=1000))
        self.requests.append(request)
        if not self.replies:
            raise AssertionError("the model was asked more often than the test expects")
        reply = self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        answer = reply if isinstance(reply, AssistantMessage) else await reply(request)
        if answer.text:
            yield TextDelta(text=answer.text)
        if self.holds_after_text is not None:
            await self.holds_after_text.wait()
        if self.breaks_after_text is not None:
            raise self.breaks_after_text
        yield Answered(message=answer)


class HeldAnswer:
    """A reply that comes when the test says so; `asked` tells that the model is at it."""

    def __init__(self, answer: AssistantMessage) -> None:
        self._answer = answer
        self.asked = anyio.Event()
        self.release = anyio.Event()

    async def __call__(self, request: ModelRequest) -> AssistantMessage:
        self.asked.set()
        await self.release.wait()
        return self._answer


class FakeModels:
    """All models of a test, by id."""

    def __init__(self, models: Mapping[str, FakeModel]) -> None:
        self._models = models

    def get(self, model_id: str, /) -> FakeModel:
        if model_id not in self._models:
            raise ConfigError("models", f"has no model {model_id!r}")
        return self._models[model_id]


def names_of(request: ModelRequest) -> tuple[str, ...]:
    return tuple(spec.name for spec in request.tools)
