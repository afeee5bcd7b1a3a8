"""Asking a scripted provider over each wire format."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import anyio

from nacre.config.models import ModelConfig, ModelsConfig, ProviderApi, ProviderConfig
from nacre.messages import AssistantMessage, Message, ToolSpec, user_message
from nacre.providers.base import (
    Answered,
    ModelEvent,
    ModelRequest,
    ModelSettings,
    PayloadCheck,
    Provider,
)
from nacre.providers.registry import Providers
from nacre.testing.script import Script
from nacre.testing.scripted_provider import ScriptedProvider

API_KEY: Final = "key-of-this-test-0123456789"
SCRIPTED_APIS: Final[tuple[ProviderApi, ...]] = (
    "openai-completions",
    "openai-responses",
    "anthropic-messages",
)
# The first request imports the SDKs, which takes a while on a busy machine.
WAIT_SECONDS: Final = 60

WEATHER: Final = ToolSpec(
    name="weather",
    description="The weather of a town.",
    parameters={
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "title": "Weather",
        "properties": {
            "town": {"type": "string", "minLength": 1, "pattern": "^[A-Z]"},
            "days": {"type": "integer", "default": 1, "maximum": 9},
        },
        "required": ["town"],
    },
)


@dataclass(kw_only=True)
class Scripted:
    """A provider of ours, and the scripted server that it asks."""

    providers: Providers
    server: ScriptedProvider
    events: list[ModelEvent] = field(default_factory=list[ModelEvent])

    @property
    def provider(self) -> Provider:
        return self.providers.get("test/scripted")

    async def ask(
        self,
        messages: Sequence[Message] | str = "hello",
        *,
        instructions: str = "",
        tools: Sequence[ToolSpec] = (),
        settings: ModelSettings | None = None,
        check: PayloadCheck | None = None,
        provider: Provider | None = None,
    ) -> AssistantMessage:
        """The whole answer; the events before it are in `events`, also when there is none."""
        request = ModelRequest(
            instructions=instructions,
            messages=[user_message(messages)] if isinstance(messages, str) else messages,
            tools=tools,
            settings=settings or ModelSettings(),
            check=check,
        )
        self.events.clear()
        with anyio.fail_after(WAIT_SECONDS):
            async with (provider or self.provider).stream(request) as events:
                async for event in events:
                    self.events.append(event)
        last = self.events.pop()
        assert isinstance(last, Answered)
        return last.message


@asynccontextmanager
async def scripted(
    api: ProviderApi,
    script: Script,
    *,
    max_retries: int = 0,
    timeout_seconds: float = 30.0,
    headers: Mapping[str, str] | None = None,
    models: Mapping[str, ModelConfig] | None = None,
) -> AsyncGenerator[Scripted]:
    async with ScriptedProvider(script) as server:
        config = ProviderConfig(
            name="test",
            api=api,
            base_url=server.url if api == "anthropic-messages" else server.openai_url,
            api_key=API_KEY,
            headers=headers or {},
            timeout_seconds=timeout_seconds,
            max_retries=max_retries,
            models=models or {},
        )
        providers = Providers(ModelsConfig(providers={"test": config}), first_retry_seconds=0.0)
        try:
            yield Scripted(providers=providers, server=server)
        finally:
            await providers.aclose()
