"""`trajectory show`: what a run did, or all runs of a session, as a tree."""

from typing import TYPE_CHECKING

from nacre.cli.exit_status import ExitStatus
from nacre.cli.mcp.options import ConfigOption
from nacre.cli.terminal import Printer, warn
from nacre.cli.trajectory.options import RecordArgument

if TYPE_CHECKING:
    from nacre.storage import Store


def show_command(named: RecordArgument, config: ConfigOption = None) -> int:
    """Show what was asked, answered and called, with durations, outcomes and sizes."""
    from nacre.cli.system_config import read_system_config

    _, system = read_system_config(config)

    from nacre.cli.stored import read_stored
    from nacre.cli.trajectory.run_tree import run_lines
    from nacre.cli.trajectory.stored_events import events_of_run, find_record, run_ids_of
    from nacre.errors import StorageError

    printer = Printer()

    async def show(store: "Store") -> None:
        record = await find_record(store, named, agent_ids=system.agents.ids)
        for run_id in await run_ids_of(store, record):
            for line in run_lines(run_id, await events_of_run(store, run_id)):
                printer.write(f"{line}\n")
            if printer.problem is not None:
                return

    try:
        read_stored(system, show)
    except StorageError as error:
        warn(str(error))
        return ExitStatus.FAILED
    return printer.problem or ExitStatus.COMPLETED
