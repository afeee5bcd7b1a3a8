"""`mcp config`: what to paste into a client so that it starts `nacre mcp`."""

from typing import Annotated

import typer

from nacre.cli.options import CLIENT_NAMES, ConfigOption, ServersOption
from nacre.cli.output import ExitStatus, Printer, say


def config_command(
    client_name: Annotated[
        str, typer.Option("--client", metavar=CLIENT_NAMES, help="Your client.", show_default=False)
    ],
    config: ConfigOption = None,
    servers: ServersOption = None,
) -> int:
    """Print what to paste into your MCP client.

    With it the client starts `nacre mcp`.

    The text goes to standard output, and where it belongs to standard error. It names the
    configuration that this command finds, or the files given with --servers: clients start servers
    in folders of their own.
    """
    from nacre.cli.mcp.clients import client_named, here, serve_arguments
    from nacre.mcp_server.client_snippets import client_snippet, nacre_command

    client = client_named(client_name)
    command = nacre_command("mcp", *serve_arguments(config, servers or ()))
    snippet = client_snippet(client, here(), command=command)
    printer = Printer()
    printer.write(snippet.text)
    places = " or ".join(map(str, snippet.files))
    say(f"paste it into {places}, beside or instead of the servers there, and restart {client}")
    return printer.problem or ExitStatus.COMPLETED
