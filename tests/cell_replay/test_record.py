"""Records that cannot be replayed: old, cut, damaged, or of something else."""

import base64
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from nacre import Runtime
from nacre.cell_replay import read_cells, replay
from nacre.cell_replay.recorder import encode_catalog
from nacre.errors import ReplayError
from nacre.json_types import JsonObject
from nacre.run_context import RunContext
from nacre.sandbox import SharedData
from nacre.telemetry import Redaction
from nacre.trajectory import TrajectoryEvent, TrajectoryRecorder, export_json_lines
from tests.cell_replay.replays import changed_bursts, record_of
from tests.code_mode.outcomes import value_of, waiting_of
from tests.code_mode.tools import echo_tool


async def record_calls(runtime: Runtime, count: int = 1) -> tuple[TrajectoryEvent, ...]:
    run = runtime.run(tools=[echo_tool()])
    code = f"for (let n = 0; n < {count}; n++) await tools.echo({{n}}); return 1"
    value_of(await run.exec(code))
    return record_of(run.trajectory)


def test_equal_catalogs_are_encoded_once() -> None:
    # Each run of a client with its own tools has a new catalog.
    def encode(tools: bytes, *methods: str) -> tuple[JsonObject, int]:
        return encode_catalog(SharedData({"tools": tools}, methods=methods))

    assert encode(b"[1]", "tools.call") is encode(b"[1]", "tools.call")
    assert encode(b"[1]", "tools.call") != encode(b"[1]", "tools.search")
    assert encode(b"[1]", "tools.call") != encode(b"[2]", "tools.call")


async def test_a_run_without_programs_is_refused() -> None:
    recorder = TrajectoryRecorder(RunContext())
    with pytest.raises(ReplayError, match="the run has no programs"):
        await replay(recorder.events)


async def test_an_unknown_cell_is_answered_with_those_of_the_run(runtime: Runtime) -> None:
    events = await record_calls(runtime)
    (cell,) = read_cells(events)
    with pytest.raises(ReplayError) as caught:
        await replay(events, cell_id="run_none")
    expected = f"there is no cell 'run_none' in this run; its cells are {cell.cell_id}"
    assert str(caught.value) == expected


async def test_a_record_of_an_older_version_is_refused(runtime: Runtime) -> None:
    events = [each for each in await record_calls(runtime) if not each.kind.startswith("replay.")]
    with pytest.raises(ReplayError, match="an older version of Nacre recorded it"):
        await replay(events)


async def test_a_leg_that_two_processes_have_run_counts_once(runtime: Runtime) -> None:
    run = runtime.run(tools=[echo_tool()])
    waiting = waiting_of(await run.exec("text('a'); await yield_control(); text('b'); return 1"))
    events = list(record_of(run.trajectory))
    value_of(await run.wait(waiting.cell_id))
    later = record_of(run.trajectory)[len(events) :]
    # The first one was killed before its end was stored.
    killed = [
        replace(each, data={key: value for key, value in each.data.items() if key != "end"})
        for each in later
        if each.kind != "cell.ended"
    ]
    again = [replace(each, sequence=each.sequence + 1_000_000) for each in later]
    replayed = await replay([*events, *killed, *again], sandbox=runtime.sandbox)
    (cell,) = replayed.cells
    assert (cell.difference, len(cell.steps), cell.recorded_steps) == ("", 2, 2)
    assert cell.recorded_end == {"status": "completed", "value": 1}


async def test_a_cell_whose_process_was_killed_is_refused(runtime: Runtime) -> None:
    run = runtime.run()
    value_of(await run.exec("return 1"))
    value_of(await run.exec("return 2"))
    events = record_of(run.trajectory)
    first, second = read_cells(events)
    cut = [
        event
        for event in events
        if event.kind != "replay.bursts" or event.data["runId"] == first.cell_id
    ]
    with pytest.raises(ReplayError, match=f"the record of the cell '{second.cell_id}' was cut"):
        await replay(cut, sandbox=runtime.sandbox)
    replayed = await replay(cut, cell_id=first.cell_id, sandbox=runtime.sandbox)
    assert replayed.difference == ""


@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        ("replay.catalog", "its catalog was dropped from the trajectory"),
        ("call.ended", "was dropped from the trajectory"),
    ],
)
async def test_a_record_that_lost_a_part_is_refused(
    runtime: Runtime, kind: str, problem: str
) -> None:
    events = [event for event in await record_calls(runtime) if event.kind != kind]
    with pytest.raises(ReplayError, match=problem):
        await replay(events)


@pytest.mark.parametrize(
    ("number", "problem"),
    [
        (0, "its beginning was dropped"),
        (1, "128 bursts should be before this, not 64"),
    ],
)
async def test_a_long_record_that_lost_an_event_is_refused(
    runtime: Runtime, number: int, problem: str
) -> None:
    events = await record_calls(runtime, 150)
    bursts = [event for event in events if event.kind == "replay.bursts"]
    assert len(bursts) > 2
    with pytest.raises(ReplayError, match=problem):
        await replay([event for event in events if event is not bursts[number]])


def bad_command(data: JsonObject) -> None:
    cast("list[Any]", data["bursts"])[0]["command"] = "jump"


def bad_seed(data: JsonObject) -> None:
    cast("list[Any]", data["bursts"])[0]["seed"] = "12"


def bad_clock(data: JsonObject) -> None:
    cast("list[Any]", data["bursts"])[0]["clock"] = [1, -2]


def bad_limits(data: JsonObject) -> None:
    cast("JsonObject", data["program"])["limits"] = {"timeout_ms": "soon"}


def bad_language(data: JsonObject) -> None:
    cast("JsonObject", data["program"])["language"] = "python"


def no_code(data: JsonObject) -> None:
    del cast("JsonObject", data["program"])["code"]


def bad_bursts(data: JsonObject) -> None:
    data["bursts"] = "none"


def bad_answer(data: JsonObject) -> None:
    cast("list[Any]", data["bursts"])[1]["answers"] = [{}]


def bad_end(data: JsonObject) -> None:
    data["end"] = {"status": "failed", "reason": ["aborted"]}


DAMAGES = (
    bad_command, bad_seed, bad_clock, bad_limits, bad_language, no_code, bad_bursts, bad_answer,
    bad_end,
)  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
async def test_a_damaged_record_is_refused(runtime: Runtime, damage: Any) -> None:
    events = changed_bursts(await record_calls(runtime), damage)
    with pytest.raises(ReplayError, match="' is damaged or was cut: "):
        await replay(events)


async def test_a_file_is_read_and_other_files_are_refused(runtime: Runtime, tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    file.write_text("\n".join(export_json_lines(await record_calls(runtime))))
    replayed = await replay(file, sandbox=runtime.sandbox)
    assert replayed.difference == ""
    assert (await replay(str(file), sandbox=runtime.sandbox)) == replayed
    with pytest.raises(ReplayError, match="cannot read the record "):
        await replay(tmp_path / "none.jsonl")
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(ReplayError, match="is not an exported trajectory"):
        await replay(file)
    file.write_text("{}")
    with pytest.raises(ReplayError, match="is not an exported trajectory: line 1 of"):
        await replay(file)


async def test_the_first_step_is_one(runtime: Runtime) -> None:
    events = await record_calls(runtime)
    with pytest.raises(ReplayError, match="until is 0; the first step is 1"):
        await replay(events, until=0)


async def test_a_catalog_is_recorded_once_per_run(runtime: Runtime) -> None:
    run = runtime.run(tools=[echo_tool()])
    for _ in range(3):
        value_of(await run.exec("return 1"))
    kinds = [event.kind for event in run.trajectory.events]
    assert (kinds.count("replay.catalog"), kinds.count("replay.bursts")) == (1, 3)


async def test_each_leg_is_recorded_when_it_ends(runtime: Runtime) -> None:
    run = runtime.run()
    waiting = waiting_of(await run.exec("await yield_control(); return 1"))
    assert [event.kind for event in run.trajectory.events].count("replay.bursts") == 1
    value_of(await run.wait(waiting.cell_id))
    assert [event.kind for event in run.trajectory.events].count("replay.bursts") == 2


async def test_rules_that_keep_no_inputs_are_part_of_the_record() -> None:
    from nacre.cell_replay import CellRecorder, ProgramInfo
    from nacre.sandbox import Limits, Sandbox, SandboxOptions, SharedData

    rules = Redaction(keep_inputs=False)
    recorder = TrajectoryRecorder(RunContext(), redaction=rules)
    async with Sandbox(SandboxOptions(workers=1)) as sandbox:
        program = ProgramInfo(
            code="return 1",
            language="javascript",
            limits=Limits(),
            shared=SharedData({}),
            sandbox=sandbox,
        )
        record = CellRecorder(recorder, program, call_id="c1")
        record.cell_id = "run_1"
        record.write()
    (cell,) = read_cells(recorder.events)
    assert (cell.redaction, cell.is_code_exact) == (rules, False)
    assert cell.code == "[input not kept: text of 8 characters]"


async def test_a_small_record_does_not_unpack_to_any_size(runtime: Runtime) -> None:
    part = base64.b64encode(zlib.compress(b'"%s"' % (b"x" * (15 << 20)))).decode()
    events = [
        replace(each, data={**each.data, "parts": {f"part{at}": part for at in range(8)}})
        if each.kind == "replay.catalog"
        else each
        for each in await record_calls(runtime)
    ]
    (cell,) = read_cells(events)
    assert sum(map(len, cell.shared.parts.values())) <= 32 << 20
    assert "part7" in cell.unknown[0]
