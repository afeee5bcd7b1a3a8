"""Commands `nacre gateways`: list the gateways on one database server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import typer

from nacre.cli.options import ConfigOption, JsonOption
from nacre.cli.output import ExitStatus, Printer, UsageError, say, time_text, warn, write_table

if TYPE_CHECKING:
    from nacre.json_types import JsonObject
    from nacre.storage import GatewayRecord, Store

_NO_SERVER: Final = (
    "the sessions are in an SQLite file, which one gateway serves; set `storage.url` to a "
    "PostgreSQL database to run several gateways"
)


def list_command(config: ConfigOption = None, is_json: JsonOption = False) -> int:
    """List the gateways that share the database, and what each holds.

    A gateway is alive, silent (it has a connection, and does not renew its leases) or dead.
    """
    from nacre.cli.system_config import read_system_config

    _, system = read_system_config(config)

    from nacre.cli.stored_records import read_stored
    from nacre.errors import StorageError

    async def read(store: Store) -> list[GatewayRecord]:
        if store.cluster is None:
            raise UsageError(_NO_SERVER)
        return await store.cluster.leases.gateways()

    try:
        found = read_stored(system, read)
    except StorageError as error:
        warn(str(error))
        return ExitStatus.FAILED
    printer = Printer()
    if is_json:
        shown: JsonObject = {"gateways": [_to_json(it) for it in found]}
        printer.write_json(shown, is_indented=printer.is_terminal)
        return printer.problem or ExitStatus.COMPLETED
    rows = [
        (
            it.name,
            it.address or "-",
            it.state,
            it.version,
            time_text(it.started),
            str(it.sessions),
            str(it.running),
            str(it.waiting),
            str(it.queued),
            str(it.inbox),
        )
        for it in found
    ]
    numbers = ("sessions", "running", "waiting", "queued", "inbox")
    headings = ("gateway", "address", "state", "version", "started", *numbers)
    write_table(printer, headings, rows, right=numbers)
    if not found:
        say("no gateway uses this database; start one with `nacre gateway`")
    return printer.problem or ExitStatus.COMPLETED


def _to_json(record: GatewayRecord) -> JsonObject:
    return {
        "id": record.owner,
        "name": record.name,
        "address": record.address,
        "machine": record.machine,
        "state": record.state,
        "version": record.version,
        "startedAt": record.started,
        "secondsSinceRenewal": record.seconds_since_renewal,
        "sessions": record.sessions,
        "running": record.running,
        "waiting": record.waiting,
        "queued": record.queued,
        "inbox": record.inbox,
    }


def register(app: typer.Typer) -> None:
    group = typer.Typer(help="List the gateways on one database server.", no_args_is_help=True)
    group.command("list")(list_command)
    app.add_typer(group, name="gateways")
