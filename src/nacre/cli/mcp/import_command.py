"""`mcp import`: takes over the servers of another client."""

from typing import Annotated

import typer

from nacre.cli.options import CLIENT_NAMES, ConfigOption
from nacre.cli.output import ExitStatus, Printer, count_text, say, warn


def import_command(
    file: Annotated[
        str | None,
        typer.Argument(metavar="[FILE]", help="A client's file.", show_default=False),
    ] = None,
    client: Annotated[
        str | None,
        typer.Option("--client", metavar=CLIENT_NAMES, help="The client, wherever its files are."),
    ] = None,
    is_dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be added, and change nothing.")
    ] = False,
    config: ConfigOption = None,
) -> int:
    """Take over the servers of an MCP client.

    Copies them from the client's file into the configuration.

    References such as ${TOKEN} are copied as references. Servers that are there already stay as
    they are. The client's own file is not changed.
    """
    from nacre.cli.mcp.clients import servers_to_import
    from nacre.cli.mcp.config import read_config
    from nacre.cli.mcp.imports import new_entries

    found = servers_to_import(client, file)
    document = read_config(config, is_made=True)
    new, notes = new_entries(found.servers, document)
    for note in (*found.notes, *notes):
        warn(note)
    printer = Printer()
    for name, entry in new.items():
        if not is_dry_run:
            document.set_entry(name, entry)
        printer.write(f"{name}\n")
    what = "would be added" if is_dry_run else "added"
    say(f"{len(new)} of {count_text(len(found.servers), 'server')} {what} to {document.file.path}")
    return printer.problem or ExitStatus.COMPLETED
