"""Turns in Codex: compaction, native commands, records and failures of the model."""

from pathlib import Path

import pytest

from nacre.json_types import encode_json
from nacre.testing import Call, Fail, RecordedRequest, Say
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
    command = "printf 'made by %s' codex > made.txt && cat made.txt"
    script = [Call("exec_command", {"cmd": command}), Say("Done.")]
    async with open_setup(tmp_path, script) as setup:
        run = await setup.turn("make a file")
        assert run.result is not None
        assert (run.result.error, run.result.text) == ("", "Done.")
        ended = [event.data for event in run.events.events if event.kind == "call.ended"]
        assert [data["outcome"] for data in ended] == ["completed"]
        assert "made by codex" in str(ended[0])
    assert "made by codex" in setup.provider.requests[-1].tool_results[-1]


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
