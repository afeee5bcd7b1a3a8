"""`sessions`: what was said, and when."""

import typer

from nacre.cli.sessions.list_command import list_command
from nacre.cli.sessions.show_command import show_command


def sessions_app() -> typer.Typer:
    app = typer.Typer(help="List and read the sessions that are kept.", no_args_is_help=True)
    app.command("list")(list_command)
    app.command("show")(show_command)
    return app
