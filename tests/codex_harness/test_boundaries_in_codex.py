"""What Nacre leaves to the real Codex: its tools and records, its thread, its compaction."""

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import nacre.codex_harness
from nacre.agent import OWNER_RIGHTS
from nacre.hooks import HOOK_EVENTS
from nacre.messages import ToolMessage
from nacre.testing import Call, Fail, Say, ScriptedProvider
from nacre.testing.script import RecordedRequest
from tests.codex_harness.context_turns import RELEASED, logged, open_setup, plugin, texts
from tests.contract.requirements import requirement

if TYPE_CHECKING:
    from nacre.testing.script import Script

pytestmark = pytest.mark.anyio


@requirement(
    "codex:no-own-surfaces",
    "codex:no-request-capture",
    "codex:native-records",
    "codex:model-loop",
)
async def test_native_calls_are_recorded_and_stay_those_of_codex(tmp_path: Path) -> None:
    script: Script = [Call("exec_command", {"cmd": "echo native-$((40 + 2))"}), Say("done")]
    sections = {**plugin(tmp_path, "tool_result_persist"), "tools": {"codeMode": True}}
    async with (
        ScriptedProvider(script) as provider,
        open_setup(tmp_path, provider, sections) as setup,
    ):
        run = await setup.turn("run it")
        assert run.state == "completed", run.result
        assert "native-42" in json.dumps(setup.last.body)
        assert not {"exec", "wait", "tool_search_code"} & set(provider.requests[0].tool_names)

        stored = await setup.system.store.messages(run.session_id)
        events = [it.event for it in await setup.system.store.events(run_id=run.id)]
    # The mirror has what was said. The result of a native call is a record of Codex, so that no
    # hook can change it.
    assert not any(isinstance(each.message, ToolMessage) for each in stored)
    assert not (tmp_path / "log").exists() or logged(tmp_path) == []
    sent = [it["data"] for it in events if it["kind"] == "codex_app_server.request"]
    methods = [it["method"] for it in sent if isinstance(it, dict)]
    assert methods[-2:] == ["thread/start", "turn/start"]
    received = [it["data"] for it in events if it["kind"] == "codex_app_server.notification"]
    kinds = [it["method"] for it in received if isinstance(it, dict)]
    assert {"turn/started", "item/started", "item/completed", "turn/completed"} <= set(kinds)
    calls = [it for it in events if it["kind"] == "call.ended"]
    assert "native-42" in json.dumps(calls)
    # The record has requests to the app-server, not those of Codex to the model.
    assert "You are Codex" not in json.dumps(events)
    assert "sk-of-the-mock" not in json.dumps(events)


@requirement("codex:no-preflight-compaction", "codex:no-other-summariser")
async def test_nacre_summarises_no_session_for_codex(tmp_path: Path) -> None:
    script: Script = [Say("one"), Say("two"), Say("three")]
    async with (
        ScriptedProvider(script) as provider,
        open_setup(tmp_path, provider, agent={"compaction": {"keepTurns": 0}}) as setup,
    ):
        await setup.turn("built-in", model="plain/gpt-5.5")
        # Without a thread there is nothing to compact, and nobody else does it.
        command = await setup.turn("/compact", rights=OWNER_RIGHTS)
        assert command.state == "failed"
        assert command.result is not None
        assert "no Codex thread" in command.result.error
        assert len(provider.requests) == 1
        # Far beyond the context window of the model in the configuration.
        first = await setup.turn("x" * 20_000)
        await setup.turn("again")
        assert len(provider.requests) == 3
        stored = await setup.system.store.messages(first.session_id)
    assert not any(each.is_summary for each in stored)


@requirement("codex:model-change-keeps-the-thread", "codex:no-replay")
async def test_a_model_without_tool_search_continues_the_thread_and_no_failure_is_repeated(
    tmp_path: Path,
) -> None:
    script: Script = [Say("one"), Say("two"), Fail(400, "no such luck", is_final=True)]
    async with (
        ScriptedProvider(script) as provider,
        open_setup(tmp_path, provider) as setup,
    ):
        run = await setup.turn("first")
        before = await setup.system.store.thread(run.session_id)
        await setup.turn("second", model="mock/gpt-5.2")
        assert setup.last.model == "gpt-5.2"
        assert [text for text in texts(setup.last, "user") if text in ("first", "second")] == [
            "first",
            "second",
        ]
        after = await setup.system.store.thread(run.session_id)
        assert before is not None
        assert after is not None
        assert after.thread_id == before.thread_id

        failed = await setup.turn("third")
        assert failed.state == "failed"
    assert len(provider.requests) == 3


@requirement("codex:observations-cannot-block", "codex:other-native-hooks")
async def test_observations_neither_delay_nor_change_native_calls(tmp_path: Path) -> None:
    RELEASED.clear()

    def answer(request: RecordedRequest) -> Say:
        # The model has the result, although the hook has not returned.
        RELEASED.set()
        return Say("native-42" if "native-42" in json.dumps(request.body) else "changed")

    script: Script = [Call("exec_command", {"cmd": "echo native-$((40 + 2))"}), answer]
    sections = plugin(tmp_path, "after_tool_call")
    relay = {"nativeHookRelay": {"events": ["pre_tool_use"]}}
    sections["plugins"]["entries"]["codex"] = {"config": relay}
    async with (
        ScriptedProvider(script) as provider,
        open_setup(tmp_path, provider, sections) as setup,
    ):
        run = await setup.turn("run it")
        assert run.result is not None
        assert (run.result.error, run.result.text) == ("", "native-42")
        events = [it.event for it in await setup.system.store.events(run_id=run.id)]
    assert logged(tmp_path, "after_tool_call") == [("after_tool_call", {"isReleased": True})]
    started = next(
        json.dumps(event["data"]) for event in events if "thread/start" in str(event["data"])
    )
    hooks = set(re.findall(r'"hooks\.(\w+)"', started))
    known = {"PreToolUse", "PostToolUse", "PermissionRequest", "Stop", "state"}
    assert "PreToolUse" in hooks
    assert hooks <= known
    assert not {"SessionStart", "UserPromptSubmit"} & set(HOOK_EVENTS)


@requirement("codex:history-is-native")
def test_nacre_has_no_request_that_edits_the_history_of_a_thread() -> None:
    source = Path(nacre.codex_harness.__file__).parent
    text = "".join(path.read_text(encoding="utf-8") for path in source.glob("*.py"))
    assert '"turn/start"' in text
    edits = ("thread/rollback", "thread/revert", "thread/inject_items", "thread/delete")
    assert [method for method in edits if method in text] == []
