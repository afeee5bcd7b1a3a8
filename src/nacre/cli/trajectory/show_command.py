"""`trajectory show`: what a run did, or all runs of a session, as a tree."""

from typing import TYPE_CHECKING

from nacre.cli.options import ConfigOption, JsonOption, RecordArgument
from nacre.cli.output import ExitStatus, Printer, warn

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
    from nacre.cli.trajectory.run_tree import run_lines, run_to_json
    from nacre.errors import StorageError

    printer = Printer()

    async def show(store: "Store") -> "list[JsonValue]":
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
