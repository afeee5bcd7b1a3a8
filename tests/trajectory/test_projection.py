"""Calls as a tree, from whole records and from records with holes."""

from nacre.json_types import JsonObject, encode_json
from nacre.run_context import RunContext
from nacre.trajectory import EventKind, TrajectoryEvent, TrajectoryRecorder, project


class Record:
    """Events with one second between them."""

    def __init__(self) -> None:
        self.events: list[TrajectoryEvent] = []

    def add(self, kind: EventKind, call_id: str, parent_id: str = "", **data: object) -> None:
        sequence = len(self.events)
        event = TrajectoryEvent(
            sequence=sequence,
            time=float(sequence),
            kind=kind,
            call_id=call_id,
            parent_id=parent_id,
            data={**data},  # pyright: ignore[reportArgumentType]
        )
        self.events.append(event)


def test_nested_calls_stand_under_their_call_of_exec() -> None:
    record = Record()
    record.add("call.started", "exec_1", toolId="openclaw:core:exec", toolName="exec")
    record.add("cell.started", "exec_1")
    record.add("call.started", "n_1", "exec_1", toolId="openclaw:core:read", toolName="read")
    record.add("call.started", "n_2", "exec_1", toolId="mcp:github:issue", toolName="issue")
    record.add("call.ended", "n_2", "exec_1", outcome="completed", result=7, durationMs=1.5)
    record.add("call.ended", "n_1", "exec_1", outcome="failed", error="no", errorCode="tool_failed")
    record.add("call.ended", "exec_1", outcome="completed", result={"status": "completed"})
    record.add("call.started", "other", toolName="message")
    first, second = project(record.events)
    assert [(node.call_id, node.tool_id) for node in first.children] == [
        ("n_1", "openclaw:core:read"),
        ("n_2", "mcp:github:issue"),
    ]
    failed, completed = first.children
    assert (failed.outcome, failed.error, failed.error_code) == ("failed", "no", "tool_failed")
    assert (failed.started, failed.ended, failed.duration_ms) == (2.0, 5.0, 3000.0)
    assert (completed.outcome, completed.result, completed.duration_ms) == ("completed", 7, 1.5)
    assert (second.outcome, second.children) == ("running", [])


def test_a_nested_call_as_json_names_its_tool_and_its_parent() -> None:
    record = Record()
    record.add("call.started", "exec_1", toolId="openclaw:core:exec", toolName="exec")
    record.add(
        "call.started", "n_1", "exec_1",
        toolId="openclaw:core:read", toolName="read", source="openclaw", input={},
    )  # fmt: skip
    record.add("call.updated", "n_1", "exec_1")
    record.add("call.ended", "n_1", "exec_1", outcome="completed", durationMs=1, result=None)
    (node,) = project(record.events)
    assert node.to_json()["children"] == [
        {
            "toolCallId": "n_1",
            "parentToolCallId": "exec_1",
            "toolId": "openclaw:core:read",
            "toolName": "read",
            "source": "openclaw",
            "input": {},
            "outcome": "completed",
            "startedAt": 1.0,
            "endedAt": 3.0,
            "durationMs": 1.0,
            "updates": 1,
            "result": None,
        }
    ]


def test_approvals_are_kept_with_their_call_in_order() -> None:
    record = Record()
    record.add("call.started", "call_1")
    record.add("approval.requested", "call_1", reason="costs money")
    record.add("approval.answered", "call_1", answer="allow-once")
    (node,) = project(record.events)
    assert node.approvals == [
        {"event": "requested", "time": 1.0, "reason": "costs money"},
        {"event": "answered", "time": 2.0, "answer": "allow-once"},
    ]


def test_a_call_whose_beginning_was_dropped_is_there() -> None:
    record = Record()
    record.add("call.ended", "n_1", "exec_1", outcome="completed", result=1)
    (node,) = project(record.events)
    assert (node.call_id, node.parent_id, node.outcome) == ("n_1", "exec_1", "completed")
    assert (node.started, node.duration_ms) == (None, None)


def test_an_id_that_is_used_again_is_another_call() -> None:
    record = Record()
    for result in (1, 2):
        record.add("call.started", "call_1")
        record.add("call.ended", "call_1", outcome="completed", result=result)
    assert [node.result for node in project(record.events)] == [1, 2]


def test_calls_that_name_each_other_as_parents_are_all_there() -> None:
    record = Record()
    record.add("call.started", "a", "b")
    record.add("call.started", "b", "a")
    record.add("call.started", "c", "c")
    roots = project(record.events)
    assert [(node.call_id, len(node.children)) for node in roots] == [("a", 1), ("c", 0)]


def test_nesting_without_end_stays_readable_and_loses_no_call() -> None:
    record = Record()
    for depth in range(10_000):
        record.add("call.started", f"call_{depth}", f"call_{depth - 1}")
    roots = project(record.events)
    shown = b"".join(encode_json(node.to_json()) for node in roots)
    assert shown.count(b'"toolCallId"') == 10_000


def test_odd_data_from_elsewhere_is_read_as_far_as_it_goes() -> None:
    record = Record()
    record.add("call.started", "a", toolId=7, toolName=None, input=[1])
    record.add("call.ended", "a", outcome="exploded", durationMs="long", error={"a": 1})
    (node,) = project(record.events)
    assert (node.tool_id, node.tool_name, node.input) == ("", "", [1])
    assert (node.outcome, node.error, node.duration_ms) == ("failed", "", 1000.0)


def test_a_record_of_a_run_can_be_projected() -> None:
    recorder = TrajectoryRecorder(RunContext())
    data: JsonObject = {"toolId": "openclaw:core:read", "input": {"token": "x"}}
    recorder.record("call.started", call_id="call_1", data=data)
    (node,) = project(recorder.events)
    assert node.input == {"token": "[redacted]"}
