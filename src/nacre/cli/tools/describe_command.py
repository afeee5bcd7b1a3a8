"""`tools describe`: what one tool does, takes and gives."""

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
from nacre.cli.output import ExitStatus, Printer


def describe_command(
    id_or_name: ToolArgument,
    config: ConfigOption = None,
    servers: ServersOption = None,
    tools: OwnToolsOption = None,
    agent: ToolsAgentOption = None,
    timeout_seconds: TimeoutOption = TIMEOUT_SECONDS,
    is_json: JsonOption = False,
) -> int:
    """Show what a tool does, takes and gives.

    As TypeScript; with --json as JSON Schema, too. Exit status: 0, or 1 if there is no such tool.
    """
    from nacre.cli.tools.configured_tools import configured_tools
    from nacre.cli.tools.description_text import description_json, description_text
    from nacre.cli.tools.named_tool import named_tool, servers_to_ask
    from nacre.cli.tools.open_catalog import read_catalog
    from nacre.cli.tools.outcomes import failure_of, write_outcome
    from nacre.errors import ToolError

    configured = configured_tools(
        config=config, server_files=servers or (), tool_modules=tools or (), agent_id=agent
    )
    names = servers_to_ask(configured, id_or_name)
    catalog = read_catalog(configured, names, timeout_seconds=timeout_seconds)
    if isinstance(catalog, ExitStatus):
        return catalog
    try:
        entry = named_tool(catalog, id_or_name)
    except ToolError as error:
        return write_outcome(failure_of(error), is_json=is_json)
    printer = Printer()
    if is_json:
        document = description_json(catalog, entry)
        printer.write_json(document, is_indented=printer.is_terminal)
    else:
        printer.write(description_text(catalog, entry))
    return printer.problem or ExitStatus.COMPLETED
