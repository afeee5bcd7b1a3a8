"""The commands of a group, as the application registers them."""

import typer

from nacre.cli.app import COMMANDS, register_group


def command_names(group: str) -> set[str | None]:
    [module] = [command.module for command in COMMANDS if command.name == group]
    app = typer.Typer()
    register_group(app, module)
    [registered] = app.registered_groups
    assert registered.typer_instance is not None
    return {command.name for command in registered.typer_instance.registered_commands}
