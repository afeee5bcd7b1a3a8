"""A gateway with a scripted model behind it, and OpenAI's own client in front of it."""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import openai
import pytest

from nacre.testing import ScriptedProvider
from nacre.testing.script import Script
from tests.gateway.worlds import PATIENCE_SECONDS, TOKEN, World, open_world

WEATHER: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
}
CHAT_WEATHER: Any = {
    "type": "function",
    "function": {"name": "weather", "description": "The weather.", "parameters": WEATHER},
}
RESPONSES_WEATHER: Any = {
    "type": "function",
    "name": "weather",
    "description": "The weather.",
    "parameters": WEATHER,
    "strict": False,
}


@dataclass(kw_only=True)
class OpenAiWorld:
    """What a test holds. The client is untyped: tests send what its types do not allow."""

    client: Any
    world: World
    model: ScriptedProvider

    async def chat(self, said: Any = "hello", **options: Any) -> Any:
        messages = [user(said)] if isinstance(said, str) else said
        return await self.client.chat.completions.create(
            **{"model": "nacre", "messages": messages, **options}
        )

    async def respond(self, said: Any = "hello", **options: Any) -> Any:
        return await self.client.responses.create(**{"model": "nacre", "input": said, **options})


OpenWorld = Callable[..., AbstractAsyncContextManager[OpenAiWorld]]


@pytest.fixture
def open_openai(tmp_path: Path) -> OpenWorld:
    """`async with open_openai(script, document) as world`; again for a restart."""

    @asynccontextmanager
    async def opened(
        script: Script = (), document: Mapping[str, object] | None = None
    ) -> AsyncGenerator[OpenAiWorld]:
        async with (
            ScriptedProvider(script) as model,
            open_world(tmp_path, model, document) as world,
            openai.AsyncOpenAI(
                base_url=f"{world.url}/v1", api_key=TOKEN, max_retries=0, timeout=PATIENCE_SECONDS
            ) as client,
        ):
            yield OpenAiWorld(client=client, world=world, model=model)

    return opened


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}
