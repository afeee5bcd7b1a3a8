"""The stored messages of a session, and the history that a model gets."""

import logging
from dataclasses import replace
from typing import Any

import anyio
import anyio.to_thread
import pytest

from nacre.agent.transcript import NO_RESULT, TrajectoryWriter, estimate_tokens, repair_history
from nacre.errors import StorageError
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
from nacre.storage import Store
from nacre.trajectory import RunEventLog, TrajectoryRecorder
from tests.agent.fake_models import call, calls, say


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


async def test_a_store_that_fails_costs_events_and_a_word_in_the_log(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def full(*_args: Any) -> None:
        raise StorageError("the disk is full")

    monkeypatch.setattr(store, "add_events", full)
    recorded = Recorded(store)
    with caplog.at_level(logging.ERROR):
        await recorded.writer.flush()
    assert "1 events of the run run_1 are lost: the disk is full" in caplog.text


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
