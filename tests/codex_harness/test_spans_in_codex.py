"""What a trace shows of turns in Codex: its own tools, Nacre's tools, and how they ended."""

from pathlib import Path

import anyio
import pytest

from nacre.agent import TurnContext
from nacre.code_mode import Runtime
from nacre.codex_harness.native_hooks import NativeHooks, NativeScope
from nacre.codex_harness.projector import Projector
from nacre.json_types import JsonObject
from nacre.testing import Call, Say
from nacre.tools import policy_for
from tests.agent.conftest import OpenAgent
from tests.agent.traces import Traces, attributes_of, recording_traces, status_of, trace_id
from tests.codex_harness.test_harness import open_setup

pytestmark = pytest.mark.anyio

PATCH = "*** Begin Patch\n*** Add File: new.txt\n+private\n*** End Patch\n"


@pytest.fixture
def traces(monkeypatch: pytest.MonkeyPatch) -> Traces:
    return recording_traces(monkeypatch)


async def test_calls_of_codex_are_below_its_turn_also_in_a_later_turn(
    tmp_path: Path, traces: Traces
) -> None:
    script = [
        Say("Hello."),
        Call("exec_command", {"cmd": "echo private"}),
        Call("apply_patch", PATCH, kind="custom"),
        Call("list", {"path": "."}),
        Say("private"),
        Call("exec_command", {"cmd": "sleep 600", "yield_time_ms": 600_000}),
    ]
    codex = {"codexDynamicToolsLoading": "direct"}
    async with open_setup(tmp_path, script, codex=codex) as setup:
        await setup.turn("hi")
        done = await setup.turn("private")
        held = await setup.start("private")
        with anyio.fail_after(60):
            async for event in held.events.follow():
                if event.kind == "call.started":
                    break
            await setup.system.agents.abort(held.id)
    assert traces.tree() == [
        "agent turn",
        "  codex turn",
        "agent turn",
        "  codex turn",
        "    execute_tool exec openclaw:core:exec",
        "    execute_tool apply_patch openclaw:core:apply_patch",
        "    execute_tool list",
        "      nacre.tool_call openclaw:core:list",
        "agent turn",
        "  codex turn",
        "    execute_tool exec openclaw:core:exec",
    ]
    turns = traces.all_of("codex turn")
    assert len({trace_id(each) for each in turns}) == 3
    assert [status_of(each) for each in turns] == [
        ("UNSET", None),
        ("UNSET", None),
        ("ERROR", "aborted"),
    ]
    attributes = attributes_of(turns[1])
    assert attributes["gen_ai.request.model"] == "gpt-5.5"
    assert attributes["gen_ai.conversation.id"] == done.session_id
    assert attributes["codex.thread.id"] == attributes_of(turns[0])["codex.thread.id"]
    assert attributes["codex.turn.id"] != attributes_of(turns[0])["codex.turn.id"]
    first, aborted = traces.all_of("execute_tool exec")
    assert status_of(first) == ("UNSET", None)
    assert attributes_of(first)["gen_ai.tool.name"] == "exec"
    assert status_of(aborted) == ("ERROR", "aborted")
    assert "private" not in traces.text()


class ProjectedTurns:
    """A harness whose turns take these items, and ask about a call that policy denies."""

    def __init__(self, *items: JsonObject) -> None:
        self._items = items

    def plan_surface(self, turn: TurnContext, /) -> str:
        return "codex"

    def needs_history(self, turn: TurnContext, /) -> bool:
        return False

    async def run(self, turn: TurnContext, /) -> None:
        native = NativeHooks(
            NativeScope.of_turn(turn),
            policy=policy_for(turn.agent.tools, turn.identity),
            approvals=Runtime().approvals(turn.service.approvals),
            dynamic_names=(),
        )
        projector = Projector(turn, native=native, model="gpt-5.5")
        for item in self._items:
            for method in ("item/started", "item/completed"):
                projector.take(method, {"item": item})
        # Its end is not told.
        command: JsonObject = {"type": "commandExecution", "id": "cut", "command": "sleep 600"}
        projector.take("item/started", {"item": command})
        denied: JsonObject = {"tool_name": "Bash", "tool_use_id": "no", "tool_input": {}}
        await native.answer("pre_tool_use", denied)
        projector.end_calls()


async def test_each_kind_of_call_has_a_span_with_its_end(
    open_service: OpenAgent, traces: Traces
) -> None:
    items: list[JsonObject] = [
        {"type": "webSearch", "id": "web", "query": "private", "status": "completed"},
        {"type": "mcpToolCall", "id": "mcp", "server": "bank", "tool": "pay", "status": "failed"},
        {"type": "fileChange", "id": "patch", "changes": [], "status": "declined"},
        {"type": "agentMessage", "id": "text", "text": "private"},
    ]
    document = {"tools": {"deny": ["exec"]}}
    async with open_service(harness=ProjectedTurns(*items), document=document) as setup:
        await setup.turn("private")
    assert traces.tree() == [
        "agent turn",
        "  execute_tool web_search openclaw:core:web_search",
        "  execute_tool pay mcp:bank:pay",
        "  execute_tool apply_patch openclaw:core:apply_patch",
        "  execute_tool exec openclaw:core:exec",
        "  execute_tool exec openclaw:core:exec",
    ]
    ends = {
        attributes_of(each)["gen_ai.tool.call.id"]: status_of(each)[1]
        for each in traces.spans
        if each.name.startswith("execute_tool")
    }
    assert ends == {
        "web": None,
        "mcp": "tool_failed",
        "patch": "approval_denied",
        "cut": "aborted",
        "no": "denied_by_policy",
    }
    assert "private" not in traces.text()
