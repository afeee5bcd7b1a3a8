"""The options that stand before a command."""

from typing import Annotated

import typer

import nacre
from nacre.cli.output import Printer


def _print_version(is_asked: bool) -> None:
    if is_asked:
        Printer().write(f"nacre {nacre.__version__}\n")
        raise typer.Exit


def global_options(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, help="Print the version and exit.", is_eager=True
        ),
    ] = False,
) -> None:
    """Agents that write programs: code mode, MCP servers, and a gateway."""
