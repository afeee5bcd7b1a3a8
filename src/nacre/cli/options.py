"""Options and arguments that several commands share.

`--tools` is an option of `nacre exec` and `nacre mcp serve` as well.
"""

from typing import Annotated, Final

import typer

TIMEOUT_SECONDS: Final = 30.0

ConfigOption = Annotated[
    str | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="Nacre's configuration. [default: NACRE_CONFIG, ./nacre.json5, ./nacre.json, "
        "nacre/nacre.json5 in your config directory]",
        show_default=False,
    ),
]

ServersOption = Annotated[
    list[str] | None,
    typer.Option(
        "--servers",
        metavar="FILE",
        help="Take the servers from this file of an MCP client, as it is. Repeatable.",
    ),
]

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]

TimeoutOption = Annotated[
    float,
    typer.Option(
        "--timeout-seconds",
        metavar="SECONDS",
        min=0.1,
        max=600,
        help="How long a server may take to start and list its tools.",
    ),
]

CLIENT_NAMES: Final = "claude|claude-code|cursor|vscode|codex"


ToolArgument = Annotated[
    str,
    typer.Argument(
        metavar="ID",
        help="The tool's id, or its name if one tool alone has it.",
        show_default=False,
    ),
]

OwnToolsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--tools",
        "-t",
        metavar="MODULE:ATTRIBUTE",
        help="Tools of your own: a tool, a typed function, or a list of them. Repeatable.",
    ),
]

ToolsAgentOption = Annotated[
    str | None,
    typer.Option(
        "--agent",
        metavar="ID",
        help="Whose tools and policy. [default: the configured one]",
        show_default=False,
    ),
]


AgentOption = Annotated[
    str | None,
    typer.Option(
        "--agent", metavar="ID", help="Which agent. [default: the configured one]",
        show_default=False,
    ),
]  # fmt: skip

ModelOption = Annotated[
    str | None,
    typer.Option(
        "--model", metavar="PROVIDER/MODEL", help="Instead of the agent's own.", show_default=False
    ),
]

SessionOption = Annotated[
    str | None,
    typer.Option(
        "--session",
        metavar="KEY",
        help="Go on in this session: a name of yours, which begins one, or a session's id.",
        show_default=False,
    ),
]


PathArgument = Annotated[
    str,
    typer.Argument(
        metavar="PATH", help="Such as gateway.port or agents.list[0].model.", show_default=False
    ),
]


RecordArgument = Annotated[
    str,
    typer.Argument(
        metavar="RUN|SESSION",
        help="A run's id, or a session's id or key for all of its runs.",
        show_default=False,
    ),
]
