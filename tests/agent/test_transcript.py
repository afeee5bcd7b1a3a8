"""What a run records reaches its event log at once, and the store in batches."""

import logging
from typing import Any

import anyio
import anyio.to_thread
import pytest

from nacre.agent.transcript import TrajectoryWriter
from nacre.errors import StorageError
from nacre.run_context import RunContext
from nacre.storage import Store
from nacre.trajectory import RunEventLog, TrajectoryRecorder


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
