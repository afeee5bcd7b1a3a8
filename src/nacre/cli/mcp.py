"""Commands `nacre mcp`: serve MCP servers in code mode, and manage their configuration."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from nacre.cli.options import (
    CLIENT_NAMES,
    TIMEOUT_SECONDS,
    ConfigOption,
    JsonOption,
    OwnToolsOption,
    ServersOption,
    TimeoutOption,
)
from nacre.cli.output import ExitStatus, Printer, UsageError, count_text, say, warn

if TYPE_CHECKING:
    from nacre.cli.configured_servers import ConfiguredServer
    from nacre.json_types import JsonObject


def add_command(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The server's name.", show_default=False)
    ],
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[-- COMMAND ARGS...]", help="The command that starts it.", show_default=False
        ),
    ] = None,
    url: Annotated[
        str | None, typer.Option(metavar="URL", help="The URL of a running server.")
    ] = None,
    headers: Annotated[
        list[str] | None,
        typer.Option("--header", metavar="NAME=VALUE", help="A header to send. Repeatable."),
    ] = None,
    is_sse: Annotated[
        bool, typer.Option("--sse", help="The URL uses the older HTTP+SSE transport.")
    ] = False,
    env: Annotated[
        list[str] | None,
        typer.Option("--env", metavar="NAME=VALUE", help="A variable for the command. Repeatable."),
    ] = None,
    cwd: Annotated[
        str | None, typer.Option(metavar="DIRECTORY", help="The command's working directory.")
    ] = None,
    config: ConfigOption = None,
) -> int:
    """Add a server to the configuration: a command or a URL.

    You can keep secrets out of the file: --env 'TOKEN=${GITHUB_TOKEN}' takes the value from the
    environment when the server starts, and ${file:/run/secrets/token} reads it from a file.
    """
    from nacre.cli.mcp_entries import (
        check_server_name,
        command_entry,
        entry_notes,
        plain_secrets,
        read_server_entries,
        relative_arguments,
        url_entry,
    )

    if (url is None) == (not command):
        raise UsageError(
            f"give a command or a URL: nacre mcp add {name} -- COMMAND ARGS..., "
            f"or nacre mcp add {name} --url URL"
        )
    if command:
        _refuse_options({"--header": headers, "--sse": is_sse}, "a command")
        entry = command_entry(command, env=env or (), cwd=cwd)
    else:
        _refuse_options({"--env": env, "--cwd": cwd}, "a URL")
        entry = url_entry(url or "", headers=headers or (), is_sse=is_sse)
    document = read_server_entries(config, may_be_missing=True)
    if name in document.entries:
        raise UsageError(
            f"{document.file.path} already has a server {name!r}; "
            f"remove it first with `nacre mcp remove {name}`"
        )
    for note in entry_notes(check_server_name(name), entry):
        warn(note)
    document.set_entry(name, entry)
    for secret in plain_secrets(entry):
        warn(
            f"the value of {secret} is now in {document.file.path} in plain text; "
            "replace it with a reference such as ${NAME} to keep it out of the file"
        )
    for path in relative_arguments(entry):
        warn(
            f"{path} is relative to this directory, but the server starts in Nacre's directory; "
            "write the full path or give --cwd"
        )
    say(f"added {name} to {document.file.path}; try it with `nacre mcp status {name}`")
    return ExitStatus.COMPLETED


def _refuse_options(options: dict[str, object], kind: str) -> None:
    for option, given in options.items():
        if given:
            raise UsageError(f"{option} does not apply to {kind}; leave it out")


def config_command(
    client_name: Annotated[
        str,
        typer.Option("--client", metavar=CLIENT_NAMES, help="Your MCP client.", show_default=False),
    ],
    config: ConfigOption = None,
    servers: ServersOption = None,
) -> int:
    """Print the configuration for your MCP client.

    It makes the client start `nacre mcp`. The snippet goes to standard output, and the path of the
    file to paste it into goes to standard error.

    The snippet names the configuration that this command found, or the files of --servers, because
    clients start servers in other directories.
    """
    from nacre.cli.mcp_entries import (
        client_folders,
        needed_variables,
        parse_client,
        serve_arguments,
    )
    from nacre.mcp_client.client_files import client_snippet, nacre_command

    client = parse_client(client_name)
    command = nacre_command("mcp", *serve_arguments(config, servers or ()))
    variables = needed_variables(config, servers or ())
    snippet = client_snippet(client, client_folders(), command=command, variables=variables)
    printer = Printer()
    printer.write(snippet.text)
    files = " or ".join(map(str, snippet.files))
    say(f"paste it into {files}, add it to the servers there or replace them, and restart {client}")
    if variables:
        key = "env_vars" if client == "codex" else "env"
        say(
            f"your servers need {', '.join(variables)}; the client has to pass them on, see `{key}`"
        )
    return printer.problem or ExitStatus.COMPLETED


def import_command(
    file: Annotated[
        str | None,
        typer.Argument(metavar="[FILE]", help="A file of an MCP client.", show_default=False),
    ] = None,
    client: Annotated[
        str | None,
        typer.Option("--client", metavar=CLIENT_NAMES, help="An MCP client; finds its files."),
    ] = None,
    is_dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would be added, and change nothing.")
    ] = False,
    config: ConfigOption = None,
) -> int:
    """Copy the servers of an MCP client into the configuration.

    References such as ${TOKEN} stay references. Servers that are already configured keep their
    settings. The client's own file does not change.
    """
    from nacre.cli.mcp_entries import new_entries, read_server_entries, servers_to_import

    found = servers_to_import(client, file)
    document = read_server_entries(config, may_be_missing=True)
    new, notes = new_entries(found.servers, document)
    for note in (*found.notes, *notes):
        warn(note)
    printer = Printer()
    for name, entry in new.items():
        if not is_dry_run:
            document.set_entry(name, entry)
        printer.write(f"{name}\n")
    what = "would be added" if is_dry_run else "added"
    say(f"{len(new)} of {count_text(len(found.servers), 'server')} {what} to {document.file.path}")
    return printer.problem or ExitStatus.COMPLETED


def list_command(
    config: ConfigOption = None, servers: ServersOption = None, is_json: JsonOption = False
) -> int:
    """List the configured servers without starting them.

    Does not show arguments or the values of variables and headers, which often hold secrets.
    """
    from nacre.cli.configured_servers import NO_SERVERS, configured_servers
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


def _server_row(found: ConfiguredServer) -> tuple[str, ...]:
    note = found.problem or ("disabled" if found.is_disabled else "")
    if found.problem:
        return found.name, "", "", str(found.file), note
    place = found.server.package or found.server.place
    return found.name, found.server.transport, place, str(found.file), note


def _server_json(found: ConfiguredServer) -> JsonObject:
    server = found.server
    shown: JsonObject = {
        "name": found.name,
        "file": str(found.file),
        "disabled": found.is_disabled,
        "problem": found.problem,
    }
    if not found.problem:
        shown |= {
            "transport": server.transport,
            "place": server.place,
            "package": server.package,
            "env": [*sorted(server.env)],
            "headers": [*sorted(server.headers)],
        }
    return shown


def remove_command(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The server.", show_default=False)],
    config: ConfigOption = None,
) -> int:
    """Remove a server from the configuration file.

    Comments and other settings stay as they are.
    """
    from nacre.cli.configured_servers import read_server_entries

    document = read_server_entries(config)
    if not document.remove_entry(name):
        names = ", ".join(document.entries) or "none"
        raise UsageError(f"{document.file.path} has no server {name!r}; it has: {names}")
    say(f"removed {name} from {document.file.path}")
    return ExitStatus.COMPLETED


def savings_command(
    config: ConfigOption = None,
    servers: ServersOption = None,
    timeout_seconds: TimeoutOption = TIMEOUT_SECONDS,
    is_json: JsonOption = False,
) -> int:
    """Measure how many bytes of tool definitions your client saves.

    Compares the definitions of all servers with those of `nacre mcp`, as compact JSON. Starts every
    server to list its tools. Exit status: 0, or 1 if a server is broken and not counted.
    """
    from nacre.cli.configured_servers import configured_servers, survey_servers
    from nacre.cli.mcp_serve import list_shown_tools, serve_options
    from nacre.cli.mcp_views import savings_from, write_savings

    configured = configured_servers(config, servers or ())
    # Before the servers start: this checks the settings.
    shown = list_shown_tools(serve_options(configured, tools=()))
    found = survey_servers(configured, timeout_seconds=timeout_seconds)
    if isinstance(found, ExitStatus):
        return found
    return write_savings(savings_from(found, shown), is_json=is_json)


# The defaults of `nacre.mcp_server.http`, which is slow to import.
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
            metavar="PORT",
            min=0,
            max=65535,
            help=f"The port; 0 picks a free one. [default: {DEFAULT_PORT}]",
        ),
    ] = None,
    token_file: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="A file with the token that clients must send."),
    ] = None,
    is_without_token: Annotated[
        bool,
        typer.Option("--no-token", help="Require no token; only on a loopback address."),
    ] = False,
) -> int:
    """Serve all your MCP servers as two tools, `exec` and `wait`.

    Uses standard input and output, for clients that start the server. `nacre mcp` without a command
    does the same. With --http it listens at http://ADDRESS:PORT/mcp, and clients must send a token:
    from --token-file, from NACRE_MCP_TOKEN, or a generated one that is printed at the start.
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
        raise UsageError("got both --token-file and --no-token; give one of them")
    from nacre.cli.configured_servers import NO_SERVERS, configured_servers
    from nacre.cli.mcp_serve import HttpAddress, serve, serve_options

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
            raise UsageError(f"{option} needs --http; add --http or leave {option} out")


def status_command(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="One server.", show_default=False)
    ] = None,
    config: ConfigOption = None,
    servers: ServersOption = None,
    timeout_seconds: TimeoutOption = TIMEOUT_SECONDS,
    is_json: JsonOption = False,
) -> int:
    """Start all servers and print the state of each.

    Exit status: 0 if all servers work, 1 if one is broken.
    """
    from nacre.cli.configured_servers import configured_servers, survey_servers
    from nacre.cli.mcp_views import write_status

    found = survey_servers(
        configured_servers(config, servers or ()).select(name),
        timeout_seconds=timeout_seconds,
    )
    return found if isinstance(found, ExitStatus) else write_status(found, is_json=is_json)


def tools_command(
    name: Annotated[
        str | None, typer.Argument(metavar="SERVER", help="One server.", show_default=False)
    ] = None,
    config: ConfigOption = None,
    servers: ServersOption = None,
    has_schemas: Annotated[
        bool, typer.Option("--schema", help="Include the JSON Schemas of input and output.")
    ] = False,
    timeout_seconds: TimeoutOption = TIMEOUT_SECONDS,
    is_json: JsonOption = False,
) -> int:
    """List the tools of the servers by the names that programs use.

    Exit status: 0, or 1 if tools are missing because a server is broken.
    """
    from nacre.cli.configured_servers import configured_servers, survey_servers
    from nacre.cli.mcp_views import list_tools, write_tool_list

    configured = configured_servers(config, servers or ())
    found = survey_servers(configured.select(name), timeout_seconds=timeout_seconds)
    if isinstance(found, ExitStatus):
        return found
    tools = list_tools(found, server_names=configured.names)
    return write_tool_list(tools, found, has_schemas=has_schemas, is_json=is_json)


def register(app: typer.Typer) -> None:
    group = typer.Typer(help="Serve your MCP servers in code mode, and manage them.")
    group.command("serve")(serve_command)
    group.command("add")(add_command)
    group.command("list")(list_command)
    group.command("remove")(remove_command)
    group.command("status")(status_command)
    group.command("tools")(tools_command)
    group.command("import")(import_command)
    group.command("config")(config_command)
    group.command("savings")(savings_command)
    app.add_typer(group, name="mcp")
