"""Commands `nacre tools`: list, search, describe and call the configured tools."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from nacre.cli.options import (
    TIMEOUT_SECONDS,
    ConfigOption,
    JsonOption,
    OwnToolsOption,
    ServersOption,
    TimeoutOption,
    ToolArgument,
    ToolsAgentOption,
)
from nacre.cli.output import ExitStatus, Printer, UsageError, warn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nacre.cli.tools_catalog import ConfiguredTools
    from nacre.run_context import AbortSignal
    from nacre.tools import DirectResult


def call_command(
    id_or_name: ToolArgument,
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[JSON | KEY=VALUE... | -]",
            help="The input: a JSON object, key=value pairs, or - for JSON from standard input.",
            show_default=False,
        ),
    ] = None,
    config: ConfigOption = None,
    servers: ServersOption = None,
    tools: OwnToolsOption = None,
    agent: ToolsAgentOption = None,
    timeout_seconds: TimeoutOption = TIMEOUT_SECONDS,
    is_json: JsonOption = False,
) -> int:
    """Call a tool and print its result.

    Policy, input validation and approvals apply as for an agent. The value of a pair is parsed as
    JSON if the tool expects a number, a list or the like; else it is text.

    Exit status: 0 completed, 1 failed, 2 bad usage, 130 aborted by Ctrl-C, 143 by SIGTERM.
    """
    from nacre.cli.tools_calls import read_tool_input

    given = read_tool_input(arguments or ())

    from nacre.cli.runner import run_abortable
    from nacre.cli.tools_calls import call_tool, write_outcome
    from nacre.cli.tools_catalog import configured_tools

    configured = configured_tools(
        config=config, server_files=servers or (), tool_modules=tools or (), agent_id=agent
    )

    async def call(abort: AbortSignal) -> DirectResult:
        return await call_tool(
            configured, id_or_name, given, timeout_seconds=timeout_seconds, abort=abort
        )

    outcome, stopped = run_abortable(call)
    status = write_outcome(outcome, is_json=is_json)
    return status if stopped is None or status == 0 else stopped


def describe_command(
    id_or_name: ToolArgument,
    config: ConfigOption = None,
    servers: ServersOption = None,
    tools: OwnToolsOption = None,
    agent: ToolsAgentOption = None,
    timeout_seconds: TimeoutOption = TIMEOUT_SECONDS,
    is_json: JsonOption = False,
) -> int:
    """Show what a tool does, and its input and output.

    Prints TypeScript; --json adds JSON Schema. Exit status: 0, or 1 if there is no such tool.
    """
    from nacre.cli.tools_calls import write_outcome
    from nacre.cli.tools_catalog import configured_tools, find_tool, read_catalog, select_servers
    from nacre.cli.tools_views import description_json, description_text
    from nacre.errors import ToolError
    from nacre.tools import DirectResult

    configured = configured_tools(
        config=config, server_files=servers or (), tool_modules=tools or (), agent_id=agent
    )
    names = select_servers(configured, id_or_name)
    catalog = read_catalog(configured, names, timeout_seconds=timeout_seconds)
    if isinstance(catalog, ExitStatus):
        return catalog
    try:
        entry = find_tool(catalog, id_or_name)
    except ToolError as error:
        return write_outcome(DirectResult.from_error(error), is_json=is_json)
    printer = Printer()
    if is_json:
        document = description_json(catalog, entry)
        printer.write_json(document, is_indented=printer.is_terminal)
    else:
        printer.write(description_text(catalog, entry))
    return printer.problem or ExitStatus.COMPLETED


_SOURCE_NAMES = ("mcp", "openclaw", "client")


def list_command(
    server: Annotated[
        str | None, typer.Option("--server", metavar="NAME", help="Only tools of this MCP server.")
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(
            "--source", metavar="|".join(_SOURCE_NAMES), help="Only tools from this source."
        ),
    ] = None,
    config: ConfigOption = None,
    servers: ServersOption = None,
    tools: OwnToolsOption = None,
    agent: ToolsAgentOption = None,
    timeout_seconds: TimeoutOption = TIMEOUT_SECONDS,
    is_json: JsonOption = False,
) -> int:
    """List the configured tools that the policy permits.

    Exit status: 0, or 1 if tools are missing because a server is broken.
    """
    if source is not None and source not in _SOURCE_NAMES:
        raise UsageError(f"--source is {source!r}; allowed: {', '.join(_SOURCE_NAMES)}")
    if server is not None and source not in (None, "mcp"):
        raise UsageError(f"--server is for MCP tools; leave out --source {source}")
    from nacre.cli.configured_servers import NO_SERVERS
    from nacre.cli.output import count_text, write_table
    from nacre.cli.tools_catalog import configured_tools, read_catalog
    from nacre.cli.tools_views import end_status, tool_row, write_tools_json

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
    return end_status(printer, catalog, is_json=is_json)


def _server_names(
    configured: ConfiguredTools, server: str | None, source: str | None
) -> Sequence[str]:
    if server is not None:
        return [it.name for it in configured.servers.select(server).servers]
    return configured.catalog_server_names if source in (None, "mcp") else ()


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
            help="The number of results. [default: tools.toolSearch.searchDefaultLimit, or 8]",
        ),
    ] = None,
    is_explained: Annotated[
        bool, typer.Option("--explain", help="Explain the rank of each result.")
    ] = False,
    is_waiting: Annotated[
        bool,
        typer.Option("--wait", help="Wait until all tools are indexed for search by meaning."),
    ] = False,
    config: ConfigOption = None,
    servers: ServersOption = None,
    tools: OwnToolsOption = None,
    agent: ToolsAgentOption = None,
    timeout_seconds: TimeoutOption = TIMEOUT_SECONDS,
    is_json: JsonOption = False,
) -> int:
    """Search for tools by what they do, best match first.

    Exit status: 0, or 1 if a broken server's tools were not searched.
    """
    from nacre.cli.tools_catalog import configured_tools, read_catalog
    from nacre.cli.tools_views import end_status, find_tools, write_found, write_tools_json

    configured = configured_tools(
        config=config, server_files=servers or (), tool_modules=tools or (), agent_id=agent
    )
    catalog = read_catalog(
        configured, configured.catalog_server_names, timeout_seconds=timeout_seconds
    )
    if isinstance(catalog, ExitStatus):
        return catalog
    text = " ".join(query)
    max_results = limit or configured.settings.search_default_limit
    found = find_tools(catalog, text, max_results, is_waiting=is_waiting)
    printer = Printer()
    if is_json:
        results = [it.to_json(is_explained=is_explained) for it in found]
        write_tools_json(printer, catalog, "results", results)
    else:
        write_found(printer, found, is_explained=is_explained)
    if not found:
        count = catalog.listing.catalog.size
        warn(f"no match among {count:,} tools; list them with `nacre tools list`")
    return end_status(printer, catalog, is_json=is_json)


def register(app: typer.Typer) -> None:
    group = typer.Typer(help="Find, describe and call the configured tools.")
    group.command("list")(list_command)
    group.command("search")(search_command)
    group.command("describe")(describe_command)
    group.command("call")(call_command)
    app.add_typer(group, name="tools")
