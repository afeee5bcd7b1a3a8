"""Options and arguments of several commands."""

from typing import Annotated, Final

import typer

TIMEOUT_SECONDS: Final = 30.0

ConfigOption = Annotated[
    str | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="Nacre's configuration file. [default: NACRE_CONFIG, ./nacre.json5, ./nacre.json, "
        "nacre/nacre.json5 in your config directory]",
        show_default=False,
    ),
]

ServersOption = Annotated[
    list[str] | None,
    typer.Option(
        "--servers",
        metavar="FILE",
        help="Read the MCP servers from this file of an MCP client instead. Repeatable.",
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
        help="The time limit for a server to start and list its tools.",
    ),
]

CLIENT_NAMES: Final = "claude|claude-code|cursor|vscode|codex"


ToolArgument = Annotated[
    str,
    typer.Argument(
        metavar="ID",
        help="The tool's id, or its name if it is unique.",
        show_default=False,
    ),
]

OwnToolsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--tools",
        "-t",
        metavar="MODULE:ATTRIBUTE",
        help="Your own tools: a tool, a typed function, or a list of them. Repeatable.",
    ),
]

ToolsAgentOption = Annotated[
    str | None,
    typer.Option(
        "--agent",
        metavar="ID",
        help="The agent whose tools and policy apply. [default: the configured one]",
        show_default=False,
    ),
]


AgentOption = Annotated[
    str | None,
    typer.Option(
        "--agent", metavar="ID", help="The agent. [default: the configured one]",
        show_default=False,
    ),
]  # fmt: skip

ModelOption = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="PROVIDER/MODEL",
        help="The model to use instead of the agent's.",
        show_default=False,
    ),
]

SessionOption = Annotated[
    str | None,
    typer.Option(
        "--session",
        metavar="KEY",
        help="The session to continue: its id, or a key of your own, which starts a new session.",
        show_default=False,
    ),
]


PathArgument = Annotated[
    str,
    typer.Argument(
        metavar="PATH",
        help="A path such as gateway.port or agents.list[0].model.",
        show_default=False,
    ),
]


RecordArgument = Annotated[
    str,
    typer.Argument(
        metavar="RUN|SESSION",
        help="The id of a run, or the id or key of a session, for all its runs.",
        show_default=False,
    ),
]
