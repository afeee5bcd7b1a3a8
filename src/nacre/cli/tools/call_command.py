"""`tools call`: one call of one tool, as an agent would make it."""

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

if TYPE_CHECKING:
    from nacre.run_context import AbortSignal
    from nacre.tool_search import ToolSearchResult


def call_command(
    id_or_name: ToolArgument,
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[JSON | KEY=VALUE... | -]",
            help="The input: one JSON object, pairs, or - for JSON from standard input.",
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

    Policy, the check of the input and approvals hold as for an agent. The value of a pair is read
    as JSON where the tool takes a number, a list and the like, else it is the text itself.

    Exit status: 0 completed, 1 failed, 2 bad usage, 130 aborted by Ctrl-C, 143 by SIGTERM.
    """
    from nacre.cli.tools.tool_input import read_tool_input

    given = read_tool_input(arguments or ())

    from nacre.cli.runner import run_abortable
    from nacre.cli.tools.calling import call_tool
    from nacre.cli.tools.configured_tools import configured_tools
    from nacre.cli.tools.outcomes import write_outcome

    configured = configured_tools(
        config=config, server_files=servers or (), tool_modules=tools or (), agent_id=agent
    )

    async def call(abort: "AbortSignal") -> "ToolSearchResult":
        return await call_tool(
            configured, id_or_name, given, timeout_seconds=timeout_seconds, abort=abort
        )

    outcome, stopped = run_abortable(call)
    status = write_outcome(outcome, is_json=is_json)
    return status if stopped is None or status == 0 else stopped
