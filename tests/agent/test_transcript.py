"""The stored messages of a session, and the history that a model gets."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from nacre.agent.transcript import NO_RESULT, TrajectoryWriter, estimate_tokens, repair_history
from nacre.errors import StorageError
from nacre.json_types import JsonObject
from nacre.messages import (
    AssistantMessage,
    ImagePart,
    Message,
    SystemMessage,
    TextPart,
    ThinkingPart,
    ToolMessage,
    Usage,
    UserMessage,
    user_message,
)
from nacre.run_context import RunContext
from nacre.storage import Store, open_store
from nacre.tools import Tool, ToolCall
from nacre.trajectory import RunEventLog, TrajectoryRecorder
from tests.agent.conftest import OpenAgent
from tests.agent.fake_models import call, calls, say
from tests.agent.tools import HeldTool, echo_tool
from tests.forked_python import FORKED_PYTHON


class Recorded:
    """A recorder, its writer, and the event log behind it."""

    def __init__(self, store: Store | None) -> None:
        self.context = RunContext(run_id="run_1", session_id="session_1")
        self.recorder = TrajectoryRecorder(self.context)
        self.event_log = RunEventLog()
        self.calls = 0
        self.writer = TrajectoryWriter(
            self.recorder,
            event_log=self.event_log,
            store=store,
            on_call=self._count,
        )

    def _count(self) -> None:
        self.calls += 1

    @property
    def told(self) -> list[str]:
        return [event.kind for event in self.event_log.events]


async def test_calls_and_cells_are_told_and_everything_is_stored(store: Store) -> None:
    recorded = Recorded(store)
    recorded.recorder.record("call.started", call_id="c.1", parent_id="c", data={"toolId": "t"})
    recorded.recorder.record("approval.requested", call_id="c.1")
    recorded.recorder.record("approval.answered", call_id="c.1", data={"how": "always"})
    assert recorded.told == ["call.started", "approval.answered"]
    assert recorded.event_log.events[0].data == {
        "toolCallId": "c.1",
        "parentToolCallId": "c",
        "toolId": "t",
    }
    assert recorded.calls == 1
    await recorded.writer.flush()
    await recorded.writer.flush()
    stored = [each.event["kind"] for each in await store.events(run_id="run_1")]
    assert stored == ["run.started", "call.started", "approval.requested", "approval.answered"]


async def test_what_a_thread_records_is_told_on_the_event_loop() -> None:
    recorded = Recorded(None)
    await anyio.to_thread.run_sync(lambda: recorded.recorder.record("call.updated", call_id="c"))
    with anyio.fail_after(5):
        async for event in recorded.event_log.follow():
            assert event.kind == "call.updated"
            break


async def test_a_full_batch_is_written_before_the_end(store: Store) -> None:
    recorded = Recorded(store)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(recorded.writer.write)
        for _ in range(250):
            recorded.recorder.record("cell.output", call_id="c")
        with anyio.fail_after(5):
            while len(await store.events(run_id="run_1")) < 251:
                pass
        tasks.cancel_scope.cancel()


async def test_events_that_a_failing_store_refuses_are_written_later(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(*_args: Any) -> None:
        raise StorageError("the disk is full")

    recorded = Recorded(store)
    with monkeypatch.context() as patch:
        patch.setattr(store, "add_events", full)
        await recorded.writer.flush()
    recorded.recorder.record("call.started", call_id="c")
    await recorded.writer.flush()
    stored = [each.event["kind"] for each in await store.events(run_id="run_1")]
    assert stored == ["run.started", "call.started"]


@pytest.mark.parametrize("is_uncertain", [True, False])
async def test_events_that_may_be_stored_or_are_too_many_are_lost_with_a_word_in_the_log(
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    is_uncertain: bool,
) -> None:
    async def full(*_args: Any) -> None:
        raise StorageError("the disk is full", is_uncertain=is_uncertain)

    monkeypatch.setattr(store, "add_events", full)
    monkeypatch.setattr("nacre.agent.transcript._MAX_PENDING_EVENTS", 1)
    recorded = Recorded(store)
    if not is_uncertain:
        recorded.recorder.record("call.started", call_id="c")
    with caplog.at_level(logging.ERROR):
        await recorded.writer.flush()
    assert " events of the run run_1 are lost: the disk is full" in caplog.text
    assert recorded.writer.close() == []


async def stored_kinds(store: Store, run_id: str) -> list[str]:
    return [str(each.event["kind"]) for each in await store.events(run_id=run_id)]


async def test_the_start_of_a_call_is_stored_before_its_tool_runs(
    store: Store, open_service: OpenAgent
) -> None:
    found: list[list[str]] = []

    async def look(given: dict[str, Any], call: ToolCall) -> object:
        found.append(await stored_kinds(setup.store, call.context.run_id))
        return "done"

    tool = Tool(name="look", execute=look)
    async with open_service(tools=[tool]) as setup:
        made = [(f"call_{number}", "look", "{}") for number in range(20)]
        setup.model.will(calls(*made), say("done"))
        await setup.turn()

    assert len(found) == 20
    assert all(kinds.count("call.started") == 20 for kinds in found)


async def test_calls_that_start_at_once_share_a_transaction(
    open_service: OpenAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches: list[int] = []
    async with open_service(tools=[echo_tool()]) as setup:
        add_events = setup.store.add_events

        async def count(run_id: str, session_id: str, events: Sequence[JsonObject]) -> None:
            batches.append(len(events))
            await add_events(run_id, session_id, events)

        monkeypatch.setattr(setup.store, "add_events", count)
        made = [(f"call_{number}", "echo", "{}") for number in range(100)]
        setup.model.will(calls(*made), say("done"))
        await setup.turn()

    assert len(batches) < 10


async def test_a_tool_does_not_run_if_the_start_of_its_call_cannot_be_stored(
    open_service: OpenAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(*_args: Any) -> None:
        raise StorageError("the disk is full")

    held = HeldTool()
    async with open_service(tools=[held.tool]) as setup:
        monkeypatch.setattr(setup.store, "add_events", full)
        setup.model.will(call("held"), say("done"))
        run = await setup.turn()
        assert run.state == "completed"
        (result,) = [it for it in setup.model.requests[-1].messages if isinstance(it, ToolMessage)]
        assert "its start cannot be stored: the disk is full" in result.content
        assert held.call_count == 0
        # The end of the turn brings the events with it.
        assert "call.started" in await stored_kinds(setup.store, run.id)


async def test_a_killed_process_has_stored_the_start_of_its_last_call(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/nacre.db"
    command = [FORKED_PYTHON, "-m", "tests.agent.killed_turn", url, str(tmp_path)]
    async with await anyio.open_process(command, stderr=None) as process:
        assert process.stdout is not None
        assert b"effect" in await process.stdout.receive()
        process.kill()

    async with open_store(url) as store:
        assert await store.interrupt_open_turns() == 1
        events = [each.event for each in await store.events()]
        assert [it["toolCallId"] for it in events if it["kind"] == "call.started"] == [
            "call_1",
            "call_1.1",
        ]


async def test_what_was_not_written_is_given_at_the_end_and_nothing_is_taken_afterwards() -> None:
    recorded = Recorded(None)
    recorded.recorder.record("turn.ended")
    assert [event["kind"] for event in recorded.writer.close()] == ["run.started", "turn.ended"]
    recorded.recorder.record("turn.ended")
    assert recorded.writer.close() == []


def result(call_id: str, content: str = "ok") -> ToolMessage:
    return ToolMessage(call_id=call_id, name="echo", content=content)


def missing(call_id: str) -> ToolMessage:
    return ToolMessage(call_id=call_id, name="echo", content=NO_RESULT, is_error=True)


def test_a_sound_history_stays_as_it_is() -> None:
    sound: list[Message] = [
        SystemMessage(text="summary"),
        user_message("a"),
        calls(("1", "echo", {}), ("2", "echo", {})),
        result("1"),
        result("2"),
        say("done"),
    ]
    assert repair_history(sound) == sound


def test_calls_without_a_result_get_one_before_anything_else_is_said() -> None:
    broken = [user_message("a"), calls(("1", "echo", {}), ("2", "echo", {})), result("2"), say("b")]
    assert repair_history(broken) == [*broken[:3], missing("1"), broken[3]]
    assert repair_history([user_message("a"), call("echo")])[2:] == [missing("call_1")]


def test_results_that_belong_to_no_call_are_left_out() -> None:
    broken = [user_message("a"), result("9"), call("echo"), result("call_1"), result("call_1", "2")]
    assert repair_history(broken) == [broken[0], broken[2], broken[3]]


def test_ids_may_come_again_in_later_answers() -> None:
    sound = [call("echo"), result("call_1", "first"), call("echo"), result("call_1", "second")]
    assert repair_history(sound) == sound


def test_answers_that_say_nothing_are_left_out() -> None:
    empty = AssistantMessage(parts=())
    thought = AssistantMessage(parts=(ThinkingPart(text="hm"), TextPart(text=" ")))
    assert repair_history([user_message("a"), empty, thought]) == [user_message("a")]


def test_tokens_are_what_the_provider_counted_and_a_guess_for_the_rest() -> None:
    counted = replace(say("b"), usage=Usage(input_tokens=1000, output_tokens=50))
    messages = [user_message("x" * 40_000), counted, user_message("y" * 400)]
    assert 1150 <= estimate_tokens(messages) <= 1160
    assert estimate_tokens(messages, trusts_usage=False) > 10_000


def test_a_picture_counts_as_a_picture_and_not_as_its_text() -> None:
    picture = UserMessage(parts=(ImagePart(url="data:image/png;base64," + "A" * 1_000_000),))
    assert 1000 < estimate_tokens([picture]) < 2000
