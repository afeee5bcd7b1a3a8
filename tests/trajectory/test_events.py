"""Exporting a trajectory as JSON lines and importing it."""

import pytest

from nacre.json_types import JsonObject, decode_json, encode_json
from nacre.run_context import RunContext
from nacre.trajectory import (
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
