"""`trajectory`: what runs did, step by step."""

import typer

from nacre.cli.trajectory.export_command import export_command
from nacre.cli.trajectory.show_command import show_command


def trajectory_app() -> typer.Typer:
    app = typer.Typer(help="Show and export what runs did.", no_args_is_help=True)
    app.command("show")(show_command)
    app.command("export")(export_command)
    return app
