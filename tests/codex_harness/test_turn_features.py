"""Turns in Codex: compaction, native commands, records and failures of the model."""

import json
import os
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import psutil
import pytest

from nacre.agent import OWNER_RIGHTS
from nacre.config import AgentConfig
from nacre.json_types import JsonObject, encode_json
from nacre.messages import AssistantMessage, TextPart, ThinkingPart, Usage
from nacre.testing import Call, Fail, RecordedRequest, Say
from nacre.testing.script import End
from tests.codex_harness.codex_setup import HAS_CONTEXT, fake_server
from tests.codex_harness.test_harness import open_setup
from tests.contract.requirements import requirement

pytestmark = pytest.mark.anyio


def _data(event: object) -> dict[str, object]:
    assert isinstance(event, dict)
    data = event["data"]  # pyright: ignore[reportUnknownVariableType]
    assert isinstance(data, dict)
    return data  # pyright: ignore[reportUnknownVariableType]


@requirement("codex:manual-compaction")
async def test_compact_starts_the_native_compaction_and_returns(tmp_path: Path) -> None:
    def answer(request: RecordedRequest) -> Say:
        is_compaction = "exec_command" not in request.tool_names
        return Say("A summary." if is_compaction else "An answer.")

    async with open_setup(tmp_path, answer) as setup:
        first = await setup.turn("one")
        compacted = await setup.turn("/compact")
        assert compacted.result is not None
        assert compacted.result.text.startswith("Codex compacts its thread ")
        second = await setup.turn("two")
        assert second.result is not None
        assert (second.result.error, second.result.text) == ("", "An answer.")
        assert first.session_id == second.session_id


async def test_compact_without_a_thread_is_refused(tmp_path: Path) -> None:
    async with open_setup(tmp_path, []) as setup:
        run = await setup.turn("/compact")
        assert run.result is not None
        shown = f"{run.result.error}{run.result.text}"
        assert "no Codex thread yet" in shown or "nothing to compact" in shown


@requirement("codex:native-shell")
async def test_a_native_command_is_recorded_with_its_result(tmp_path: Path) -> None:
    command = "printf 'made by %s' codex > made.txt && cat made.txt; exit 3"
    script = [Call("exec_command", {"cmd": command}), Say("Done.")]
    async with open_setup(tmp_path, script) as setup:
        run = await setup.turn("make a file")
        assert run.result is not None
        assert (run.result.error, run.result.text) == ("", "Done.")
        (ended,) = [event.data for event in run.events.events if event.kind == "call.ended"]
        # As a call of Nacre's own `exec`: what is shown of the one is shown of the other.
        assert ended["outcome"] == "completed"
        assert ended["result"] == {"exitCode": 3, "output": "made by codex"}
    assert "made by codex" in setup.provider.requests[-1].tool_results[-1]


@requirement("codex:native-shell", "codex:background-commands")
async def test_a_command_goes_on_after_its_turn_until_the_session_leaves_the_thread(
    tmp_path: Path,
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    command = f"echo $$ > '{pipe}' && exec sleep 100000"
    call = Call("exec_command", {"cmd": command, "yield_time_ms": 250})
    script = [call, Say("It runs."), Say("Still."), call, Say("Again.")]

    async def wait_until_running() -> psutil.Process:
        with anyio.fail_after(60):
            return psutil.Process(int(await anyio.to_thread.run_sync(pipe.read_text)))

    async def wait_for_end(process: psutil.Process) -> None:
        await anyio.to_thread.run_sync(lambda: process.wait(timeout=60))

    async with open_setup(tmp_path, script) as setup:
        run = await setup.start("serve")
        first = await wait_until_running()
        await run.wait()
        calls = [it for it in run.events.events if it.kind in ("call.started", "call.ended")]
        assert [it.kind for it in calls] == ["call.started", "call.ended"]
        assert (calls[1].data["outcome"], calls[1].data["result"]) == (
            "completed",
            {"status": "running"},
        )
        await setup.turn("and now?")
        assert first.is_running()
        if HAS_CONTEXT:
            status = await setup.turn("/codex status", rights=OWNER_RIGHTS)
            assert status.result is not None
            assert "Runs in the background: " in status.result.text
        stopped = await setup.turn("/codex stop", rights=OWNER_RIGHTS)
        assert stopped.result is not None
        assert ("Ended in the background: " in stopped.result.text) == HAS_CONTEXT
        await wait_for_end(first)

        run = await setup.start("serve")
        second = await wait_until_running()
        await run.wait()
        await setup.turn("/reset")
        await wait_for_end(second)


LIST = Call("list", {"path": "."})
DIRECT = {"codexDynamicToolsLoading": "direct"}


@requirement("codex:limits-of-codex")
async def test_a_long_turn_goes_on_unless_somebody_has_set_a_limit(tmp_path: Path) -> None:
    calls = AgentConfig.with_defaults("main").max_steps + 1
    large = End(usage=Usage(input_tokens=40_000))
    script = [*([LIST, large] for _ in range(calls)), Say("done")]
    async with open_setup(tmp_path, script, codex=DIRECT) as setup:
        run = await setup.turn("look everywhere")
        assert run.result is not None
        assert (run.result.error, run.result.text) == ("", "done")
        assert run.result.usage.total_tokens > AgentConfig.with_defaults("main").max_tokens


@requirement("codex:limits-of-codex")
@pytest.mark.parametrize(
    ("limit", "script", "error"),
    [
        ({"maxSteps": 2}, [LIST, Say("done")], ""),
        ({"maxSteps": 2}, [LIST, LIST, Say("never")], "`maxSteps` of the agent main is 2"),
        ({"maxTokens": 30_000}, [[Say("done"), End(usage=Usage(input_tokens=40_000))]], ""),
        (
            {"maxTokens": 30_000},
            [[LIST, End(usage=Usage(input_tokens=40_000))], Say("never")],
            "`maxTokens` of the agent main is 30000",
        ),
    ],
)
async def test_a_limit_that_is_set_allows_no_further_call_and_keeps_the_last_answer(
    tmp_path: Path, limit: dict[str, int], script: list[Any], error: str
) -> None:
    async with open_setup(tmp_path, script, agent=limit, codex=DIRECT) as setup:
        run = await setup.turn("look")
        assert run.result is not None
        assert error in run.result.error
        assert (run.state, run.result.text) == (("failed", "") if error else ("completed", "done"))


PLAN: JsonObject = {
    "explanation": "Because.",
    "plan": [
        {"step": "look", "status": "completed"},
        {"step": "act", "status": "in_progress"},
        {"step": "tell", "status": "pending"},
    ],
}


@requirement("codex:mirror-plan")
async def test_the_plan_of_the_model_is_a_record_in_the_session(tmp_path: Path) -> None:
    if HAS_CONTEXT:
        # The tool is gone in newer versions; app-servers may report plans nevertheless.
        turn: JsonObject = {"id": "u", "status": "completed", "items": []}
        plan = json.loads(json.dumps(PLAN).replace("in_progress", "inProgress"))
        answer = {"type": "agentMessage", "id": "m", "text": "planned"}
        notifications: list[tuple[str, dict[str, Any]]] = [
            ("turn/started", {"turn": {"id": "u"}}),
            ("turn/plan/updated", {"turnId": "u", "plan": []}),
            ("turn/plan/updated", {"turnId": "u", **plan}),
            ("item/completed", {"turnId": "u", "item": answer}),
            ("turn/completed", {"turn": turn}),
        ]
        lines = tmp_path / "lines"
        lines.write_text(
            "".join(
                json.dumps({"method": method, "params": {"threadId": "t", **params}}) + "\n"
                for method, params in notifications
            )
        )
        codex = {"appServer": fake_server(f"lines={lines}")}
    else:
        codex = {}
    script = [Call("update_plan", PLAN), Say("planned")]
    async with open_setup(tmp_path, script, codex=codex) as setup:
        run = await setup.turn("make a plan")
        stored = [it.message for it in await setup.system.store.messages(run.session_id)]
    assert run.result is not None
    assert (run.result.error, run.result.text) == ("", "planned")
    (answered,) = [it for it in stored if isinstance(it, AssistantMessage)]
    assert answered.parts == (
        ThinkingPart(text="Plan:\n- [x] look\n- [~] act\n- [ ] tell"),
        TextPart(text="planned"),
    )


@requirement("codex:trajectory")
async def test_the_trajectory_has_requests_and_notifications_without_secrets(
    tmp_path: Path,
) -> None:
    async with open_setup(tmp_path, [Say("Hello.")]) as setup:
        run = await setup.turn("hi")
        events = [it.event for it in await setup.system.store.events(run_id=run.id)]
        address = setup.provider.openai_url
    kinds = [event["kind"] for event in events]
    assert kinds.count("codex_app_server.request") == 2
    notified = [
        _data(event)["method"]
        for event in events
        if event["kind"] == "codex_app_server.notification"
    ]
    assert "turn/started" in notified
    assert notified[-1] == "turn/completed"
    assert "item/agentMessage/delta" not in notified
    text = encode_json(events).decode()
    assert "sk-of-the-mock" not in text
    assert address not in text


async def test_a_failed_model_request_is_the_error_of_the_turn(tmp_path: Path) -> None:
    async with open_setup(tmp_path, [Fail(400, "the model is not available")]) as setup:
        run = await setup.turn("hi")
        assert run.state == "failed"
        assert run.result is not None
        assert "the model is not available" in run.result.error
    # A turn that failed in Codex is not repeated elsewhere.
    assert len(setup.provider.requests) == 1
