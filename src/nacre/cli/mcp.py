"""The commands of `nacre mcp`."""

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
from nacre.cli.output import ExitStatus, Printer, UsageProblem, count_text, say, warn

if TYPE_CHECKING:
    from nacre.cli.mcp_servers import ConfiguredServer
    from nacre.json_types import JsonObject


def add_command(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="What to call the server.", show_default=False)
    ],
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[-- COMMAND ARGS...]", help="What starts the server.", show_default=False
        ),
    ] = None,
    url: Annotated[
        str | None, typer.Option(metavar="URL", help="The address of a server that runs already.")
    ] = None,
    headers: Annotated[
        list[str] | None,
        typer.Option("--header", metavar="NAME=VALUE", help="Sent to the URL. Repeatable."),
    ] = None,
    is_sse: Annotated[
        bool, typer.Option("--sse", help="The URL is one of the older HTTP with SSE.")
    ] = False,
    env: Annotated[
        list[str] | None,
        typer.Option("--env", metavar="NAME=VALUE", help="Given to the command. Repeatable."),
    ] = None,
    cwd: Annotated[
        str | None, typer.Option(metavar="DIRECTORY", help="Where the command is started.")
    ] = None,
    config: ConfigOption = None,
) -> int:
    """Add a server to the configuration: a command to start, or a URL.

    Secrets need not be written down: --env 'TOKEN=${GITHUB_TOKEN}' is looked up in the environment
    when the server starts, and ${file:/run/secrets/token} is read then.
    """
    from nacre.cli.mcp_entries import (
        command_entry,
        entry_notes,
        plain_secrets,
        read_config,
        relative_arguments,
        server_name,
        url_entry,
    )

    if (url is None) == (not command):
        raise UsageProblem(
            f"a server is a command or a URL: nacre mcp add {name} -- COMMAND ARGS..., "
            f"or nacre mcp add {name} --url URL"
        )
    if command:
        _refuse_options({"--header": headers, "--sse": is_sse}, "a server that is a command")
        entry = command_entry(command, env=env or (), cwd=cwd)
    else:
        _refuse_options({"--env": env, "--cwd": cwd}, "a server that is a URL")
        entry = url_entry(url or "", headers=headers or (), is_sse=is_sse)
    document = read_config(config, is_made=True)
    if name in document.entries:
        raise UsageProblem(
            f"{document.file.path} has a server {name!r} already; "
            f"remove it with `nacre mcp remove {name}` first"
        )
    for note in entry_notes(server_name(name), entry):
        warn(note)
    document.set_entry(name, entry)
    for secret in plain_secrets(entry):
        warn(
            f"the value of {secret} now stands in {document.file.path}; "
            "to keep it out, write a reference such as ${NAME} in its place"
        )
    for path in relative_arguments(entry):
        warn(
            f"{path} is a path from here, but the server starts where nacre does; write it in "
            "full, or give --cwd"
        )
    say(f"added {name} to {document.file.path}; `nacre mcp status {name}` tries it")
    return ExitStatus.COMPLETED


def _refuse_options(options: dict[str, object], kind: str) -> None:
    for option, given in options.items():
        if given:
            raise UsageProblem(f"{option} has no meaning for {kind}; leave it out")


def config_command(
    client_name: Annotated[
        str, typer.Option("--client", metavar=CLIENT_NAMES, help="Your client.", show_default=False)
    ],
    config: ConfigOption = None,
    servers: ServersOption = None,
) -> int:
    """Print what to paste into your MCP client.

    With it the client starts `nacre mcp`.

    The text goes to standard output, and where it belongs to standard error. It names the
    configuration that this command finds, or the files given with --servers: clients start servers
    in folders of their own.
    """
    from nacre.cli.mcp_entries import client_named, here, serve_arguments
    from nacre.mcp_client.client_files import client_snippet, nacre_command

    client = client_named(client_name)
    command = nacre_command("mcp", *serve_arguments(config, servers or ()))
    snippet = client_snippet(client, here(), command=command)
    printer = Printer()
    printer.write(snippet.text)
    places = " or ".join(map(str, snippet.files))
    say(f"paste it into {places}, beside or instead of the servers there, and restart {client}")
    return printer.problem or ExitStatus.COMPLETED


def import_command(
    file: Annotated[
        str | None,
        typer.Argument(metavar="[FILE]", help="A client's file.", show_default=False),
    ] = None,
    client: Annotated[
        str | None,
        typer.Option("--client", metavar=CLIENT_NAMES, help="The client, wherever its files are."),
    ] = None,
    is_dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be added, and change nothing.")
    ] = False,
    config: ConfigOption = None,
) -> int:
    """Take over the servers of an MCP client.

    Copies them from the client's file into the configuration.

    References such as ${TOKEN} are copied as references. Servers that are there already stay as
    they are. The client's own file is not changed.
    """
    from nacre.cli.mcp_entries import new_entries, read_config, servers_to_import

    found = servers_to_import(client, file)
    document = read_config(config, is_made=True)
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
    """List the configured servers, without starting any.

    Values of variables and headers are not shown, nor are arguments, which often hold secrets.
    """
    from nacre.cli.mcp_servers import NO_SERVERS, configured_servers
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
    if found.server is None:
        return found.name, "", "", str(found.file), note
    return found.name, found.server.transport, found.server.place, str(found.file), note


def _server_json(found: ConfiguredServer) -> JsonObject:
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


def remove_command(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The server.", show_default=False)],
    config: ConfigOption = None,
) -> int:
    """Remove a server from the configuration.

    Comments and all else in the file stay as they are.
    """
    from nacre.cli.mcp_entries import read_config

    document = read_config(config)
    if not document.remove_entry(name):
        names = ", ".join(document.entries) or "none"
        raise UsageProblem(f"{document.file.path} has no server {name!r}; it has: {names}")
    say(f"removed {name} from {document.file.path}")
    return ExitStatus.COMPLETED


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
    from nacre.cli.mcp_serve import serve_options, shown_tools
    from nacre.cli.mcp_servers import ask_servers, configured_servers
    from nacre.cli.mcp_views import savings_from, write_savings

    configured = configured_servers(config, servers or ())
    # First, as it tells of wrong settings without starting a server.
    shown = shown_tools(serve_options(configured, tools=()))
    found = ask_servers(configured, timeout_seconds=timeout_seconds)
    if isinstance(found, ExitStatus):
        return found
    return write_savings(savings_from(found, shown), is_json=is_json)


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
    from nacre.cli.mcp_serve import HttpAddress, serve, serve_options
    from nacre.cli.mcp_servers import NO_SERVERS, configured_servers

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


def status_command(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="One server.", show_default=False)
    ] = None,
    config: ConfigOption = None,
    servers: ServersOption = None,
    timeout_seconds: TimeoutOption = TIMEOUT_SECONDS,
    is_json: JsonOption = False,
) -> int:
    """Start every server, all at once, and say how each one does.

    Exit status: 0 if all work, 1 if one is broken.
    """
    from nacre.cli.mcp_servers import ask_servers, configured_servers
    from nacre.cli.mcp_views import write_status

    found = ask_servers(
        configured_servers(config, servers or ()).only(name),
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
        bool, typer.Option("--schema", help="With what each one takes and gives, as JSON Schema.")
    ] = False,
    timeout_seconds: TimeoutOption = TIMEOUT_SECONDS,
    is_json: JsonOption = False,
) -> int:
    """List the tools of the servers, as programs call them.

    Exit status: 0, or 1 if tools are missing because a server is broken.
    """
    from nacre.cli.mcp_servers import ask_servers, configured_servers
    from nacre.cli.mcp_views import tool_list, write_tool_list

    configured = configured_servers(config, servers or ())
    found = ask_servers(configured.only(name), timeout_seconds=timeout_seconds)
    if isinstance(found, ExitStatus):
        return found
    tools = tool_list(found, server_names=configured.names)
    return write_tool_list(tools, found, has_schemas=has_schemas, is_json=is_json)


def register(app: typer.Typer) -> None:
    group = typer.Typer(help="Serve your MCP servers as one, and manage them.")
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
