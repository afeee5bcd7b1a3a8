"""Agents for tests of commands: their configuration, and a provider that plays a script."""

import json
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, cast

from anyio.from_thread import start_blocking_portal

from nacre.testing.script import RecordedRequest, Script
from nacre.testing.scripted_provider import ScriptedProvider
from tests.cli.surroundings import Surroundings


def configure_agents(here: Surroundings, **more: Any) -> None:
    """An agent with code mode, a workspace and a store of its own; it has no model."""
    document: dict[str, Any] = {
        "storage": {"url": f"sqlite:///{here.home / 'nacre.db'}"},
        "agents": {"defaults": {"workspace": str(here.project)}},
        "tools": {"codeMode": True},
        **more,
    }
    here.config.write_text(json.dumps(document), encoding="utf-8")


@contextmanager
def scripted_model(here: Surroundings, script: Script, **more: Any) -> Generator[ScriptedProvider]:
    """Have a script answer in place of a model."""
    with (
        start_blocking_portal("asyncio") as portal,
        portal.wrap_async_context_manager(ScriptedProvider(script)) as provider,
    ):
        server = {"baseUrl": provider.openai_url, "apiKey": "none", "api": "openai-completions"}
        defaults = {"workspace": str(here.project), "model": "local/scripted"}
        configure_agents(
            here,
            models={"providers": {"local": server}},
            agents={"defaults": defaults},
            **more,
        )
        yield provider


def told(request: RecordedRequest) -> list[str]:
    """What the model was told, message by message."""
    messages = cast("list[dict[str, Any]]", request.body["messages"])
    return [message["content"] for message in messages]


def program(code: str) -> str:
    """A prompt that has the demonstration model run just this program."""
    return f"```js\n{code}\n```"


WRITE_A_FILE = program(
    'return await tools.call("openclaw:core:write", {path: "a.txt", content: "one\\ntwo\\n"});'
)
ENDLESS = program("while (true) {}")
