"""`plugins`: what is loaded, what is not, and why."""

import typer

from nacre.cli.plugins.inspect_command import inspect_command
from nacre.cli.plugins.list_command import list_command
from nacre.cli.plugins.validate_command import validate_command


def plugins_app() -> typer.Typer:
    app = typer.Typer(help="Show the configured plugins, and try one out.", no_args_is_help=True)
    app.command("list")(list_command)
    app.command("inspect")(inspect_command)
    app.command("validate")(validate_command)
    return app
