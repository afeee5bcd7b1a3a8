"""`mcp add`: one more server in the configuration."""

from typing import Annotated

import typer

from nacre.cli.options import ConfigOption
from nacre.cli.output import ExitStatus, UsageProblem, say, warn


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
    from nacre.cli.mcp.config import read_config
    from nacre.cli.mcp.entries import (
        command_entry,
        entry_notes,
        plain_secrets,
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
