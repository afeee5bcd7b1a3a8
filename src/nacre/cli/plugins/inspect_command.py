"""`plugins inspect`: all that one plugin is and brings."""

from typing import TYPE_CHECKING, Annotated

import typer

from nacre.cli.options import ConfigOption, JsonOption
from nacre.cli.output import ExitStatus, Printer, UsageProblem
from nacre.cli.plugins.status_text import write_status

if TYPE_CHECKING:
    from nacre.plugins import PluginStatus


def inspect_command(
    plugin_id: Annotated[str, typer.Argument(metavar="ID", help="The plugin's id.")],
    config: ConfigOption = None,
    is_json: JsonOption = False,
) -> int:
    """Show what one plugin brings, or why it is not loaded."""
    from nacre.cli.plugins.loading import load_for_inspection
    from nacre.cli.system_config import read_system_config

    _, system = read_system_config(config)
    names = [server.name for server in system.mcp_servers]
    found, tools = load_for_inspection(system.plugins, reserved_ids=names)
    status = _find_plugin(plugin_id, found)
    printer = Printer()
    write_status(printer, status, [it for it in tools if it.owner == status.id], is_json=is_json)
    failed = status.state == "failed"
    return printer.problem or (ExitStatus.FAILED if failed else ExitStatus.COMPLETED)


def _find_plugin(plugin_id: str, found: "list[PluginStatus]") -> "PluginStatus":
    for status in found:
        if status.id == plugin_id:
            return status
    known = ", ".join(status.id for status in found) or "none"
    raise UsageProblem(f"there is no plugin {plugin_id!r}; there are: {known}")
