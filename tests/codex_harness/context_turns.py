"""A system with the real Codex, a scripted model, and a plugin that logs what it sees."""

import json
import threading
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

from nacre.agent import AgentRun, TurnRequest
from nacre.bootstrap import System, open_system
from nacre.testing import ScriptedProvider
from nacre.testing.script import RecordedRequest
from tests.codex_harness.codex_setup import HAS_CONTEXT, codex_document, read_config

COMPACTED = threading.Event()
"""Set by the plugin when a compaction has ended."""
RELEASED = threading.Event()
"""The plugin's hook `after_tool_call` waits for it."""
PLUGIN = """
import json
from pathlib import Path
from tests.codex_harness.context_turns import COMPACTED, RELEASED
from nacre.plugins.api import (
    AddToPrompt, AssembledContext, AssistantMessage, ContextEngine, PluginApi, TextPart,
    ToolCallPart, ToolMessage, UserMessage,
)

class Recall(ContextEngine):
    id = "recall"

    def __init__(self, log, state):
        self._log = log
        self._state = state

    def assemble(self, request):
        self._log("assemble", {"given": len(request.messages)})
        call = ToolCallPart(call_id="call_9", name="pay", arguments='{"card": "4111-1111"}')
        return AssembledContext(
            messages=[
                UserMessage(parts=(TextPart(text="recalled question"),)),
                AssistantMessage(parts=(TextPart(text="recalled answer"), call)),
                ToolMessage(
                    call_id="call_9", name="pay", content='{"paid": 7, "apiKey": "hunter2222"}'
                ),
            ],
            instructions="Use what you recall.",
            projection="thread_bootstrap",
            epoch=self._state.read_text(),
        )

    def ingest(self, turn):
        self._log("ingest", {"count": len(turn.messages)})

    def after_turn(self, turn):
        self._log("after_turn", {"status": turn.status})

def register(api: PluginApi) -> None:
    path = Path(api.config["log"])

    def log(name, data):
        with path.open("a") as file:
            file.write(json.dumps([name, data]) + "\\n")

    def note(name):
        def hook(event):
            if name == "after_tool_call":
                log(name, {"isReleased": RELEASED.wait(60)})
                return {"result": "changed by the hook"}
            log(name, event.to_json())
            if name == "after_compaction":
                COMPACTED.set()
        return hook

    for name in api.config["hooks"]:
        api.add_hook(name, note(name))
    api.add_hook("before_prompt_build", lambda event: {
        "prependContext": "HOOK CONTEXT", "appendSystemContext": "HOOK RULE"
    })
    api.add_guidance("GLOBAL HINT")
    api.add_guidance("CODEX HINT", surfaces=["codex_app_server"])
    api.add_context_engine(Recall(log, Path(api.config["state"])))
"""


class Setup:
    """An open system, its scripted model and its workspace."""

    def __init__(self, system: System, provider: ScriptedProvider, workspace: Path) -> None:
        self.system = system
        self.provider = provider
        self.workspace = workspace

    async def turn(self, message: str, **options: Any) -> AgentRun:
        options.setdefault("session_key", "main")
        run = await self.system.agents.start(TurnRequest(message=message, **options))
        with anyio.fail_after(60):
            await run.wait()
        return run

    @property
    def last(self) -> RecordedRequest:
        return self.provider.requests[-1]


@asynccontextmanager
async def open_setup(
    folder: Path,
    provider: ScriptedProvider,
    sections: Mapping[str, Any] | None = None,
    agent: Mapping[str, Any] | None = None,
) -> AsyncGenerator[Setup]:
    """Open a system whose model `mock/...` runs in Codex, and `plain/...` does not."""
    workspace = folder / "ws"
    workspace.mkdir(exist_ok=True)
    document = codex_document(
        provider.openai_url, agent={"workspace": str(workspace), **(agent or {})}
    )
    document["agents"]["list"] = [{"id": "main", "name": "Pearl"}]
    providers = document["models"]["providers"]
    providers["mock"]["models"] = [
        {"id": "gpt-5.5", "contextWindow": 1_000},
        {"id": "gpt-5.2", "contextWindow": 1_000},
    ]
    # The same model server, without Codex.
    providers["plain"] = {**providers["mock"], "agentRuntime": {"id": "openclaw"}}
    entries = document["plugins"]["entries"]
    for name, section in (sections or {}).items():
        document[name] = {**document.get(name, {}), **section}
    document["plugins"].setdefault("entries", {})
    document["plugins"]["entries"] = {**entries, **document["plugins"]["entries"]}
    config = await read_config(document, folder)
    async with open_system(config, workers=1) as system:
        yield Setup(system, provider, workspace)


def texts(request: RecordedRequest, role: str) -> list[str]:
    """The texts of all input messages with this role."""
    items = request.body["input"]
    assert isinstance(items, list)
    return [
        str(content["text"])
        for item in items
        if isinstance(item, dict) and item.get("role") == role
        for content in _contents(item)
        if "text" in content
    ]


def _contents(item: Mapping[str, Any]) -> list[dict[str, Any]]:
    content = item["content"]
    return [{"text": content}] if isinstance(content, str) else content


def joined(request: RecordedRequest, role: str) -> str:
    return "\n".join(texts(request, role))


def instructed(request: RecordedRequest) -> str:
    """The developer texts; in older versions, those of a turn are part of its input."""
    return joined(request, "developer") + ("" if HAS_CONTEXT else joined(request, "user"))


def plugin(folder: Path, *hooks: str, has_engine: bool = False) -> dict[str, Any]:
    """A plugin that logs what it sees, as a section of the document."""
    place = folder / "watcher"
    place.mkdir()
    manifest = {"id": "watcher", "configSchema": {"type": "object"}}
    (place / "nacre.plugin.json").write_text(json.dumps(manifest))
    (place / "plugin.py").write_text(PLUGIN)
    (folder / "state").mkdir(exist_ok=True)
    (folder / "epoch").write_text("1")
    config = {"log": str(folder / "log"), "state": str(folder / "epoch"), "hooks": hooks}
    return {
        "plugins": {
            "paths": [str(place)],
            "entries": {"watcher": {"config": config}},
            "slots": {"contextEngine": "recall" if has_engine else "legacy"},
        }
    }


def logged(folder: Path, *names: str) -> list[tuple[str, dict[str, Any]]]:
    lines = (folder / "log").read_text().splitlines()
    found = [json.loads(line) for line in lines]
    return [(name, data) for name, data in found if not names or name in names]
