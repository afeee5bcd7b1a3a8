"""Command `nacre replay`: runs the programs of a recorded run again, without calling a tool."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from nacre.cli.call_view import input_text, value_text
from nacre.cli.options import ConfigOption, JsonOption
from nacre.cli.output import (
    Branch,
    ExitStatus,
    Printer,
    UsageError,
    count_text,
    escape_controls,
    say,
    show_sandbox_progress,
    tree_lines,
    warn,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from nacre.cell_replay import CellReplay, Replay, ReplayStep
    from nacre.json_types import JsonObject
    from nacre.storage import Store
    from nacre.trajectory import TrajectoryEvent


def replay_command(
    named: Annotated[
        str,
        typer.Argument(
            metavar="RUN|FILE",
            help="The id of a stored run, or a file of `nacre trajectory export`.",
            show_default=False,
        ),
    ],
    cell: Annotated[
        str | None,
        typer.Option(
            "--cell",
            metavar="ID",
            help="Only the program with this id. [default: all of the run]",
            show_default=False,
        ),
    ] = None,
    until: Annotated[
        int | None,
        typer.Option("--until", metavar="N", min=1, help="End after this step of each program."),
    ] = None,
    code: Annotated[
        str | None,
        typer.Option(
            "--code",
            metavar="FILE",
            help="Run this program instead, and show what it would call. - is standard input.",
        ),
    ] = None,
    is_test: Annotated[
        bool,
        typer.Option("--as-test", help="Save the run as a test for pytest, with its record."),
    ] = False,
    out: Annotated[
        str | None,
        typer.Option(
            "--out",
            metavar="DIRECTORY",
            help="The directory of the test. [default: the current one]",
            show_default=False,
        ),
    ] = None,
    config: ConfigOption = None,
    is_json: JsonOption = False,
) -> int:
    """Run the programs of a recorded run again.

    No tool is called: programs get the recorded answers, times and random numbers. Shows each step
    and the first difference from the record. The exit status is 1 if there is a difference.
    """
    if is_test and (until is not None or code is not None):
        raise UsageError("--as-test saves the recorded programs; leave out --until and --code")
    if out is not None and not is_test:
        raise UsageError("--out is the directory of a test; use it with --as-test")

    from nacre.cell_replay import replay
    from nacre.cli.exec_program import read_program
    from nacre.cli.runner import run_async
    from nacre.errors import NacreError, ReplayError

    program = None if code is None else read_program(code, code=None, language=None)
    try:
        events = _read_events(named, config)
        with show_sandbox_progress():
            replayed = run_async(
                lambda: replay(
                    events,
                    cell_id=cell,
                    until=until,
                    code=None if program is None else program.text,
                    language=None if program is None or code == "-" else program.language,
                )
            )
    except ReplayError as error:
        raise UsageError(str(error)) from error
    except NacreError as error:
        warn(str(error))
        return ExitStatus.FAILED
    printer = Printer()
    if is_json:
        printer.write_json(replayed.to_json(), is_indented=printer.is_terminal)
    else:
        for line in replay_lines(replayed):
            printer.write(f"{line}\n")
    if replayed.difference:
        if is_test:
            say("no test was saved, because the replay differs from its record")
        return printer.problem or ExitStatus.FAILED
    if is_test:
        test = save_as_test(select_events(events, replayed), named, Path(out or "."))
        say(f"saved {test}; run it with `pytest {test}`")
    return printer.problem or ExitStatus.COMPLETED


def register(app: typer.Typer) -> None:
    app.command("replay")(replay_command)


def _read_events(named: str, config: str | None) -> Sequence[TrajectoryEvent]:
    """The events of a run or of a file. Raises UsageError and StorageError."""
    path = Path(named)
    with suppress(OSError, ValueError):
        if path.is_file():
            return _read_file(path)

    from nacre.cli.stored_records import events_of_run, find_record, read_stored
    from nacre.cli.system_config import read_system_config

    _, system = read_system_config(config)

    async def read(store: Store) -> Sequence[TrajectoryEvent]:
        record = await find_record(store, named, agent_ids=system.agents.ids)
        if record.run_id is None:
            raise UsageError(
                f"{named!r} is a session; name one of its runs: `nacre sessions show {named}` "
                "lists them"
            )
        return await events_of_run(store, record.run_id)

    return read_stored(system, read)


def _read_file(path: Path) -> Sequence[TrajectoryEvent]:
    from nacre.trajectory import TrajectoryFormatError, import_json_lines

    try:
        return import_json_lines(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, TrajectoryFormatError) as error:
        raise UsageError(f"{str(path)!r} is not an exported trajectory: {error}") from error


# Text.


def replay_lines(replayed: Replay) -> Iterator[str]:
    """The replay as lines of text."""
    for cell in replayed.cells:
        yield _heading(cell)
        yield from tree_lines([*(_step_branch(step) for step in cell.steps), *_summary(cell)])


def _heading(cell: CellReplay) -> str:
    steps = count_text(len(cell.steps), "step")
    of = "" if cell.is_code_changed else f" of {cell.recorded_steps}"
    changed = ", with changed code" if cell.is_code_changed else ""
    return escape_controls(f"{cell.cell_id}: {steps}{of}, call {cell.call_id}{changed}")


def _step_branch(step: ReplayStep) -> Branch:
    lines: list[str] = []
    for answer in step.answers:
        mark = "✓" if answer.is_success else "✗"
        partial = "" if answer.is_exact else "  (only a part is recorded)"
        lines.append(f"{mark} {answer.name} → {value_text(answer.value)}{partial}")
    lines += [f"» {_output_text(item)}" for item in step.output]
    for call in step.calls:
        missing = "" if call.is_recorded else "  (not recorded: it would be called)"
        lines.append(f"calls {call.name} {input_text(call.input)}".rstrip() + missing)
    lines += [f"yields {value_text(reason)}" if reason else "yields" for reason in step.yields]
    resumed = ", resumed" if step.is_restored else ""
    return Branch(
        text=f"{step.number} {step.cause}{resumed}",
        branches=[Branch(text=escape_controls(line)) for line in lines],
    )


def _output_text(item: JsonObject) -> str:
    return value_text(item.get("text", item.get("result")))


def _summary(cell: CellReplay) -> list[Branch]:
    lines: list[str] = []
    match cell.end:
        case None:
            lines.append("the program waits")
        case {"status": "completed", "value": value}:
            lines.append(f"completed: {value_text(value)}")
        case end:
            lines.append(f"failed, {end.get('reason')}: {end.get('error')}")
    missing = [call for call in cell.calls if not call.is_recorded]
    if missing:
        lines.append(f"would call {', '.join(dict.fromkeys(call.name for call in missing))}")
    lines += [f"note: {note}" for note in cell.notes]
    lines.append(f"difference: {cell.difference}" if cell.difference else "no difference")
    return [Branch(text=escape_controls(line).replace("\n", " ")) for line in lines]


# A saved test.

_TEST: Final = '''\
"""Runs recorded programs again: they have to do what they did. No tool is called.

`nacre replay --as-test` wrote this file and the record beside it.
"""

from pathlib import Path

import anyio

from nacre import replay

RECORD = Path(__file__).with_name("{record}")


def test_{name}_does_what_it_did() -> None:
    replayed = anyio.run(replay, RECORD)
    assert replayed.difference == ""
'''


def select_events(events: Sequence[TrajectoryEvent], replayed: Replay) -> list[TrajectoryEvent]:
    """The events that a replay needs: no messages, and no names of sessions and people."""
    cell_ids = {cell.cell_id for cell in replayed.cells}
    call_ids = {cell.call_id for cell in replayed.cells}
    return [
        event
        for event in events
        if event.kind == "replay.catalog"
        or event.data.get("runId") in cell_ids
        or (event.kind == "call.ended" and event.parent_id in call_ids)
    ]


def save_as_test(events: Sequence[TrajectoryEvent], named: str, directory: Path) -> Path:
    """Write the test and its record, and return the path of the test. Raises UsageError."""
    from nacre.trajectory import export_json_lines

    name = re.sub(r"\W+", "_", Path(named).stem, flags=re.ASCII).strip("_").lower()
    test, record = directory / f"test_replay_{name}.py", directory / f"replay_{name}.jsonl"
    texts = {
        record: "".join(f"{line}\n" for line in export_json_lines(events)),
        test: _TEST.format(record=record.name, name=name),
    }
    for path in texts:
        if path.exists():
            raise UsageError(f"{str(path)!r} exists; delete it, or choose another --out DIRECTORY")
    for path, text in texts.items():
        try:
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            problem = f"cannot write {str(path)!r}: {error.strerror or error}"
            raise UsageError(problem) from error
    return test
