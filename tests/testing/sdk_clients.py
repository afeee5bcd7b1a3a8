"""The official SDKs as clients of a scripted provider, all with the same few questions."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import anthropic
import openai

from nacre.testing import ScriptedProvider

Door = Literal[
    "chat", "chat stream", "responses", "responses stream", "messages", "messages stream"
]
DOORS: tuple[Door, ...] = get_args(Door)
STREAMS = tuple(door for door in DOORS if door.endswith("stream"))

MODEL = "scripted"
TOOL = {"type": "object", "properties": {"code": {"type": "string"}}}


@dataclass(kw_only=True, slots=True)
class Heard:
    """What a client made of an answer."""

    text: str = ""
    thought: str = ""
    calls: list[tuple[str, Any]] = field(default_factory=list[tuple[str, Any]])
    call_ids: list[str] = field(default_factory=list[str])
    reason: str | None = None
    tokens: tuple[int, int, int] = (0, 0, 0)
    """Input, output, and how many of the input came from the cache."""


class Clients:
    """One question to each of the doors."""

    def __init__(self, openai_client: Any, anthropic_client: Any) -> None:
        self.openai = openai_client
        self.anthropic = anthropic_client

    async def ask(self, door: Door, prompt: str = "hello") -> Heard:
        match door:
            case "chat" | "chat stream":
                return await self._chat(prompt, is_stream=door.endswith("stream"))
            case "responses" | "responses stream":
                return await self._responses(prompt, is_stream=door.endswith("stream"))
            case "messages" | "messages stream":
                return await self._messages(prompt, is_stream=door.endswith("stream"))

    async def _chat(self, prompt: str, *, is_stream: bool) -> Heard:
        function = {"name": "exec", "parameters": TOOL}
        request: dict[str, Any] = {
            "model": MODEL,
            "messages": [{"role": "system", "content": "Be brief."}, _user(prompt)],
            "tools": [{"type": "function", "function": function}],
        }
        completions = self.openai.chat.completions
        if is_stream:
            request["stream_options"] = {"include_usage": True}
            async with completions.stream(**request) as stream:
                async for _ in stream:
                    pass
                # `get_final_completion` would refuse answers that were cut short.
                answer = stream.current_completion_snapshot
        else:
            answer = await completions.create(**request)
        (choice,) = answer.choices
        calls: list[Any] = choice.message.tool_calls or []
        usage = answer.usage
        return Heard(
            text=choice.message.content or "",
            thought=getattr(choice.message, "reasoning_content", ""),
            calls=[(call.function.name, json.loads(call.function.arguments)) for call in calls],
            call_ids=[call.id for call in calls],
            reason=choice.finish_reason,
            tokens=(
                usage.prompt_tokens,
                usage.completion_tokens,
                usage.prompt_tokens_details.cached_tokens,
            ),
        )

    async def _responses(self, prompt: str, *, is_stream: bool) -> Heard:
        request: dict[str, Any] = {
            "model": MODEL,
            "instructions": "Be brief.",
            "input": [_user(prompt)],
            "tools": [{"type": "function", "name": "exec", "parameters": TOOL, "strict": False}],
        }
        if is_stream:
            async with self.openai.responses.stream(**request) as stream:
                events = [event async for event in stream]
            answer = events[-1].response
        else:
            answer = await self.openai.responses.create(**request)
        heard = Heard(text=answer.output_text, reason=answer.status)
        for item in answer.output:
            if item.type == "function_call":
                heard.calls.append((item.name, json.loads(item.arguments)))
                heard.call_ids.append(item.call_id)
            elif item.type == "reasoning":
                heard.thought += item.summary[0].text
        usage = answer.usage
        cached = usage.input_tokens_details.cached_tokens
        heard.tokens = (usage.input_tokens, usage.output_tokens, cached)
        return heard

    async def _messages(self, prompt: str, *, is_stream: bool) -> Heard:
        request: dict[str, Any] = {
            "model": MODEL,
            "max_tokens": 100,
            "system": "Be brief.",
            "messages": [_user(prompt)],
            "tools": [{"name": "exec", "input_schema": TOOL}],
        }
        if is_stream:
            async with self.anthropic.messages.stream(**request) as stream:
                answer = await stream.get_final_message()
        else:
            answer = await self.anthropic.messages.create(**request)
        heard = Heard(reason=answer.stop_reason)
        for block in answer.content:
            if block.type == "text":
                heard.text += block.text
            elif block.type == "thinking":
                assert block.signature
                heard.thought += block.thinking
            else:
                heard.calls.append((block.name, block.input))
                heard.call_ids.append(block.id)
        cached = answer.usage.cache_read_input_tokens
        heard.tokens = (answer.usage.input_tokens + cached, answer.usage.output_tokens, cached)
        return heard


@asynccontextmanager
async def clients_of(provider: ScriptedProvider) -> AsyncGenerator[Clients]:
    """Clients that do not retry by themselves."""
    async with (
        openai.AsyncOpenAI(
            base_url=provider.openai_url, api_key="test-key", max_retries=0
        ) as openai_client,
        anthropic.AsyncAnthropic(
            base_url=provider.url, api_key="test-key", max_retries=0
        ) as anthropic_client,
    ):
        yield Clients(openai_client, anthropic_client)


def _user(prompt: str) -> dict[str, str]:
    return {"role": "user", "content": prompt}
