"""`trajectory export`: what a run did as JSON Lines, for support and replay."""

from typing import TYPE_CHECKING, Annotated

import typer

from nacre.cli.options import ConfigOption, RecordArgument
from nacre.cli.output import ExitStatus, Printer, say, warn

if TYPE_CHECKING:
    from nacre.storage import Store


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
    from nacre.cli.trajectory.exporting import export_events
    from nacre.errors import StorageError

    printer = Printer()

    async def export(store: "Store") -> int:
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
