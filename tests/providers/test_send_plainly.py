"""The fast path around the SDKs sends the same request bodies."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anthropic
import openai
import pytest

from nacre.providers.pydantic_ai_provider import send_plainly
from nacre.testing import Say, ScriptedProvider

SCHEMA = {"type": "object", "properties": {"code": {"type": "string"}}}
CALL = {"id": "c1", "type": "function", "function": {"name": "exec", "arguments": "{}"}}
CHAT: dict[str, Any] = {
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "hi"}]},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "done"},
    ],
    "tools": [{"type": "function", "function": {"name": "exec", "parameters": SCHEMA}}],
    "temperature": 0.5,
    "extra_body": {"seen": True},
}
RESPONSES: dict[str, Any] = {
    "input": [{"role": "user", "content": [{"type": "input_text", "text": "hi"}]}],
    "tools": [{"type": "function", "name": "exec", "parameters": SCHEMA, "strict": False}],
}
MESSAGES: dict[str, Any] = {
    "max_tokens": 10,
    "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}],
    "tools": [{"name": "exec", "input_schema": SCHEMA}],
}


class Clients:
    """The official ones, for a scripted provider."""

    def __init__(self, provider: ScriptedProvider) -> None:
        self.openai = openai.AsyncOpenAI(api_key="x", base_url=provider.openai_url)
        self.anthropic = anthropic.AsyncAnthropic(api_key="x", base_url=provider.url)

    def resource(self, door: str) -> Any:
        match door:
            case "chat":
                return self.openai.chat.completions
            case "responses":
                return self.openai.responses
            case _:
                return self.anthropic.beta.messages


@asynccontextmanager
async def clients_of(provider: ScriptedProvider) -> AsyncGenerator[Clients]:
    clients = Clients(provider)
    async with clients.openai, clients.anthropic:
        yield clients


@pytest.mark.parametrize(
    ("door", "conversation", "options"),
    [
        ("chat", "messages", CHAT),
        ("responses", "input", RESPONSES),
        ("messages", "messages", MESSAGES),
    ],
)
async def test_what_arrives_is_what_the_sdk_would_have_sent(
    door: str, conversation: str, options: dict[str, Any]
) -> None:
    async with ScriptedProvider([Say("a"), Say("b")]) as provider, clients_of(provider) as clients:
        resource = clients.resource(door)
        await resource.create(model="m", **options)
        send_plainly(resource, conversation)
        await resource.create(model="m", **options)
        walked, sent = provider.requests
    assert sent.body == walked.body


async def test_the_sdk_does_not_look_at_what_is_plain() -> None:
    seen: list[dict[str, Any]] = []

    class Resource:
        """Notes what it is given."""

        async def create(self, **options: Any) -> None:
            seen.append(options)

    resource: Any = Resource()
    send_plainly(resource, "messages")
    await resource.create(model="m", messages=CHAT["messages"], tools=CHAT["tools"])
    assert seen == [
        {
            "model": "m",
            "messages": [],
            "extra_body": {"messages": CHAT["messages"], "tools": CHAT["tools"]},
        }
    ]


async def test_what_is_not_json_is_left_to_the_sdk() -> None:
    said = {"role": "user", "content": "hi", "name": openai.omit}
    async with ScriptedProvider([Say("a")]) as provider, clients_of(provider) as clients:
        resource = clients.resource("chat")
        send_plainly(resource, "messages")
        await resource.create(model="m", messages=[said])
        (request,) = provider.requests
    assert request.body["messages"] == [{"role": "user", "content": "hi"}]
