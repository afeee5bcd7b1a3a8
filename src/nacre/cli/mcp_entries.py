"""Creates entries of MCP servers from options and from the files of other MCP clients."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from nacre.cli.configured_servers import read_server_entries
from nacre.cli.output import UsageError
from nacre.config import is_object, mcp_servers_from, server_name_from
from nacre.errors import ConfigError
from nacre.mcp_client.client_files import CLIENTS, ClientFolders, servers_of_client, servers_of_file
from nacre.telemetry import is_secret_key

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from nacre.cli.configured_servers import ServerEntries
    from nacre.json_types import JsonObject
    from nacre.mcp_client.client_files import Client, ClientServers


_SECRET_SECTIONS: Final = ("env", "headers")
# Not a plain word, which may be a folder's name by coincidence.
_PATH = re.compile(r".*[/\\].*|[^-].*\.\w+", re.DOTALL)
_VARIABLE = re.compile(r"(?<!\$)\$\{(?:env:)?([A-Za-z_]\w*)\}", re.ASCII)
_FOLDER_REFERENCES: Final = (
    "userHome",
    "workspaceFolder",
    "workspaceFolderBasename",
    "pathSeparator",
)
_NAMES: Final = {
    "--env": re.compile(r"[^\s\0]+"),
    # A value such as `Authorization: Bearer abc=` has the secret before its first `=`.
    "--header": re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"),
}


def command_entry(command: Sequence[str], *, env: Sequence[str], cwd: str | None) -> JsonObject:
    """The entry of a server that this command starts. Raises UsageError.

    Makes paths that exist absolute, because Nacre may be started in another folder.
    """
    folder = None if cwd is None else _make_absolute(cwd)
    entry: JsonObject = {
        "command": _resolve_program(command[0], folder or "."),
        "args": list(command[1:]),
    }
    if env:
        entry["env"] = dict(_parse_pairs("--env", env))
    if folder is not None:
        entry["cwd"] = folder
    return entry


def relative_arguments(entry: Mapping[str, object]) -> list[str]:
    """Arguments that are paths relative to the working directory, if the entry has no `cwd`."""
    args = entry.get("args")
    if "cwd" in entry or not isinstance(args, list):
        return []
    texts = [text for text in cast("list[object]", args) if isinstance(text, str)]
    return [
        text
        for text in texts
        if _PATH.fullmatch(text) and not os.path.isabs(text) and _exists(text)
    ]


def url_entry(url: str, *, headers: Sequence[str], is_sse: bool) -> JsonObject:
    """The entry of a server at this URL. Raises UsageError."""
    entry: JsonObject = {"type": "sse" if is_sse else "http", "url": url}
    if headers:
        entry["headers"] = dict(_parse_pairs("--header", headers))
    return entry


def check_server_name(text: str) -> str:
    """Return the text if it is a valid server name. Raises UsageError."""
    try:
        name = server_name_from(text, path=repr(text))
    except ConfigError as error:
        raise UsageError(str(error)) from None
    if name != text:
        raise UsageError(f"{text!r} has spaces or colons; a server's name must not")
    return name


def entry_notes(name: str, entry: Mapping[str, object]) -> list[str]:
    """Notes on an entry for the user. Raises UsageError for an entry that cannot work.

    An entry with references may work later: its variables may be set where Nacre is started.
    """
    notes: list[str] = []
    try:
        mcp_servers_from({name: entry}, path="", environment=os.environ, warnings=notes)
    except ConfigError as error:
        if "${" not in json.dumps(entry):
            raise UsageError(str(error)) from None
        notes.append(str(error))
    return notes


def plain_secrets(entry: Mapping[str, object]) -> list[str]:
    """The names of variables and headers whose values look like secrets in plain text."""
    return [
        name
        for section in _SECRET_SECTIONS
        if is_object(members := entry.get(section))
        for name, value in members.items()
        if is_secret_key(name) and "${" not in str(value)
    ]


def _resolve_program(command: str, folder: str) -> str:
    """Make the path of a program absolute; a plain name is left to the PATH."""
    is_path = os.sep in command or "/" in command
    path = os.path.join(folder, command)
    return _make_absolute(path) if is_path and _exists(path) else command


def _make_absolute(path: str) -> str:
    return os.path.abspath(path) if _exists(path) else path


def _exists(path: str) -> bool:
    # References and `~` are expanded later, when the entry is read.
    return "${" not in path and not path.startswith("~") and os.path.exists(path)


def _parse_pairs(option: str, given: Sequence[str]) -> Iterator[tuple[str, str]]:
    for text in given:
        name, mark, value = text.partition("=")
        if not mark or not _NAMES[option].fullmatch(name):
            # The value is not shown, because it may be the secret alone.
            raise UsageError(f"a value of {option} has no name; write {option} NAME=VALUE")
        yield name, value


def new_entries(
    found: Mapping[str, JsonObject], document: ServerEntries
) -> tuple[dict[str, JsonObject], list[str]]:
    """The entries to add, by name, and notes. Each entry that is not added has a note."""
    new: dict[str, JsonObject] = {}
    notes: list[str] = []
    for key, entry in found.items():
        try:
            name = server_name_from(key, path=repr(key))
            own = document.entries.get(name, new.get(name))
            if own is not None:
                how = "the same" if own == entry else "with other settings, which are kept"
                notes.append(f"{name} is already configured, {how}")
                continue
            notes += entry_notes(name, entry)
        except (ConfigError, UsageError) as error:
            notes.append(f"{key!r} is left out: {error}")
            continue
        new[name] = entry
        notes += [
            f"the value of {secret} of {name} is copied in plain text; "
            "replace it with a reference such as ${NAME} to keep it out of the file"
            for secret in plain_secrets(entry)
        ]
    return new, notes


def client_folders() -> ClientFolders:
    """The folders of clients' files, for this user and the working directory."""
    return ClientFolders(environment=os.environ, project=Path.cwd())


def parse_client(name: str) -> Client:
    """The client with this name. Raises UsageError."""
    for client in CLIENTS:
        if client == name:
            return client
    raise UsageError(f"--client is {name!r}; allowed: {', '.join(CLIENTS)}")


def servers_to_import(client: str | None, file: str | None) -> ClientServers:
    """The servers of one client or one file. Raises UsageError."""
    if (client is None) == (file is None):
        given = "got both a file and --client" if file else "got neither a file nor --client"
        raise UsageError(f"{given}; give one of them; {_found_clients_text()}")
    try:
        if file is not None:
            return servers_of_file(Path(file), project=Path.cwd())
        found = servers_of_client(parse_client(client or ""), client_folders())
    except ConfigError as error:
        raise UsageError(str(error)) from None
    if not found.files:
        raise UsageError(f"found no file with servers of {client}; {_found_clients_text()}")
    return found


def serve_arguments(config: str | None, files: Sequence[str]) -> list[str]:
    """The arguments with which `nacre mcp` finds the same servers from any folder."""
    arguments = [word for file in files for word in ("--servers", str(Path(file).resolve()))]
    path = read_server_entries(config).file.path
    # Without `--config`, a file that is created later is found as well.
    return ["--config", str(path.resolve()), *arguments] if path.exists() else arguments


def needed_variables(config: str | None, files: Sequence[str]) -> list[str]:
    """The environment variables that entries of servers name without a default."""
    sources = [_read_servers(file) for file in files] or [read_server_entries(config).entries]
    used = [entry for entries in sources for entry in entries.values() if not _is_disabled(entry)]
    names = _VARIABLE.findall(json.dumps(used, default=str))
    return sorted({name for name in names if name not in _FOLDER_REFERENCES})


def _read_servers(file: str) -> Mapping[str, object]:
    try:
        return servers_of_file(Path(file), project=Path.cwd()).servers
    except ConfigError:
        # Reported when the servers are used.
        return {}


def _is_disabled(entry: object) -> bool:
    if not is_object(entry):
        return True
    return entry.get("disabled") is True or entry.get("enabled") is False


def _found_clients_text() -> str:
    found: list[str] = []
    for client in CLIENTS:
        try:
            servers = servers_of_client(client, client_folders()).servers
        except ConfigError:
            # Reported if the user names this client.
            continue
        if servers:
            found.append(f"{client} ({', '.join(servers)})")
    return f"clients with servers: {', '.join(found)}" if found else "found no client with servers"
