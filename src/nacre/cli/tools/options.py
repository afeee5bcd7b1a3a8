"""Options that the commands of `nacre tools` share, besides those of `nacre mcp`.

`--tools` is an option of `nacre exec` and `nacre mcp serve` as well.
"""

from typing import Annotated

import typer

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
