"""`plugins list`: every plugin that the configuration names or that is installed."""

from nacre.cli.options import ConfigOption, JsonOption
from nacre.cli.output import ExitStatus, Printer, warn


def list_command(config: ConfigOption = None, is_json: JsonOption = False) -> int:
    """List the plugins, and say of each that is not loaded why."""
    from nacre.cli.output import write_table
    from nacre.cli.plugins.loading import load_for_inspection
    from nacre.cli.system_config import read_system_config

    _, system = read_system_config(config)
    names = [server.name for server in system.mcp_servers]
    found, _ = load_for_inspection(system.plugins, reserved_ids=names, shows_tracebacks=False)
    printer = Printer()
    if is_json:
        printer.write_json(
            {"plugins": [status.to_json() for status in found]}, is_indented=printer.is_terminal
        )
    else:
        rows = [
            (it.id, it.version, it.state, str(len(it.tool_names)), it.origin, it.problem)
            for it in found
        ]
        headings = ("plugin", "version", "state", "tools", "from", "problem")
        write_table(printer, headings, rows, right=("tools",))
    if not found:
        warn("no plugins; `plugins.paths` in the configuration names folders: docs/plugins.md")
    has_failed = any(status.state == "failed" for status in found)
    return printer.problem or (ExitStatus.FAILED if has_failed else ExitStatus.COMPLETED)
