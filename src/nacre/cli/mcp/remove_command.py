"""`mcp remove`: one server less in the configuration."""

from typing import Annotated

import typer

from nacre.cli.options import ConfigOption
from nacre.cli.output import ExitStatus, UsageProblem, say


def remove_command(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The server.", show_default=False)],
    config: ConfigOption = None,
) -> int:
    """Remove a server from the configuration.

    Comments and all else in the file stay as they are.
    """
    from nacre.cli.mcp.config import read_config

    document = read_config(config)
    if not document.remove_entry(name):
        names = ", ".join(document.entries) or "none"
        raise UsageProblem(f"{document.file.path} has no server {name!r}; it has: {names}")
    say(f"removed {name} from {document.file.path}")
    return ExitStatus.COMPLETED
