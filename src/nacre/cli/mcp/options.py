"""Options that several commands of `nacre mcp` take."""

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
