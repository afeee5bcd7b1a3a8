"""The event log and the recorder of trajectories, their export and import."""

import threading
from itertools import pairwise
from pathlib import Path
from typing import cast

import anyio
import pytest

from nacre.json_types import JsonObject, JsonValue, decode_json, encode_json
from nacre.run_context import RunContext
from nacre.telemetry import Redaction
from nacre.trajectory import (
    RUN_EVENT_KINDS,
    RunEvent,
    RunEventLog,
    TrajectoryEvent,
    TrajectoryFormatError,
    TrajectoryRecorder,
    export_json_lines,
    import_json_lines,
)


def line(**changed: object) -> str:
    members: dict[str, object] = {
        "sequence": 0,
        "time": 1.5,
        "kind": "cell.output",
        "toolCallId": "call_1",
        "parentToolCallId": "",
        "data": {"text": "a"},
    }
    members.update(changed)
    return encode_json(members).decode()


def test_an_export_reads_back_as_the_same_events() -> None:
    recorder = TrajectoryRecorder(RunContext())
    data: JsonObject = {"input": {"text": "line 1\nline 2\u2028\x85 ü 😀"}, "toolName": "read"}
    recorder.record("call.started", call_id="call_1", parent_id="call_0", data=data)
    recorder.record("call.ended", call_id="call_1", data={"outcome": "completed", "result": None})
    text = "\n".join(export_json_lines(recorder.events))
    assert import_json_lines(text) == recorder.events


def test_every_line_is_json_on_its_own_even_of_odd_data() -> None:
    recorder = TrajectoryRecorder(RunContext())
    recorder.record(
        "cell.output", data={"text": "half \ud800", "n": float("nan"), "i": 1 << 20_000}
    )
    lines = [*export_json_lines(recorder.events)]
    assert len(lines) == 2
    assert isinstance(decode_json(lines[1].encode()), dict)


def test_secrets_do_not_come_out() -> None:
    recorder = TrajectoryRecorder(RunContext())
    recorder.record("call.started", data={"input": {"apiKey": "hunter2", "q": "Bearer hunter2345"}})
    assert "hunter2" not in "".join(export_json_lines(recorder.events))


def test_blank_lines_and_windows_line_ends_are_fine() -> None:
    events = import_json_lines(f"{line()}\r\n\n{line(sequence=4)}\n")
    assert [event.sequence for event in events] == [0, 4]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "line 1 of the trajectory cannot be read: $ is not JSON"),
        (f"{line()}\n[]", "line 2 of the trajectory is not an object"),
        ('{"sequence": 1}', "has no time, kind, toolCallId, parentToolCallId, data"),
        (line(extra=1), 'has the unknown key "extra"'),
        (line(sequence=-1), "has sequence -1; allowed: an integer, zero or more"),
        (line(sequence=True), "has sequence true"),
        (line(time="now"), 'has time "now"; allowed: seconds since the epoch'),
        (line(kind="cell.exploded"), 'has kind "cell.exploded"; allowed: one of run.started'),
        (line(kind=["cell.output"]), 'has kind ["cell.output"]'),
        (line(toolCallId=None), "has toolCallId null; allowed: text"),
        (line(data=[]), "has data []; allowed: an object"),
        (f"{line(sequence=2)}\n{line(sequence=2)}", "has the sequence number 2 after 2"),
        ('"\ud800"', "line 1 of the trajectory cannot be read"),
        ("[" * 100_000, "nested more than"),
        (line(kind="x" * 1_000_000), "xxx…; allowed"),
    ],
    ids=range(15),
)
def test_a_line_that_is_no_event_is_refused_by_its_number(text: str, problem: str) -> None:
    with pytest.raises(TrajectoryFormatError) as caught:
        import_json_lines(text)
    assert problem in str(caught.value)


def test_nothing_is_no_events() -> None:
    assert import_json_lines("") == ()


PAGE = Path(__file__).parents[2] / "docs" / "agent.md"


async def read(log: RunEventLog, after: int = -1) -> list[RunEvent]:
    return [event async for event in log.follow(after)]


def numbers(events: list[RunEvent]) -> list[int]:
    return [event.sequence for event in events]


async def test_a_reader_gets_what_was_there_and_what_comes() -> None:
    log = RunEventLog()
    log.add("run.started")
    seen: list[str] = []
    has_read = anyio.Event()

    async def follow() -> None:
        async for event in log.follow():
            seen.append(event.kind)
            has_read.set()

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(follow)
            await has_read.wait()
            log.add("text.delta", {"text": "a"})
            log.add("run.completed")
            log.close()
    assert seen == ["run.started", "text.delta", "run.completed"]


async def test_a_reader_resumes_after_the_last_event_that_it_saw() -> None:
    log = RunEventLog()
    for _ in range(5):
        log.add("text.delta", {"text": "x"})
    log.close()
    assert numbers(await read(log, after=2)) == [3, 4]
    assert await read(log, after=4) == []
    assert await read(log, after=100) == []


async def test_a_full_feed_lets_the_oldest_go_and_counts_them() -> None:
    log = RunEventLog(max_events=3)
    for _ in range(5):
        log.add("text.delta")
    log.close()
    assert numbers(await read(log)) == [2, 3, 4]
    assert log.dropped == 2


async def test_the_bytes_of_a_feed_are_bounded_but_the_newest_event_stays() -> None:
    log = RunEventLog(max_bytes=10_000)
    log.add("text.delta", {"text": "a"})
    log.add("text.delta", {"text": "x" * 50_000})
    assert numbers([*log.events]) == [1]
    log.add("text.delta", {"text": "b"})
    assert numbers([*log.events]) == [2]
    assert log.bytes_held < 10_000


async def test_a_slow_reader_skips_what_is_gone_and_never_holds_up_the_run() -> None:
    log = RunEventLog(max_events=2)
    log.add("text.delta")
    seen: list[int] = []
    with anyio.fail_after(5):
        async for event in log.follow():
            seen.append(event.sequence)
            if event.sequence == 0:
                for _ in range(5):
                    log.add("text.delta")
                log.close()
    assert seen == [0, 4, 5]


def test_numbers_that_takeovers_leave_out_are_not_missing() -> None:
    first, second, third = RunEventLog(), RunEventLog(), RunEventLog()
    first.add("run.started")
    first.add("run.waiting")
    for log, before in ((second, first), (third, second)):
        log.restore(before.events, last=before.last_sequence)
        log.add("run.resumed")
    sequences = numbers([*third.events])
    assert sequences == [0, 1, 1_000_000, 2_000_000]
    assert [third.count_missing(*pair) for pair in pairwise(sequences)] == [0, 0, 0]
    assert third.count_missing(0, 1_000_000) == 1


def test_readers_see_events_after_a_pause_with_the_numbers_that_they_had() -> None:
    log, heard = RunEventLog(), list[RunEvent]()
    log.subscribe(heard.append)
    log.add("run.started")
    log.pause("a")
    log.pause("b")
    log.add("approval.requested", {"approvalId": "a"})
    log.add("run.waiting")
    paused = log.paused_events
    assert (numbers(heard), numbers([*log.events]), log.last_sequence) == ([0], [0], 0)
    assert numbers([*paused]) == [1, 2]
    assert (log.is_paused_for("a"), log.is_paused_for("c")) == (True, False)
    log.resume("a")
    log.resume("unknown")
    assert log.is_paused and numbers(heard) == [0]
    log.resume("b")
    assert tuple(heard[1:]) == paused == log.events[1:]
    assert (log.paused_events, log.is_paused) == ((), False)
    log.add("run.resumed")
    assert numbers(heard) == [0, 1, 2, 3]


def test_a_listener_that_adds_an_event_after_a_pause_adds_the_last_one() -> None:
    log, heard = RunEventLog(), list[RunEvent]()

    def answer(event: RunEvent) -> None:
        heard.append(event)
        if event.kind == "run.waiting":
            log.add("run.resumed")

    log.subscribe(answer)
    log.pause("a")
    for kind in ("run.waiting", "text.delta"):
        log.add(kind)
    log.resume("a")
    assert [(it.sequence, it.kind) for it in heard] == [
        (0, "run.waiting"),
        (1, "text.delta"),
        (2, "run.resumed"),
    ]


def test_many_events_end_a_pause() -> None:
    log = RunEventLog()
    log.pause("a")
    for _ in range(1_001):
        log.add("text.delta")
    assert (len(log.events), log.is_paused) == (1_001, False)


def test_dropped_events_are_never_shown() -> None:
    log = RunEventLog()
    log.pause("a")
    log.add("text.delta")
    log.drop_paused()
    log.close()
    assert log.events == ()


async def test_the_end_of_a_log_ends_its_pause() -> None:
    log = RunEventLog()
    log.pause("a")
    log.add("run.completed")
    log.close()
    with anyio.fail_after(5):
        assert [event.kind async for event in log.follow()] == ["run.completed"]


async def test_nothing_is_told_after_the_end() -> None:
    log = RunEventLog()
    log.close()
    log.add("text.delta")
    assert log.events == ()
    assert log.last_sequence == -1


def test_an_event_is_json() -> None:
    event = RunEvent(sequence=3, time=1.5, kind="text.delta", data={"text": "a"})
    assert event.to_json() == {
        "sequence": 3,
        "time": 1.5,
        "kind": "text.delta",
        "data": {"text": "a"},
    }


@pytest.mark.parametrize("kind", RUN_EVENT_KINDS)
def test_every_kind_of_event_is_documented(kind: str) -> None:
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line[:1] == "|"]
    assert any(f"`{kind}`" in row.split("|")[1] for row in rows)


CONTEXT = RunContext(session_id="session_1", run_id="agentrun_1", channel="telegram")


def recorder(*, max_events: int = 1_000, max_bytes: int = 1_000_000) -> TrajectoryRecorder:
    return TrajectoryRecorder(CONTEXT, max_events=max_events, max_bytes=max_bytes)


def last(record: TrajectoryRecorder) -> TrajectoryEvent:
    return record.events[-1]


def test_a_record_begins_with_the_run() -> None:
    (event,) = recorder().events
    assert (event.sequence, event.kind, event.call_id) == (0, "run.started", "")
    assert event.data == {
        "agentId": "main",
        "sessionId": "session_1",
        "runId": "agentrun_1",
        "channel": "telegram",
    }


def test_events_are_kept_in_order_with_their_call_and_its_parent() -> None:
    record = recorder()
    record.record("call.started", call_id="call_2", parent_id="call_1", data={"toolId": "a:b:c"})
    record.record("call.updated", call_id="call_2", parent_id="call_1")
    _, started, updated = record.events
    assert (started.sequence, updated.sequence) == (1, 2)
    assert started.time <= updated.time
    assert started.to_json() == {
        "sequence": 1,
        "time": started.time,
        "kind": "call.started",
        "toolCallId": "call_2",
        "parentToolCallId": "call_1",
        "data": {"toolId": "a:b:c"},
    }


@pytest.mark.parametrize("key", ["input", "result", "text", "error", "update"])
def test_secrets_are_gone_before_anything_is_kept(key: str) -> None:
    record = recorder()
    record.record("call.ended", data={key: {"password": "hunter2"}})
    record.record("call.ended", data={key: "postgres://me:hunter2@db"})
    assert "hunter2" not in str(record.events)


def test_the_record_is_a_copy() -> None:
    record = recorder()
    given: JsonObject = {"input": {"list": [1]}}
    record.record("call.started", data=given)
    given["input"] = None
    assert last(record).data == {"input": {"list": [1]}}


def test_a_large_result_does_not_push_out_what_is_beside_it() -> None:
    record = recorder()
    result: JsonValue = [*range(1_000_000)]
    record.record("call.ended", data={"result": result, "outcome": "completed", "durationMs": 2.5})
    kept = last(record).data
    assert (kept["outcome"], kept["durationMs"]) == ("completed", 2.5)
    assert len(encode_json(kept)) < 20_000


def test_inputs_are_left_out_where_they_are_not_to_be_kept() -> None:
    record = TrajectoryRecorder(CONTEXT, redaction=Redaction(keep_inputs=False))
    record.record("call.started", data={"toolId": "a:b:c", "input": {"path": "secret.txt"}})
    assert last(record).data == {
        "toolId": "a:b:c",
        "input": "[input not kept: object with 1 members]",
    }


def test_beyond_the_bound_the_oldest_go_and_are_counted() -> None:
    record = recorder(max_events=3)
    for number in range(5):
        record.record("cell.output", data={"text": str(number)})
    assert [event.sequence for event in record.events] == [3, 4, 5]
    assert record.dropped == 3


def test_memory_is_bounded_by_what_events_hold_and_the_newest_stays() -> None:
    record = recorder(max_bytes=50_000)
    for _ in range(100):
        record.record("cell.output", data={"text": "x" * 2_000})
    assert 10 < len(record.events) < 25
    assert len(record.events) + record.dropped == 101
    tiny = recorder(max_bytes=1)
    tiny.record("cell.output", data={"text": "x"})
    assert [event.kind for event in tiny.events] == ["cell.output"]


def test_odd_data_leaves_a_note_and_never_raises(caplog: pytest.LogCaptureFixture) -> None:
    class Hostile(dict[str, object]):
        def items(self) -> object:  # pyright: ignore[reportIncompatibleMethodOverride]
            raise RuntimeError("no")

    record = recorder()
    odd = {"result": Hostile(a=1), "other": object(), "outcome": "completed"}
    record.record("call.ended", data=cast("JsonObject", odd))
    assert last(record).data == {
        "result": "[Hostile, cannot be recorded]",
        "other": "[object]",
        "outcome": "completed",
    }
    assert "a Hostile cannot be recorded under 'result'" in caplog.text


def test_a_listener_is_told_until_it_unsubscribes() -> None:
    record = recorder()
    told: list[TrajectoryEvent] = []
    unsubscribe = record.subscribe(told.append)
    record.record("cell.started")
    unsubscribe()
    unsubscribe()
    record.record("cell.ended")
    assert [event.kind for event in told] == ["cell.started"]


def test_one_listener_may_listen_twice_and_stop_once() -> None:
    record = recorder()
    told: list[TrajectoryEvent] = []
    record.subscribe(told.append)
    stop_second = record.subscribe(told.append)
    record.record("cell.started")
    stop_second()
    record.record("cell.ended")
    assert [event.kind for event in told] == ["cell.started", "cell.started", "cell.ended"]


def test_a_listener_that_fails_is_logged_and_others_are_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(event: TrajectoryEvent) -> None:
        raise ValueError("disk full")

    record = recorder()
    told: list[TrajectoryEvent] = []
    record.subscribe(fail)
    record.subscribe(told.append)
    record.record("cell.started")
    assert len(told) == 1
    assert "disk full" in caplog.text


def test_threads_may_write_at_the_same_time() -> None:
    record = recorder(max_events=10_000, max_bytes=10_000_000)

    def write() -> None:
        for _ in range(500):
            record.record("call.updated", call_id="call_1")

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [event.sequence for event in record.events] == [*range(2_001)]


def test_members_that_were_redacted_before_are_recorded_with_the_others() -> None:
    recorder = TrajectoryRecorder(RunContext())
    shared = recorder.redact({"toolId": "a:b:c", "note": "Bearer abcdefghijklmnop"})
    before = recorder.bytes_held
    recorder.record("call.started", data={"input": {"i": 1}}, redacted_before=shared)
    first = recorder.bytes_held - before
    recorder.record(
        "call.started", data={"toolId": "a:b:c", "input": {"i": 1}, "note": shared[0]["note"]}
    )
    assert recorder.bytes_held - before == 2 * first
    event = recorder.events[-2]
    assert event.data == {"toolId": "a:b:c", "note": "Bearer [redacted]", "input": {"i": 1}}
    assert recorder.events[-1].data == event.data
