"""Other MCP clients on this machine, for the commands that read or write for them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from nacre.cli.mcp.config import read_config
from nacre.cli.output import UsageProblem
from nacre.errors import ConfigError
from nacre.mcp_client.client_files import (
    CLIENTS,
    ClientFolders,
    servers_of_client,
    servers_of_file,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nacre.mcp_client.client_files import Client, ClientServers


def here() -> ClientFolders:
    """Where clients of this user, and of the folder the user stands in, keep their files."""
    return ClientFolders(environment=os.environ, project=Path.cwd())


def client_named(name: str) -> Client:
    """The client; raises UsageProblem."""
    for client in CLIENTS:
        if client == name:
            return client
    raise UsageProblem(f"--client is {name!r}; allowed: {', '.join(CLIENTS)}")


def servers_to_import(client: str | None, file: str | None) -> ClientServers:
    """The servers of one client or one file; raises UsageProblem."""
    if (client is None) == (file is None):
        given = "got both a file and --client" if file else "nothing says what to import"
        raise UsageProblem(f"{given}; give a FILE or --client; {_what_is_here()}")
    try:
        if file is not None:
            return servers_of_file(Path(file), project=Path.cwd())
        found = servers_of_client(client_named(client or ""), here())
    except ConfigError as error:
        raise UsageProblem(str(error)) from None
    if not found.files:
        raise UsageProblem(f"{client} has no file with servers here; {_what_is_here()}")
    return found


def serve_arguments(config: str | None, files: Sequence[str]) -> list[str]:
    """What `nacre mcp` is started with so that it finds the same servers from any folder."""
    arguments = [word for file in files for word in ("--servers", str(Path(file).resolve()))]
    path = read_config(config).file.path
    # One that is not there yet is looked for where it would be.
    return ["--config", str(path.resolve()), *arguments] if path.exists() else arguments


def _what_is_here() -> str:
    found: list[str] = []
    for client in CLIENTS:
        try:
            servers = servers_of_client(client, here()).servers
        except ConfigError:
            # Told when it is this one that is asked for.
            continue
        if servers:
            found.append(f"{client} ({', '.join(servers)})")
    return f"servers were found for: {', '.join(found)}" if found else "no client's were found"
