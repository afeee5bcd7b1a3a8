"""`mcp serve`: the server that shows a client two tools in front of all its servers."""

import gc
from pathlib import Path
from typing import Annotated, Final

import typer

from nacre.cli.options import ConfigOption, OwnToolsOption, ServersOption
from nacre.cli.output import UsageProblem, warn

# As `nacre.mcp_server.http` has them, which is slow to import.
DEFAULT_HOST: Final = "127.0.0.1"
DEFAULT_PORT: Final = 8931


def serve_command(
    config: ConfigOption = None,
    servers: ServersOption = None,
    tools: OwnToolsOption = None,
    is_http: Annotated[
        bool, typer.Option("--http", help="Serve Streamable HTTP instead of standard input.")
    ] = False,
    host: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help=f"Where to listen. [default: {DEFAULT_HOST}]"),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            metavar="PORT", min=0, max=65535, help=f"0 for any free one. [default: {DEFAULT_PORT}]"
        ),
    ] = None,
    token_file: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="The token that clients have to send."),
    ] = None,
    is_without_token: Annotated[
        bool,
        typer.Option("--no-token", help="Serve whoever asks; on this machine's own address only."),
    ] = False,
) -> int:
    """Serve `exec` and `wait` in front of all your servers.

    On standard input and output, for clients that start it; this is what `nacre mcp` alone does.
    With --http at http://ADDRESS:PORT/mcp, where clients send a token: that of --token-file or
    NACRE_MCP_TOKEN, else one that is made up and printed at the start.
    """
    if not is_http:
        _refuse_http_options(
            {
                "--host": host is not None,
                "--port": port is not None,
                "--token-file": token_file is not None,
                "--no-token": is_without_token,
            }
        )
    if token_file is not None and is_without_token:
        raise UsageProblem("got both --token-file and --no-token; give one of them")
    from nacre.cli.mcp.serving import HttpAddress, serve, serve_options
    from nacre.cli.mcp.sources import NO_SERVERS, configured_servers

    configured = configured_servers(config, servers or ())
    for broken in configured.broken:
        warn(f"the server {broken.name} cannot be used: {broken.problem}")
    if not configured.names and not tools:
        warn(NO_SERVERS)
    options = serve_options(configured, tools=tools or ())
    address = HttpAddress(
        host=DEFAULT_HOST if host is None else host,
        port=DEFAULT_PORT if port is None else port,
        token_file=None if token_file is None else Path(token_file),
        is_token_required=not is_without_token,
    )
    gc.enable()
    return serve(options, address if is_http else None)


def _refuse_http_options(options: dict[str, bool]) -> None:
    for option, is_given in options.items():
        if is_given:
            raise UsageProblem(f"{option} is only for --http; add it, or leave {option} out")
