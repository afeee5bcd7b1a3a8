"""The commands of `nacre trajectory`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from nacre.cli.options import ConfigOption, JsonOption, RecordArgument
from nacre.cli.output import ExitStatus, Printer, say, warn

if TYPE_CHECKING:
    from nacre.json_types import JsonValue
    from nacre.storage import Store


def show_command(
    named: RecordArgument, config: ConfigOption = None, is_json: JsonOption = False
) -> int:
    """Show what was asked, answered and called.

    With durations, outcomes and sizes; with --json the events of each run, and its calls.
    """
    from nacre.cli.system_config import read_system_config

    _, system = read_system_config(config)

    from nacre.cli.stored_records import events_of_run, find_record, read_stored, run_ids_of
    from nacre.cli.trajectory_view import run_lines, run_to_json
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
        typer.Option("--out", metavar="FILE", help="Write to this file; else standard output."),
    ] = None,
    config: ConfigOption = None,
) -> int:
    """Write what was recorded, one event per line.

    Secrets were blanked out before anything was stored, and long texts cut. Events of several runs
    are numbered as one; each run begins with run.started.
    """
    from nacre.cli.system_config import read_system_config

    _, system = read_system_config(config)

    from nacre.cli.output import count_text
    from nacre.cli.stored_records import find_record, read_stored
    from nacre.cli.trajectory_export import export_events
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
        warn(f"nothing is recorded of {named}")
    return printer.problem or ExitStatus.COMPLETED


def register(app: typer.Typer) -> None:
    group = typer.Typer(help="Show and export what runs did.", no_args_is_help=True)
    group.command("show")(show_command)
    group.command("export")(export_command)
    app.add_typer(group, name="trajectory")
