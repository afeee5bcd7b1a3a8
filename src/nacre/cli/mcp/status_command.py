"""`mcp status`: starts every server and says how each one does."""

from typing import Annotated

import typer

from nacre.cli.options import (
    TIMEOUT_SECONDS,
    ConfigOption,
    JsonOption,
    ServersOption,
    TimeoutOption,
)
from nacre.cli.output import ExitStatus


def status_command(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="One server.", show_default=False)
    ] = None,
    config: ConfigOption = None,
    servers: ServersOption = None,
    timeout_seconds: TimeoutOption = TIMEOUT_SECONDS,
    is_json: JsonOption = False,
) -> int:
    """Start every server, all at once, and say how each one does.

    Exit status: 0 if all work, 1 if one is broken.
    """
    from nacre.cli.mcp.sources import configured_servers
    from nacre.cli.mcp.status import write_status
    from nacre.cli.mcp.survey import ask_servers

    found = ask_servers(
        configured_servers(config, servers or ()).only(name),
        timeout_seconds=timeout_seconds,
    )
    return found if isinstance(found, ExitStatus) else write_status(found, is_json=is_json)
