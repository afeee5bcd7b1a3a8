"""`mcp tools`: what programs can call, by the path that they call it by."""

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


def tools_command(
    name: Annotated[
        str | None, typer.Argument(metavar="SERVER", help="One server.", show_default=False)
    ] = None,
    config: ConfigOption = None,
    servers: ServersOption = None,
    has_schemas: Annotated[
        bool, typer.Option("--schema", help="With what each one takes and gives, as JSON Schema.")
    ] = False,
    timeout_seconds: TimeoutOption = TIMEOUT_SECONDS,
    is_json: JsonOption = False,
) -> int:
    """List the tools of the servers, as programs call them.

    Exit status: 0, or 1 if tools are missing because a server is broken.
    """
    from nacre.cli.mcp.sources import configured_servers
    from nacre.cli.mcp.survey import ask_servers
    from nacre.cli.mcp.tool_list import tool_list, write_tool_list

    configured = configured_servers(config, servers or ())
    found = ask_servers(configured.only(name), timeout_seconds=timeout_seconds)
    if isinstance(found, ExitStatus):
        return found
    tools = tool_list(found, server_names=configured.names)
    return write_tool_list(tools, found, has_schemas=has_schemas, is_json=is_json)
