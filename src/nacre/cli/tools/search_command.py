"""`tools search`: the tools that fit a query, as a model would find them."""

from typing import Annotated

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
from nacre.cli.output import ExitStatus, Printer, warn


def search_command(
    query: Annotated[
        list[str],
        typer.Argument(metavar="QUERY...", help="What the tool should do.", show_default=False),
    ],
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit",
            "-n",
            metavar="N",
            min=1,
            max=1000,
            help="How many at most. [default: tools.toolSearch.searchDefaultLimit, or 8]",
        ),
    ] = None,
    is_explained: Annotated[
        bool, typer.Option("--explain", help="Say of each result why it ranks there.")
    ] = False,
    is_waiting: Annotated[
        bool,
        typer.Option("--wait", help="Wait until every tool can be found by its meaning."),
    ] = False,
    config: ConfigOption = None,
    servers: ServersOption = None,
    tools: OwnToolsOption = None,
    agent: ToolsAgentOption = None,
    timeout_seconds: TimeoutOption = TIMEOUT_SECONDS,
    is_json: JsonOption = False,
) -> int:
    """Find tools by what they do, best first.

    Exit status: 0, or 1 if tools were not searched because a server is broken.
    """
    from nacre.cli.tools.configured_tools import configured_tools
    from nacre.cli.tools.found_tools import find_tools, write_found
    from nacre.cli.tools.open_catalog import read_catalog
    from nacre.cli.tools.tool_tables import end_status, write_tools_json

    configured = configured_tools(
        config=config, server_files=servers or (), tool_modules=tools or (), agent_id=agent
    )
    catalog = read_catalog(
        configured, configured.asked_server_names, timeout_seconds=timeout_seconds
    )
    if isinstance(catalog, ExitStatus):
        return catalog
    wanted = " ".join(query)
    most = limit or configured.settings.search_default_limit
    found = find_tools(catalog, wanted, most, is_waiting=is_waiting)
    printer = Printer()
    if is_json:
        results = [it.to_json(is_explained=is_explained) for it in found]
        write_tools_json(printer, catalog, "results", results)
    else:
        write_found(printer, found, is_explained=is_explained)
    if not found:
        count = catalog.listing.catalog.size
        warn(f"nothing fits among {count:,} tools; `nacre tools list` shows them")
    return end_status(printer, catalog)
