"""`tools list`: the whole catalog, or the part from one server or source."""

from typing import TYPE_CHECKING, Annotated

import typer

from nacre.cli.options import (
    TIMEOUT_SECONDS,
    ConfigOption,
    JsonOption,
    OwnToolsOption,
    ServersOption,
    TimeoutOption,
    ToolsAgentOption,
)
from nacre.cli.output import ExitStatus, Printer, UsageProblem, warn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nacre.cli.tools.configured_tools import ConfiguredTools

_SOURCE_NAMES = ("mcp", "openclaw", "client")


def list_command(
    server: Annotated[
        str | None, typer.Option("--server", metavar="NAME", help="One MCP server.")
    ] = None,
    source: Annotated[
        str | None,
        typer.Option("--source", metavar="|".join(_SOURCE_NAMES), help="Where tools come from."),
    ] = None,
    config: ConfigOption = None,
    servers: ServersOption = None,
    tools: OwnToolsOption = None,
    agent: ToolsAgentOption = None,
    timeout_seconds: TimeoutOption = TIMEOUT_SECONDS,
    is_json: JsonOption = False,
) -> int:
    """List the tools that the configuration has and permits.

    Exit status: 0, or 1 if tools are missing because a server is broken.
    """
    if source is not None and source not in _SOURCE_NAMES:
        raise UsageProblem(f"--source is {source!r}; allowed: {', '.join(_SOURCE_NAMES)}")
    if server is not None and source not in (None, "mcp"):
        raise UsageProblem(f"--server names an MCP server; leave out --source {source}")
    from nacre.cli.mcp_servers import NO_SERVERS
    from nacre.cli.output import count_text, write_table
    from nacre.cli.tools.configured_tools import configured_tools
    from nacre.cli.tools.open_catalog import read_catalog
    from nacre.cli.tools.tool_tables import end_status, tool_row, write_tools_json

    configured = configured_tools(
        config=config, server_files=servers or (), tool_modules=tools or (), agent_id=agent
    )
    names = _server_names(configured, server, source)
    catalog = read_catalog(configured, names, timeout_seconds=timeout_seconds)
    if isinstance(catalog, ExitStatus):
        return catalog
    entries = [
        entry
        for entry in catalog.listing.catalog.entries
        if source in (None, entry.source)
        and (server is None or (entry.source, entry.source_name) == ("mcp", server))
    ]
    printer = Printer()
    if is_json:
        write_tools_json(printer, catalog, "tools", [entry.to_json() for entry in entries])
    else:
        write_table(printer, ("tool", "title", "description"), [tool_row(it) for it in entries])
        printer.write(f"{count_text(len(entries), 'tool')}\n")
    if not entries and source in (None, "mcp") and not configured.servers.servers:
        warn(NO_SERVERS)
    return end_status(printer, catalog)


def _server_names(
    configured: "ConfiguredTools", server: str | None, source: str | None
) -> "Sequence[str]":
    if server is not None:
        return [it.name for it in configured.servers.only(server).servers]
    return configured.asked_server_names if source in (None, "mcp") else ()
