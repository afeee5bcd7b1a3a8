"""`tools`: the commands around the configured tools."""

import typer

from nacre.cli.tools.call_command import call_command
from nacre.cli.tools.describe_command import describe_command
from nacre.cli.tools.list_command import list_command
from nacre.cli.tools.search_command import search_command


def tools_app() -> typer.Typer:
    app = typer.Typer(help="Find, read and call the tools of your configuration.")
    app.command("list")(list_command)
    app.command("search")(search_command)
    app.command("describe")(describe_command)
    app.command("call")(call_command)
    return app
