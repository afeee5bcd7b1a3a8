"""`config`: the commands around the configuration as a whole."""

import typer

from nacre.cli.config.get_command import get_command
from nacre.cli.config.path_command import path_command
from nacre.cli.config.set_command import set_command
from nacre.cli.config.show_command import show_command
from nacre.cli.config.unset_command import unset_command
from nacre.cli.config.validate_command import validate_command


def config_app() -> typer.Typer:
    app = typer.Typer(help="Read, change and check the configuration.")
    app.command("get")(get_command)
    app.command("set")(set_command)
    app.command("unset")(unset_command)
    app.command("validate")(validate_command)
    app.command("show")(show_command)
    app.command("path")(path_command)
    return app
