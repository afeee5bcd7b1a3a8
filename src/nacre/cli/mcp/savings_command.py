"""`mcp savings`: the tool definitions that a client holds, before and after."""

from nacre.cli.options import (
    TIMEOUT_SECONDS,
    ConfigOption,
    JsonOption,
    ServersOption,
    TimeoutOption,
)
from nacre.cli.output import ExitStatus


def savings_command(
    config: ConfigOption = None,
    servers: ServersOption = None,
    timeout_seconds: TimeoutOption = TIMEOUT_SECONDS,
    is_json: JsonOption = False,
) -> int:
    """Measure what your client no longer has to hold.

    That is the tool definitions of the servers, against those of `nacre mcp`.

    Starts every server and lists its tools; in bytes of compact JSON, as the protocol carries them.
    Exit status: 0, or 1 if a server is broken and so not counted.
    """
    from nacre.cli.mcp.savings import savings_from
    from nacre.cli.mcp.savings_text import write_savings
    from nacre.cli.mcp.serving import serve_options
    from nacre.cli.mcp.shown_tools import shown_tools
    from nacre.cli.mcp.sources import configured_servers
    from nacre.cli.mcp.survey import ask_servers

    configured = configured_servers(config, servers or ())
    # First, as it tells of wrong settings without starting a server.
    shown = shown_tools(serve_options(configured, tools=()))
    found = ask_servers(configured, timeout_seconds=timeout_seconds)
    if isinstance(found, ExitStatus):
        return found
    return write_savings(savings_from(found, shown), is_json=is_json)
