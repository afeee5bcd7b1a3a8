"""`mcp list`: the servers that are configured; none of them is started."""

from typing import TYPE_CHECKING

from nacre.cli.options import ConfigOption, JsonOption, ServersOption
from nacre.cli.output import ExitStatus, Printer, warn

if TYPE_CHECKING:
    from nacre.cli.mcp.sources import ConfiguredServer
    from nacre.json_types import JsonObject


def list_command(
    config: ConfigOption = None, servers: ServersOption = None, is_json: JsonOption = False
) -> int:
    """List the configured servers, without starting any.

    Values of variables and headers are not shown, nor are arguments, which often hold secrets.
    """
    from nacre.cli.mcp.sources import NO_SERVERS, configured_servers
    from nacre.cli.output import write_table

    configured = configured_servers(config, servers or ())
    printer = Printer()
    if is_json:
        document: JsonObject = {"servers": [_server_json(found) for found in configured.servers]}
        printer.write_json(document, is_indented=printer.is_terminal)
    else:
        headings = ("server", "transport", "place", "file", "note")
        write_table(printer, headings, [_server_row(found) for found in configured.servers])
    if not configured.servers:
        warn(NO_SERVERS)
    return printer.problem or ExitStatus.COMPLETED


def _server_row(found: "ConfiguredServer") -> tuple[str, ...]:
    note = found.problem or ("disabled" if found.is_disabled else "")
    if found.server is None:
        return found.name, "", "", str(found.file), note
    return found.name, found.server.transport, found.server.place, str(found.file), note


def _server_json(found: "ConfiguredServer") -> "JsonObject":
    server = found.server
    shown: JsonObject = {
        "name": found.name,
        "file": str(found.file),
        "disabled": found.is_disabled,
        "problem": found.problem,
    }
    if server is not None:
        shown |= {
            "transport": server.transport,
            "place": server.place,
            "env": [*sorted(server.env)],
            "headers": [*sorted(server.headers)],
        }
    return shown
