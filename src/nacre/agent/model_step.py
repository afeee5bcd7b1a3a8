"""One model call: the request, its stream of events, and the fallback models."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol, assert_never

from nacre.agent.turn_spans import chat_span, note_answer
from nacre.errors import ProviderError, ToolPayloadError
from nacre.hooks import LlmInput, LlmOutput
from nacre.json_types import replace_surrogates
from nacre.messages import AssistantMessage, SentPayload, TextPart, ThinkingPart, ToolCallPart
from nacre.providers import (
    Answered,
    ModelRequest,
    ModelSettings,
    Retrying,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
)
from nacre.storage import message_to_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nacre.agent.turn_context import TurnContext
    from nacre.config import AgentConfig
    from nacre.json_types import JsonObject
    from nacre.messages import AssistantPart, Message
    from nacre.providers import ModelEvent, Provider
    from nacre.tools import ToolSurface

_MAX_PROBLEM_CHARACTERS: Final = 500
_CALL_ID_BYTES: Final = 8


class ProviderSource(Protocol):
    """The source of models."""

    def get(self, model_id: str, /) -> Provider:
        """Return the model `<provider>/<model>`. Raises ConfigError if it is not configured."""
        ...


class ModelStep:
    """Calls the model of a turn, and its fallbacks if it fails."""

    def __init__(self, turn: TurnContext, surface: ToolSurface, *, instructions: str) -> None:
        self._turn = turn
        self._surface = surface
        self._instructions = instructions
        self._settings = _merge_settings(turn.agent, turn.request.settings)
        self._has_streamed = False
        self._partial: list[str] = []
        self._call_ids: set[str] = set()
        self.sent = SentPayload(tool_names=(), tool_bytes=0, payload_bytes=0)
        """The sizes of all requests so far, added up."""
        self.request_count = 0

    @property
    def partial_text(self) -> str:
        """The text of an answer that was cut off."""
        return "".join(self._partial)

    async def ask(self, messages: Sequence[Message]) -> AssistantMessage:
        """Return the answer. Raises ProviderError if no model answers, and ToolPayloadError."""
        models = self._turn.models
        for model, next_model in zip(models, (*models[1:], ""), strict=True):
            try:
                return await self._request_model(self._turn.providers.get(model), messages)
            except ProviderError as error:
                # Streamed text cannot be taken back, and a fallback does not help if the
                # context is too long.
                if not next_model or self._has_streamed or error.is_context_overflow:
                    raise
                problem = error.message[:_MAX_PROBLEM_CHARACTERS]
                self._turn.run.events.add(
                    "retry", {"model": next_model, "failedModel": model, "problem": problem}
                )
        raise AssertionError("there is at least one model")

    async def _request_model(
        self, provider: Provider, messages: Sequence[Message]
    ) -> AssistantMessage:
        self._has_streamed = False
        self._partial = []
        is_first_payload = True

        def check(sent: SentPayload) -> None:
            nonlocal is_first_payload
            self._surface.verify_payload(sent, instructions=self._instructions)
            self._note_sent(sent, provider.model_id, is_told=is_first_payload)
            is_first_payload = False

        request = ModelRequest(
            instructions=self._instructions,
            messages=messages,
            tools=self._surface.specs,
            settings=self._settings,
            check=check,
        )
        await self._call_input_hooks(provider.model_id, messages)
        answer = self._repair_answer(await self._stream_answer(provider, request))
        if is_first_payload:
            raise ToolPayloadError(
                f"{provider.model_id} answered without having its request checked; "
                "the provider is at fault, and the answer is not used"
            )
        self._partial = []
        self._record_answer(answer, provider.model_id)
        await self._call_output_hooks(answer, provider.model_id)
        return answer

    async def _stream_answer(self, provider: Provider, request: ModelRequest) -> AssistantMessage:
        answer: AssistantMessage | None = None
        with chat_span(provider.model_id, context=self._turn.identity) as current:
            async with provider.stream(request) as events:
                async for event in events:
                    answer = self._handle_event(event) or answer
                    if isinstance(event, Answered):
                        note_answer(current, event)
            if answer is None:
                raise ProviderError(f"{provider.model_id} ended its stream without an answer")
        return answer if answer.model else replace(answer, model=provider.model_id)

    def _handle_event(self, event: ModelEvent) -> AssistantMessage | None:
        match event:
            case TextDelta():
                self._has_streamed = True
                text = replace_surrogates(event.text)
                self._partial.append(text)
                self._turn.run.events.add("text.delta", {"text": text})
            case ThinkingDelta():
                self._has_streamed = True
                self._turn.run.events.add(
                    "thinking.delta", {"text": replace_surrogates(event.text)}
                )
            case ToolCallDelta():
                # The complete call is in the answer.
                pass
            case Retrying():
                self._turn.run.events.add(
                    "retry",
                    {
                        "attempt": event.attempt,
                        "delaySeconds": event.delay_seconds,
                        "problem": event.problem[:_MAX_PROBLEM_CHARACTERS],
                    },
                )
            case Answered():
                return event.message
            case _:
                assert_never(event)
        return None

    def _repair_answer(self, answer: AssistantMessage) -> AssistantMessage:
        """Replace invalid characters, and give every call of the run a unique id: some providers
        start their ids again with each answer."""
        parts: list[AssistantPart] = []
        for part in answer.parts:
            sound = _repair_part(part)
            if isinstance(sound, ToolCallPart):
                if not sound.call_id or sound.call_id in self._call_ids:
                    sound = replace(sound, call_id=f"call_{os.urandom(_CALL_ID_BYTES).hex()}")
                self._call_ids.add(sound.call_id)
            parts.append(sound)
        return replace(answer, parts=tuple(parts))

    def _note_sent(self, sent: SentPayload, model: str, *, is_told: bool) -> None:
        self.request_count += 1
        self.sent = SentPayload(
            tool_names=sent.tool_names,
            tool_bytes=self.sent.tool_bytes + sent.tool_bytes,
            payload_bytes=self.sent.payload_bytes + sent.payload_bytes,
        )
        if not is_told:
            return
        data: JsonObject = {
            "model": model,
            "toolNames": [*sent.tool_names],
            "toolBytes": sent.tool_bytes,
            "payloadBytes": sent.payload_bytes,
        }
        self._turn.run.events.add("model.started", data)
        self._turn.trajectory.record("model.requested", data=data)

    def _record_answer(self, answer: AssistantMessage, model: str) -> None:
        said: JsonObject = {
            "model": model,
            "text": answer.text,
            "finishReason": answer.finish_reason,
            "usage": answer.usage.to_json(),
        }
        calls: list[JsonObject] = [
            {"callId": call.call_id, "name": call.name, "arguments": call.arguments}
            for call in answer.tool_calls
        ]
        self._turn.run.events.add("message.completed", {**said, "toolCalls": [*calls]})
        called = [call.name for call in answer.tool_calls]
        self._turn.trajectory.record("model.answered", data={**said, "calledNames": [*called]})

    async def _call_input_hooks(self, model: str, messages: Sequence[Message]) -> None:
        hooks = self._turn.service.hooks
        if hooks.has_hooks("llm_input"):
            await hooks.llm_input(
                LlmInput(
                    context=self._turn.identity,
                    model=model,
                    instructions=self._instructions,
                    messages=[message_to_json(message) for message in messages],
                    tool_names=tuple(spec.name for spec in self._surface.specs),
                )
            )

    async def _call_output_hooks(self, answer: AssistantMessage, model: str) -> None:
        hooks = self._turn.service.hooks
        if hooks.has_hooks("llm_output"):
            await hooks.llm_output(
                LlmOutput(
                    context=self._turn.identity,
                    model=model,
                    text=answer.text,
                    called_names=tuple(call.name for call in answer.tool_calls),
                    usage=answer.usage.to_json(),
                    finish_reason=answer.finish_reason,
                )
            )


def partial_answer(text: str, model: str) -> AssistantMessage:
    """Make the message of an answer that was cut off."""
    return AssistantMessage(parts=(TextPart(text=text),), model=model, finish_reason="error")


def _repair_part(part: AssistantPart) -> AssistantPart:
    match part:
        case TextPart() | ThinkingPart():
            return replace(part, text=replace_surrogates(part.text))
        case ToolCallPart():
            return replace(
                part,
                call_id=replace_surrogates(part.call_id),
                name=replace_surrogates(part.name),
                arguments=replace_surrogates(part.arguments),
            )


def _merge_settings(agent: AgentConfig, asked: ModelSettings) -> ModelSettings:
    """Merge the settings of the caller over those of the agent."""
    own = agent.settings
    return ModelSettings(
        max_tokens=asked.max_tokens if asked.max_tokens is not None else own.max_output_tokens,
        temperature=asked.temperature if asked.temperature is not None else own.temperature,
        top_p=asked.top_p,
        stop=asked.stop,
        is_parallel=asked.is_parallel if asked.is_parallel is not None else own.is_parallel,
    )
