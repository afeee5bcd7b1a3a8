"""Plugins observe turns of Codex with what the adapter knows, and nothing that it does not."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio

from nacre.agent import TurnContext
from nacre.codex_harness.observations import Observations
from nacre.config import AgentConfig, SystemConfig
from nacre.messages import Usage, user_message
from nacre.storage import Store
from tests.agent.agent_setup import open_agent
from tests.agent.conftest import store

if TYPE_CHECKING:
    from nacre.json_types import JsonObject

__all__ = ["store"]


class Recorder:
    """Hooks that note what they are given."""

    def __init__(self) -> None:
        self.events: list[tuple[str, JsonObject]] = []

    def __getattr__(self, name: str) -> Any:
        if name not in ("llm_input", "llm_output", "before_compaction", "after_compaction"):
            raise AttributeError(name)

        async def note(event: Any) -> None:
            self.events.append((name, event.to_json()))

        return note


class ObservedHarness:
    """A harness that only observes: one turn with a compaction, and one that does not start."""

    def label(self, _model: str, _agent: AgentConfig, _config: SystemConfig, /) -> str:
        return "observed"

    async def compact(self, turn: TurnContext, /) -> str:
        raise AssertionError("observations do not use it")

    async def reset(self, session_id: str, /) -> None:
        raise AssertionError("observations do not use it")

    def plan_surface(self, turn: TurnContext, /) -> str:
        return "codex"

    def needs_history(self, turn: TurnContext, /) -> bool:
        return True

    async def run(self, turn: TurnContext, /) -> None:
        observations = Observations(turn, model="gpt-5.5")
        prompt = turn.request.user_message
        assert prompt is not None
        await observations.llm_input(
            instructions="DEV", messages=[user_message("old"), prompt], tool_names=["message"]
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(observations.run)
            item: JsonObject = {"type": "contextCompaction", "id": "item_1"}
            for method in ("item/started", "item/completed", "item/completed", "item/other"):
                observations.see(method, {"item": item})
            observations.see("item/started", {"item": {"type": "agentMessage", "id": "item_2"}})
            observations.see("item/started", {})
            observations.close()
        await observations.llm_output(
            texts=["so far", "done"],
            called_names=["message"],
            usage=Usage(output_tokens=3),
            finish_reason="stop",
        )
        await observations.llm_output(
            texts=[], called_names=[], usage=Usage(), finish_reason="error"
        )


async def test_observations_hold_what_the_adapter_knows(store: Store, tmp_path: Path) -> None:
    recorder = Recorder()
    async with open_agent(
        store=store, folder=tmp_path, hooks=[recorder], harness=ObservedHarness()
    ) as setup:
        run = await setup.turn("hello")
    assert run.state == "completed", run.result
    names = [name for name, _ in recorder.events]
    assert names == [
        "llm_input",
        "before_compaction",
        "after_compaction",
        "llm_output",
        "llm_output",
    ]
    given, before, after, done, failed = [event for _, event in recorder.events]
    assert [event["harness"] for _, event in recorder.events] == ["codex"] * 5
    assert (given["model"], given["instructions"]) == ("gpt-5.5", "DEV")
    assert isinstance(given["messages"], list)
    assert len(given["messages"]) == 2
    assert (before["messageCount"], before["estimatedTokens"]) == (None, None)
    assert (after["messageCount"], after["summary"]) == (None, None)
    assert (done["text"], done["texts"]) == ("done", ["so far", "done"])
    assert (failed["text"], failed["texts"], failed["finishReason"]) == ("", [], "error")
