"""Policy and hooks around Codex's own tools, in turns of the real app-server."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import psutil
import pytest

from nacre.code_mode import Runtime
from nacre.codex_harness.native_hooks import NativeHooks, NativeScope
from nacre.config import HookRelayConfig
from nacre.errors import ApprovalError
from nacre.hooks import (
    AfterToolCall,
    AskApproval,
    BeforeAgentFinalize,
    BeforeToolCall,
    Block,
    ChangeInput,
    ChangeResult,
    Revise,
)
from nacre.testing import Call, RecordingTool, Say, ScriptedProvider
from nacre.tools import AllowEdited, AllowOnce, Deny, policy_for
from tests.agent.agent_setup import event_of, events_of
from tests.codex_harness.codex_setup import mcp_call
from tests.contract.requirements import requirement

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from nacre.agent import TurnContext
    from nacre.config import ApprovalPolicy, RelayEvent
    from nacre.json_types import JsonObject
    from tests.agent.conftest import OpenAgent

    Act = Callable[[NativeHooks, TurnContext], Awaitable[None]]

SERVER = str(Path(__file__).parents[1] / "cli" / "small_mcp_server.py")
PATCH = "*** Begin Patch\n*** Add File: {name}\n+hello\n*** End Patch\n"


class NativeTurns:
    """A harness whose turns do what the test says with their native hooks."""

    def __init__(self, act: Act) -> None:
        self.act = act
        self._runtime = Runtime(approval_seconds=60)

    def plan_surface(self, turn: TurnContext, /) -> str:
        return "codex"

    def needs_history(self, turn: TurnContext, /) -> bool:
        return True

    async def run(self, turn: TurnContext, /) -> None:
        hooks = NativeHooks(
            NativeScope.of_turn(turn),
            policy=policy_for(turn.agent.tools, turn.identity),
            approvals=self._runtime.approvals(turn.service.approvals),
            dynamic_names=("weather",),
        )
        await self.act(hooks, turn)


@dataclass
class Watcher:
    """Plugin hooks that decide by a word in the input, and keep what they saw."""

    before: list[BeforeToolCall] = field(default_factory=list[BeforeToolCall])
    after: list[AfterToolCall] = field(default_factory=list[AfterToolCall])
    final: list[str] = field(default_factory=list[str])
    has_mcp: anyio.Event = field(default_factory=anyio.Event)

    def before_tool_call(self, event: BeforeToolCall) -> object:
        self.before.append(event)
        text = f"{event.tool_name} {json.dumps(event.input)}"
        if "blocked" in text:
            return Block("not on a Sunday")
        if "rewritten" in text:
            return ChangeInput({"command": "touch other.txt"})
        return AskApproval("is it safe?") if "doubtful" in text else None

    async def after_tool_call(self, event: AfterToolCall) -> object:
        self.after.append(event)
        if event.call_id == "mcp":
            self.has_mcp.set()
        return ChangeResult("changed by a hook") if event.outcome == "completed" else None

    def before_agent_finalize(self, event: BeforeAgentFinalize) -> object:
        self.final.append(event.text)
        return Revise("say it in French") if event.text == "done" else None


def patch_call(name: str, call_id: str) -> Call:
    return Call("apply_patch", PATCH.format(name=name), call_id, kind="custom")


@requirement(
    "codex:native-tools-block-or-observe",
    "codex:native-hooks-in-thread-config",
    "codex:native-input-is-not-rewritten",
    "codex:final-answer-revision",
    "codex:native-hooks-not-twice",
    "codex:native-hook-events",
)
async def test_hooks_block_approve_and_observe_native_calls_once(open_codex: OpenAgent) -> None:
    watcher = Watcher()
    weather = RecordingTool("weather", "sunny")
    script = [
        Call("exec_command", {"cmd": "touch blocked.txt"}, "call_1"),
        Call("exec_command", {"cmd": "touch rewritten.txt"}, "call_2"),
        Call("exec_command", {"cmd": "touch doubtful.txt"}, "call_3"),
        Call("exec_command", {"cmd": "echo out; exit 3"}, "call_4"),
        patch_call("patched.txt", "call_5"),
        patch_call("blocked.txt", "call_6"),
        Call("weather", {"city": "Bern"}, "call_7"),
        # Codex applies this patch itself, without PostToolUse.
        Call(
            "exec_command",
            {"cmd": f"apply_patch <<'EOF'\n{PATCH.format(name='shell.txt')}EOF\n"},
            "call_8",
        ),
        mcp_call("small", "add", {"number": 1}, "call_9"),
        mcp_call("small", "blocked", {"number": 2}, "call_10"),
        Say("done"),
        Say("fini"),
    ]
    servers = f'mcp_servers.small={{command="{sys.executable}",args=["{SERVER}","add","blocked"]}}'
    codex = {
        "appServer": {"args": ["app-server", "-c", servers]},
        "codexDynamicToolsLoading": "direct",
    }
    async with (
        ScriptedProvider(script) as provider,
        open_codex(
            provider.openai_url, codex=codex, hooks=[watcher], tools=[weather.tool]
        ) as setup,
    ):
        run = await setup.start()
        asked = await event_of(run, "approval.requested")
        assert (asked.data["toolName"], asked.data["reason"]) == ("exec", "is it safe?")
        setup.approvals.answer(str(asked.data["approvalId"]), AllowOnce())
        with anyio.fail_after(60):
            result = await run.wait()
        assert (result.error, result.text) == ("", "fini")
        # A person was asked once, although Codex asks for an approval of this command as well.
        assert len(events_of(run, "approval.requested")) == 1
        recorded: Any = [each.event for each in await setup.store.events(run_id=run.id)]
        work = setup.config.agents.agent("main").workspace
        home = setup.config.codex.homes

    assert {path.name for path in work.glob("*.txt")} == {
        "doubtful.txt",
        "patched.txt",
        "shell.txt",
    }
    assert not list(home.rglob("hooks.json"))
    given: Any = provider.requests[-1].body["input"]
    results = [str(item["output"]) for item in given if "output" in item]
    assert "not on a Sunday" in results[0]
    assert "a hook changed the input" in results[1]
    assert "not on a Sunday" in results[5]
    assert "not on a Sunday" in results[9]
    # Results of native tools cannot be changed; those of Nacre's own tools can.
    assert [number for number, text in enumerate(results) if "changed" in text] == [1, 6]
    assert not [each for each in recorded if each["data"].get("phase") == "unanswered"]
    # Nacre's own tool has its hooks once, when Nacre runs it.
    assert [(event.tool_name, event.call_id) for event in watcher.before] == [
        ("exec", "call_1"),
        ("exec", "call_2"),
        ("exec", "call_3"),
        ("exec", "call_4"),
        ("apply_patch", "call_5"),
        ("apply_patch", "call_6"),
        ("weather", "call_7"),
        ("exec", "call_8"),
        ("add", "call_9"),
        ("blocked", "call_10"),
    ]
    assert watcher.before[3].input == {"command": "echo out; exit 3"}
    assert watcher.before[3].tool_id == "openclaw:core:exec"
    ends = {event.call_id: event for event in watcher.after}
    assert len(watcher.after) == len(ends) == 10
    blocked = [ends[f"call_{number}"].error_code for number in (1, 2, 6, 10)]
    assert blocked == ["blocked_by_hook"] * 4
    assert ends["call_4"].outcome == "completed"
    assert ends["call_4"].result == {"output": "out\n", "exitCode": 3}
    assert "patched.txt" in str(ends["call_5"].result)
    assert "shell.txt" in str(ends["call_8"].result)
    assert watcher.final == ["done", "fini"]
    assert "say it in French" in provider.requests[-1].prompt
    # Calls without an item are in the trajectory all the same.
    of_first = [event for event in recorded if event["toolCallId"] == "call_1"]
    assert [event["kind"] for event in of_first] == ["call.started", "call.ended"]
    assert of_first[-1]["data"]["errorCode"] == "blocked_by_hook"
    of_third = [event["kind"] for event in recorded if event["toolCallId"] == "call_3"]
    assert of_third[:3] == ["call.started", "approval.requested", "approval.answered"]
    assert of_third.count("call.started") == 1
    hooks = [event.data for event in events_of(run, "codex_app_server.hook")]
    assert [(it["phase"], it["status"]) for it in hooks if it["eventName"] == "stop"] == [
        ("started", "running"),
        ("completed", "blocked"),
        ("started", "running"),
        ("completed", "completed"),
    ]
    # Codex trusts the hooks by their hash, so that it has nothing to warn of.
    warnings = [event for event in recorded if event["data"].get("method") == "warning"]
    assert "hook" not in str(warnings)


@requirement("codex:permission-request-decides-by-policy")
async def test_permission_requests_are_decided_by_policy_and_people_or_not_at_all(
    open_codex: OpenAgent,
) -> None:
    script = [
        Call("exec_command", {"cmd": "touch doubtful.txt"}, "call_1"),
        Call("exec_command", {"cmd": "touch other.txt"}, "call_2"),
        Say("finished"),
    ]
    codex = {
        "appServer": {"approvalPolicy": "untrusted"},
        "nativeHookRelay": {"events": ["pre_tool_use", "permission_request"]},
    }
    watcher = Watcher()
    async with (
        ScriptedProvider(script) as provider,
        open_codex(provider.openai_url, codex=codex, hooks=[watcher]) as setup,
    ):
        run = await setup.start()
        asked: list[Any] = []
        async for event in run.events.follow():
            if event.kind == "approval.requested":
                asked.append(event.data)
                answer = AllowOnce() if len(asked) == 1 else Deny()
                setup.approvals.answer(str(event.data["approvalId"]), answer)
        work = setup.config.agents.agent("main").workspace
        hooks = [event.data for event in events_of(run, "codex_app_server.hook")]
    # A person has approved the first; nobody has decided about the second, so Codex asks.
    assert [data["toolCallId"] for data in asked] == ["call_1", "call_2"]
    assert {path.name for path in work.glob("*.txt")} == {"doubtful.txt"}
    names = [it["eventName"] for it in hooks if it["phase"] == "completed"]
    assert names == ["preToolUse", "permissionRequest"] * 2
    assert [event.call_id for event in watcher.before] == ["call_1", "call_2"]
    # The declined call has no PostToolUse.
    declined = next(event for event in watcher.after if event.call_id == "call_2")
    assert (declined.outcome, declined.error_code) == ("failed", "approval_denied")


def tool_use(command: str, call_id: str = "c1", **members: Any) -> JsonObject:
    given: JsonObject = {"command": command}
    return {"tool_name": "Bash", "tool_input": given, "tool_use_id": call_id, **members}


async def test_policy_denies_permissions_and_names_the_setting(open_service: OpenAgent) -> None:
    answers: list[Any] = []

    async def act(hooks: NativeHooks, turn: TurnContext) -> None:
        answers.append(await hooks.answer("permission_request", tool_use("ls")))
        answers.append(await hooks.answer("permission_request", {"tool_name": "view_image"}))
        answers.append(await hooks.answer("pre_tool_use", {"tool_name": "two words"}))

    document = {"tools": {"deny": ["exec"]}}
    async with open_service(harness=NativeTurns(act), document=document) as setup:
        await setup.turn()
    denied, undecided, unknown = answers
    decision = denied["hookSpecificOutput"]["decision"]
    assert decision["behavior"] == "deny"
    assert "tools.deny" in decision["message"]
    assert undecided is None
    assert unknown["hookSpecificOutput"]["permissionDecision"] == "deny"


async def test_a_person_can_deny_but_not_edit_a_native_call(open_service: OpenAgent) -> None:
    answers: list[Any] = []

    async def act(hooks: NativeHooks, turn: TurnContext) -> None:
        answers.append(await hooks.answer("pre_tool_use", tool_use("doubtful")))
        assert not hooks.has_checked("c1")

    async with open_service(hooks=[Watcher()], harness=NativeTurns(act)) as setup:
        run = await setup.start()
        asked = str((await event_of(run, "approval.requested")).data["approvalId"])
        with pytest.raises(ApprovalError, match="input of the model only"):
            setup.approvals.answer(asked, AllowEdited({"command": "ls"}))
        assert run.state == "waiting"
        setup.approvals.answer(asked, Deny("not now"))
        await run.wait()
    assert "not now" in answers[0]["hookSpecificOutput"]["permissionDecisionReason"]


async def test_an_abort_ends_the_question_about_a_native_call(open_service: OpenAgent) -> None:
    answers: list[Any] = []

    async def act(hooks: NativeHooks, turn: TurnContext) -> None:
        answers.append(await hooks.answer("pre_tool_use", tool_use("doubtful")))

    async with open_service(hooks=[Watcher()], harness=NativeTurns(act)) as setup:
        run = await setup.start()
        await event_of(run, "approval.requested")
        await run.abort("enough")
        await run.wait()
        assert setup.approvals.pending == ()
    assert "being stopped" in str(answers)


@requirement("codex:permission-request-hook-is-opt-in")
async def test_hooks_are_installed_where_they_have_work(open_service: OpenAgent) -> None:
    chosen: list[tuple[Sequence[RelayEvent], bool]] = []

    async def act(hooks: NativeHooks, turn: TurnContext) -> None:
        opted_in = HookRelayConfig(events=("pre_tool_use", "permission_request"))
        cases: tuple[tuple[HookRelayConfig, ApprovalPolicy], ...] = (
            (HookRelayConfig(), "never"),
            (HookRelayConfig(), "on-request"),
            (opted_in, "untrusted"),
        )
        for config, policy in cases:
            chosen.append((hooks.choose_events(config, policy), hooks.has_checks))

    async with open_service(harness=NativeTurns(act)) as setup:
        await setup.turn()
        setup.hooks.add(Watcher())
        await setup.turn()
    assert chosen == [
        (["pre_tool_use", "permission_request"], False),
        (["pre_tool_use"], False),
        (["pre_tool_use", "permission_request"], False),
        (["pre_tool_use", "post_tool_use", "permission_request", "before_agent_finalize"], True),
        (["pre_tool_use", "post_tool_use", "before_agent_finalize"], True),
        (["pre_tool_use", "permission_request"], True),
    ]


@requirement("codex:native-names-never-bypass-policy")
@pytest.mark.parametrize(("rules", "events"), [({}, []), ({"deny": ["exec"]}, ["pre_tool_use"])])
async def test_the_policy_is_checked_even_if_hooks_of_plugins_are_turned_off(
    open_service: OpenAgent, rules: JsonObject, events: list[RelayEvent]
) -> None:
    chosen: list[Sequence[RelayEvent]] = []

    async def act(hooks: NativeHooks, turn: TurnContext) -> None:
        settings = (HookRelayConfig(is_enabled=False), HookRelayConfig(events=()))
        chosen.extend(hooks.choose_events(each, "never") for each in settings)

    async with open_service(harness=NativeTurns(act), document={"tools": rules}) as setup:
        await setup.turn()
    assert chosen == [events, events]


@requirement("codex:final-answer-revision")
async def test_a_reason_to_revise_is_given_once_and_reasons_are_limited(
    open_service: OpenAgent,
) -> None:
    answers: list[Any] = []

    class Never:
        def before_agent_finalize(self, event: BeforeAgentFinalize) -> object:
            return Revise("shorter" if event.text == "a" else f"reason {event.text}")

    async def act(hooks: NativeHooks, turn: TurnContext) -> None:
        of_subagent: JsonObject = {"last_assistant_message": "a", "agent_id": "x"}
        assert await hooks.answer("before_agent_finalize", of_subagent) is None
        for text in ("a", "a", "b", "c", "d"):
            payload: JsonObject = {"last_assistant_message": text}
            answers.append(await hooks.answer("before_agent_finalize", payload))

    async with open_service(hooks=[Never()], harness=NativeTurns(act)) as setup:
        await setup.turn()
    reasons = [answer and answer["reason"] for answer in answers]
    assert reasons == ["shorter", None, "reason b", "reason c", None]


@requirement("codex:native-observations")
async def test_a_call_is_observed_once_by_its_hook_or_by_its_item(
    open_service: OpenAgent,
) -> None:
    watcher = Watcher()
    item = {"type": "commandExecution", "command": "ls", "exitCode": 1, "status": "failed"}
    seen: list[str] = []

    async def act(hooks: NativeHooks, turn: TurnContext) -> None:
        hooks.take_item({**item, "id": "hooked", "aggregatedOutput": "gone"})
        await hooks.answer("post_tool_use", tool_use("ls", "hooked", tool_response="gone"))
        hooks.take_item({**item, "id": "hooked"})
        hooks.take_item({"type": "mcpToolCall", "id": "mcp", "server": "s", "tool": "t"})
        hooks.take_item({"type": "dynamicToolCall", "id": "own", "tool": "weather"})
        hooks.take_item({"type": "agentMessage", "id": "text"})
        seen.extend(event.call_id for event in watcher.after)
        # Without a hook, the item alone is enough.
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(hooks.observe_items)
            await watcher.has_mcp.wait()
            tasks.cancel_scope.cancel()
        await hooks.answer("post_tool_use", {"tool_name": "mcp__s__t", "tool_use_id": "mcp"})
        hooks.take_item({"type": "webSearch", "id": "search", "query": "x"})
        await hooks.finish()

    async with open_service(hooks=[watcher], harness=NativeTurns(act)) as setup:
        await setup.turn()
    assert seen == ["hooked"]
    assert [(event.call_id, event.tool_name) for event in watcher.after] == [
        ("hooked", "exec"),
        ("mcp", "t"),
        ("search", "web_search"),
    ]
    assert watcher.after[0].result == {"output": "gone", "exitCode": 1}
    assert watcher.before == []


def kill_relay_commands() -> None:
    """Kill the shell of each hook, and then the command in it."""
    found: list[psutil.Process] = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if "relay_command.py" in " ".join(process.cmdline()):
                found.append(process)
    ids = {process.pid for process in found}
    # A shell that is alive answers for its command.
    for process in sorted(found, key=lambda it: it.ppid() in ids):
        process.kill()


@requirement("codex:native-hooks-fail-closed")
@pytest.mark.parametrize("is_denied", [True, False])
async def test_a_call_that_was_not_checked_is_reported_and_ends_the_turn_if_it_is_denied(
    open_codex: OpenAgent, monkeypatch: pytest.MonkeyPatch, is_denied: bool
) -> None:
    async def kill_hook(_self: NativeHooks, event: RelayEvent, _payload: JsonObject, /) -> None:
        if event == "pre_tool_use":
            await anyio.to_thread.run_sync(kill_relay_commands)
            await anyio.sleep_forever()

    monkeypatch.setattr(NativeHooks, "answer", kill_hook)
    command = "sleep 600" if is_denied else "echo out"
    arguments: JsonObject = {"cmd": command, "yield_time_ms": 600_000}
    rules = {"deny": ["exec" if is_denied else "read"]}
    async with (
        ScriptedProvider([Call("exec_command", arguments, "call_1"), Say("done")]) as provider,
        open_codex(provider.openai_url, document={"tools": rules}) as setup,
    ):
        run = await setup.turn()
        recorded: Any = [each.event for each in await setup.store.events(run_id=run.id)]
    unanswered = [it for it in recorded if it["data"].get("phase") == "unanswered"]
    assert [(it["data"]["callId"], it["data"]["toolName"]) for it in unanswered] == [
        ("call_1", "exec")
    ]
    assert run.result is not None
    if is_denied:
        assert run.state == "failed"
        assert (
            "Codex started exec without asking Nacre, and it is not permitted" in run.result.error
        )
        assert "`tools.deny`" in run.result.error
    else:
        assert (run.result.error, run.result.text) == ("", "done")
