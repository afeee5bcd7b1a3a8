"""Commands `nacre trajectory`: show and export the events of stored runs."""

from __future__ import annotations

import os
import tempfile
from collections import defaultdict
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import anyio
import anyio.to_thread
import typer

from nacre.cli.call_view import call_branch
from nacre.cli.options import ConfigOption, JsonOption, RecordArgument
from nacre.cli.output import (
    Branch,
    ExitStatus,
    Printer,
    UsageError,
    count_text,
    duration_text,
    is_stderr_terminal,
    say,
    shorten,
    size_text,
    time_text,
    tree_lines,
    warn,
)
from nacre.cli.stored_records import read_event_pages
from nacre.json_types import encode_json
from nacre.trajectory import project

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterator, Sequence

    from nacre.cli.stored_records import EventSelection
    from nacre.json_types import JsonObject, JsonValue
    from nacre.storage import Store, TurnRecord
    from nacre.trajectory import TrajectoryEvent


def show_command(
    named: RecordArgument, config: ConfigOption = None, is_json: JsonOption = False
) -> int:
    """Show the model requests, answers and tool calls of runs.

    Includes durations, results and sizes. With --json, prints the events and calls of each run.
    """
    from nacre.cli.system_config import read_system_config

    _, system = read_system_config(config)

    from nacre.cli.stored_records import events_of_run, find_record, read_stored, run_ids_of
    from nacre.errors import StorageError

    printer = Printer()

    async def show(store: Store) -> list[JsonValue]:
        record = await find_record(store, named, agent_ids=system.agents.ids)
        runs: list[JsonValue] = []
        for run_id in await run_ids_of(store, record):
            events, turn = await events_of_run(store, run_id), await store.turn(run_id)
            if is_json:
                runs.append(run_to_json(run_id, events, turn))
                continue
            for line in run_lines(run_id, events, turn):
                printer.write(f"{line}\n")
            if printer.problem is not None:
                break
        return runs

    try:
        runs = read_stored(system, show)
    except StorageError as error:
        warn(str(error))
        return ExitStatus.FAILED
    if is_json:
        printer.write_json({"runs": runs}, is_indented=printer.is_terminal)
    return printer.problem or ExitStatus.COMPLETED


def export_command(
    named: RecordArgument,
    out: Annotated[
        str | None,
        typer.Option("--out", metavar="FILE", help="The file to write. [default: standard output]"),
    ] = None,
    config: ConfigOption = None,
) -> int:
    """Export recorded events as JSON Lines.

    Stored events contain no secrets, and long texts are cut. Events of several runs are numbered
    consecutively; each run starts with run.started.
    """
    from nacre.cli.system_config import read_system_config

    _, system = read_system_config(config)

    from nacre.cli.output import count_text
    from nacre.cli.stored_records import find_record, read_stored
    from nacre.errors import StorageError

    printer = Printer()

    async def export(store: Store) -> int:
        record = await find_record(store, named, agent_ids=system.agents.ids)
        return await export_events(store, record, out=out, printer=printer)

    try:
        count = read_stored(system, export)
    except StorageError as error:
        warn(str(error))
        return ExitStatus.FAILED
    if out not in (None, "-"):
        say(f"{count_text(count, 'event')} written to {out}")
    elif not count:
        warn(f"there are no recorded events of {named}")
    return printer.problem or ExitStatus.COMPLETED


def register(app: typer.Typer) -> None:
    group = typer.Typer(help="Show and export the events of runs.", no_args_is_help=True)
    group.command("show")(show_command)
    group.command("export")(export_command)
    app.add_typer(group, name="trajectory")


def run_lines(
    run_id: str, events: Sequence[TrajectoryEvent], turn: TurnRecord | None = None
) -> Iterator[str]:
    """The run as lines of text. `turn` is its stored record, which tells whether its process was
    killed."""
    yield _heading(run_id, events)
    if turn is None or turn.status != "interrupted":
        yield from tree_lines(_branches(events))
        return
    report = Branch(text=f"interrupted  {shorten(turn.error)}")
    yield from tree_lines([*_branches(events, unended="interrupted"), report])


def run_to_json(
    run_id: str, events: Sequence[TrajectoryEvent], turn: TurnRecord | None = None
) -> JsonObject:
    """The events as they were recorded, and the calls as a tree."""
    return {
        "runId": run_id,
        **({"status": turn.status} if turn is not None else {}),
        "events": [event.to_json() for event in events],
        "calls": [call.to_json() for call in project(events)],
    }


def _heading(run_id: str, events: Sequence[TrajectoryEvent]) -> str:
    if not events:
        return f"{run_id}: no recorded events"
    began = events[0].data if events[0].kind == "run.started" else {}
    took = duration_text((events[-1].time - events[0].time) * 1000)
    facts = [
        time_text(events[0].time),
        took,
        count_text(len(events), "event"),
        f"agent {shorten(str(began['agentId']))}" if "agentId" in began else "",
        f"session {shorten(str(began['sessionId']))}" if "sessionId" in began else "",
    ]
    gone = f" ({events[0].sequence} earlier events were dropped)" if events[0].sequence else ""
    return f"{run_id}: {', '.join(filter(None, facts))}{gone}"


def _branches(events: Sequence[TrajectoryEvent], *, unended: str = "has not ended") -> list[Branch]:
    cells: defaultdict[str, list[TrajectoryEvent]] = defaultdict(list)
    timed: list[tuple[float, Branch]] = []
    asked_at = 0.0
    for event in events:
        if event.kind.startswith("cell."):
            cells[event.call_id].append(event)
        elif event.kind == "model.requested":
            asked_at = event.time
            timed.append((event.time, Branch(text=_request_text(event.data))))
        elif event.kind == "model.answered":
            took = duration_text((event.time - asked_at) * 1000) if asked_at else ""
            timed.append((event.time, Branch(text=_answer_text(event.data, took))))
        elif event.kind == "turn.ended":
            timed.append((event.time, Branch(text=_end_text(event.data))))
    # Calls are ordered by their start; without a recorded start, they come first.
    timed += [
        (call.started or 0.0, call_branch(call, cells, unended=unended)) for call in project(events)
    ]
    timed.sort(key=lambda it: it[0])
    return [branch for _, branch in timed]


def _request_text(data: JsonObject) -> str:
    names = data.get("toolNames")
    tools = count_text(len(names) if isinstance(names, list) else 0, "tool")
    sizes = f"{tools} in {_size(data, 'toolBytes')}, {_size(data, 'payloadBytes')} in all"
    return f"asked {shorten(str(data.get('model', '')))}  {sizes}"


def _answer_text(data: JsonObject, took: str) -> str:
    names = data.get("calledNames")
    called = ", ".join(map(str, names)) if isinstance(names, list) else ""
    said = shorten(str(data.get("text", "")), max_characters=100)
    parts = [
        f"answered: {shorten(str(data.get('finishReason', '')))}",
        f"calls {shorten(called)}" if called else "",
        took,
        _tokens(data),
        said,
    ]
    return "  ".join(filter(None, parts))


def _end_text(data: JsonObject) -> str:
    error = shorten(str(data.get("error") or ""))
    parts = [str(data.get("status", "ended")), _tokens(data), error]
    return "  ".join(filter(None, parts))


def _tokens(data: JsonObject) -> str:
    match data.get("usage"):
        case {"inputTokens": int(taken), "outputTokens": int(given)}:
            return f"{taken:,} + {given:,} tokens"
        case _:
            return ""


def _size(data: JsonObject, key: str) -> str:
    size = data.get(key)
    return size_text(size) if isinstance(size, int | float) else "?"


@asynccontextmanager
async def open_export(
    name: str | None, printer: Printer
) -> AsyncGenerator[Callable[[str], Awaitable[None]]]:
    """Open the file, or standard output for None and `-`. Yields a function that writes text.

    Raises UsageError if the file cannot be written.
    """
    if name in (None, "-"):

        async def write(text: str) -> None:
            printer.write(text)

        yield write
        return
    path = Path(name)
    try:
        file = await anyio.to_thread.run_sync(_open_temporary, path)
        try:

            async def write_to_file(text: str) -> None:
                await anyio.to_thread.run_sync(file.write, text)

            yield write_to_file
            await anyio.to_thread.run_sync(_replace_target, file, path)
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(_discard, file)
    except OSError as error:
        problem = f"cannot write {str(path)!r}: {error.strerror or error}"
        raise UsageError(problem) from error


def _open_temporary(path: Path) -> IO[str]:
    if path.is_dir():
        raise IsADirectoryError(None, "it is a directory")
    # In the same folder, readable for its owner alone.
    return tempfile.NamedTemporaryFile(
        "w", encoding="utf-8", dir=path.parent, prefix=f".{path.name}.", delete=False
    )


def _replace_target(file: IO[str], path: Path) -> None:
    file.close()
    os.replace(file.name, path)


def _discard(file: IO[str]) -> None:
    file.close()
    # After success the file has been renamed.
    with suppress(OSError):
        os.unlink(file.name)


async def export_events(
    store: Store, record: EventSelection, *, out: str | None, printer: Printer
) -> int:
    """Write the events and return their number. Raises UsageError and StorageError."""
    count = 0
    is_output_terminal = out in (None, "-") and printer.is_terminal
    with _progress(is_shown=not is_output_terminal) as report:
        async with open_export(out, printer) as write:
            async for page in read_event_pages(store, record):
                lines: list[str] = []
                for stored in page:
                    # Consecutive numbers, so that the events of several runs can be imported.
                    line = encode_json({**stored.event, "sequence": count})
                    lines.append(f"{line.decode()}\n")
                    count += 1
                await write("".join(lines))
                report(count)
                if printer.problem is not None:
                    break
    return count


@contextmanager
def _progress(*, is_shown: bool) -> Generator[Callable[[int], None]]:
    """Yield a function to report the number of written events; shown on a terminal only."""
    if not is_shown or not is_stderr_terminal():
        yield lambda _count: None
        return
    # Slow to import, and only needed on a terminal.
    from rich.console import Console

    with Console(stderr=True).status("reading") as status:
        yield lambda count: status.update(f"{count_text(count, 'event')} written")
