"""Entries of MCP servers: in the configuration, from options, and from other clients."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from nacre.cli.output import UsageProblem
from nacre.config import (
    find_config_file,
    is_object,
    mcp_servers_from,
    object_at,
    read_config_file,
    remove_config_member,
    server_name_from,
    set_config_member,
)
from nacre.errors import ConfigError
from nacre.mcp_client.client_files import CLIENTS, ClientFolders, servers_of_client, servers_of_file
from nacre.telemetry import is_secret_key

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from nacre.config import ConfigFile
    from nacre.json_types import JsonObject
    from nacre.mcp_client.client_files import Client, ClientServers


# The second is what other clients have: such a file may be used as it is.
_SECTIONS: Final = (("mcp", "servers"), ("mcpServers",))


@dataclass(frozen=True, kw_only=True, slots=True)
class ConfigDocument:
    """The configuration, and where in it the servers stand, or would."""

    file: ConfigFile
    members: Mapping[str, object]
    section: tuple[str, ...]
    entries: Mapping[str, object]

    @property
    def section_path(self) -> str:
        return ".".join(self.section)

    def set_entry(self, name: str, entry: JsonObject) -> None:
        """Write the server's entry; raises UsageProblem."""
        try:
            set_config_member(self.file.path, (*self.section, name), entry)
        except ConfigError as error:
            raise UsageProblem(str(error)) from None

    def remove_entry(self, name: str) -> bool:
        """Whether there was one; raises UsageProblem."""
        try:
            return remove_config_member(self.file.path, (*self.section, name))
        except ConfigError as error:
            raise UsageProblem(str(error)) from None


def read_config(named: str | None, *, is_made: bool = False) -> ConfigDocument:
    """Find and read the configuration; one that is to be made need not be there.

    Raises UsageProblem.
    """
    file = find_config_file(None if named is None else Path(named), environment=os.environ)
    try:
        is_missing = is_made and not file.path.exists()
        members: Mapping[str, object] = {} if is_missing else read_config_file(file)
        section, entries = _section_of(members, file.path)
    except ConfigError as error:
        raise UsageProblem(str(error)) from None
    return ConfigDocument(file=file, members=members, section=section, entries=entries)


def _section_of(
    members: Mapping[str, object], file: Path
) -> tuple[tuple[str, ...], Mapping[str, object]]:
    found = {section: _at(members, section, file) for section in _SECTIONS}
    used = [section for section, entries in found.items() if entries]
    if len(used) > 1:
        names = " and in ".join(f"`{'.'.join(section)}`" for section in used)
        raise ConfigError(str(file), f"has servers in {names}; keep them in one of the two")
    section = used[0] if used else _SECTIONS[0]
    return section, found[section]


def _at(members: Mapping[str, object], keys: tuple[str, ...], file: Path) -> Mapping[str, object]:
    here = members
    for count, key in enumerate(keys, 1):
        here = object_at(here.get(key), f"{file}: {'.'.join(keys[:count])}")
    return here


_PLACES_OF_SECRETS: Final = ("env", "headers")
# A plain word may be the name of a folder by chance.
_PATH = re.compile(r".*[/\\].*|[^-].*\.\w+", re.DOTALL)
_NAMES: Final = {
    "--env": re.compile(r"[^\s\0]+"),
    # `Authorization: Bearer abc=` has a secret before its first `=`.
    "--header": re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"),
}


def command_entry(command: Sequence[str], *, env: Sequence[str], cwd: str | None) -> JsonObject:
    """A server that is started with this command; raises UsageProblem.

    Nacre may be started elsewhere, so paths that lead somewhere from here are made absolute.
    """
    folder = None if cwd is None else _from_anywhere(cwd)
    entry: JsonObject = {
        "command": _program(command[0], folder or "."),
        "args": list(command[1:]),
    }
    if env:
        entry["env"] = dict(_pairs("--env", env))
    if folder is not None:
        entry["cwd"] = folder
    return entry


def relative_arguments(entry: Mapping[str, object]) -> list[str]:
    """Arguments that name files or folders of the working directory, where no `cwd` holds it."""
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
    """A server at this address; raises UsageProblem."""
    entry: JsonObject = {"type": "sse" if is_sse else "http", "url": url}
    if headers:
        entry["headers"] = dict(_pairs("--header", headers))
    return entry


def server_name(text: str) -> str:
    """The text if it is a server's name; raises UsageProblem."""
    try:
        name = server_name_from(text, path=repr(text))
    except ConfigError as error:
        raise UsageProblem(str(error)) from None
    if name != text:
        raise UsageProblem(f"{text!r} has spaces or colons, which a server's name has not")
    return name


def entry_notes(name: str, entry: Mapping[str, object]) -> list[str]:
    """What a person should know about an entry; raises UsageProblem for one that cannot work.

    One with references may yet: a variable that is not set here may be set where Nacre is started.
    """
    notes: list[str] = []
    try:
        mcp_servers_from({name: entry}, path="", environment=os.environ, warnings=notes)
    except ConfigError as error:
        if "${" not in json.dumps(entry):
            raise UsageProblem(str(error)) from None
        notes.append(str(error))
    return notes


def plain_secrets(entry: Mapping[str, object]) -> list[str]:
    """The names of variables and headers that look like secrets and stand there in plain text."""
    return [
        name
        for place in _PLACES_OF_SECRETS
        if is_object(members := entry.get(place))
        for name, value in members.items()
        if is_secret_key(name) and "${" not in str(value)
    ]


def _program(command: str, folder: str) -> str:
    """A bare name is looked up on the PATH, wherever that is."""
    is_path = os.sep in command or "/" in command
    there = os.path.join(folder, command)
    return _from_anywhere(there) if is_path and _exists(there) else command


def _from_anywhere(path: str) -> str:
    return os.path.abspath(path) if _exists(path) else path


def _exists(path: str) -> bool:
    # References and the user's folder are for whoever reads the entry.
    return "${" not in path and not path.startswith("~") and os.path.exists(path)


def _pairs(option: str, given: Sequence[str]) -> Iterator[tuple[str, str]]:
    for text in given:
        name, mark, value = text.partition("=")
        if not mark or not _NAMES[option].fullmatch(name):
            # What was given is not shown: it may be the secret alone.
            raise UsageProblem(f"a value of {option} has no name; write it as {option} NAME=VALUE")
        yield name, value


def new_entries(
    found: Mapping[str, JsonObject], document: ConfigDocument
) -> tuple[dict[str, JsonObject], list[str]]:
    """The entries to add, by name, and notes: whatever is not added is in one of them."""
    new: dict[str, JsonObject] = {}
    notes: list[str] = []
    for key, entry in found.items():
        try:
            name = server_name_from(key, path=repr(key))
            own = document.entries.get(name, new.get(name))
            if own is not None:
                how = "as it is" if own == entry else "with other settings, which stay"
                notes.append(f"{name} is there already, {how}")
                continue
            notes += entry_notes(name, entry)
        except (ConfigError, UsageProblem) as error:
            notes.append(f"{key!r} is left out: {error}")
            continue
        new[name] = entry
        notes += [
            f"the value of {secret} of {name} is copied as it is; "
            "to keep it out, write a reference such as ${NAME} in its place"
            for secret in plain_secrets(entry)
        ]
    return new, notes


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
