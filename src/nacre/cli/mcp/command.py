"""`mcp`: the commands around MCP servers."""

import typer

from nacre.cli.mcp.add_command import add_command
from nacre.cli.mcp.config_command import config_command
from nacre.cli.mcp.import_command import import_command
from nacre.cli.mcp.list_command import list_command
from nacre.cli.mcp.remove_command import remove_command
from nacre.cli.mcp.savings_command import savings_command
from nacre.cli.mcp.serve_command import serve_command
from nacre.cli.mcp.status_command import status_command
from nacre.cli.mcp.tools_command import tools_command

_HELP_OPTIONS = ("-h", "--help")


def mcp_app() -> typer.Typer:
    app = typer.Typer(help="Serve your MCP servers as one, and manage them.")
    app.command("serve")(serve_command)
    app.command("add")(add_command)
    app.command("list")(list_command)
    app.command("remove")(remove_command)
    app.command("status")(status_command)
    app.command("tools")(tools_command)
    app.command("import")(import_command)
    app.command("config")(config_command)
    app.command("savings")(savings_command)
    return app


def with_mcp_default(arguments: list[str]) -> list[str]:
    """The arguments with `serve` put in where `mcp` stands alone or only before options."""
    match arguments:
        case ["mcp"]:
            return ["mcp", "serve"]
        case ["mcp", first, *_] if first.startswith("-") and first not in _HELP_OPTIONS:
            return ["mcp", "serve", *arguments[1:]]
        case _:
            return arguments
