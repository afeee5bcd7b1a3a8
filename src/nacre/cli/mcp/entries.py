"""Servers' entries for the configuration: made from options, checked, and looked at for secrets."""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING, Final, cast

from nacre.cli.output import UsageProblem
from nacre.config.fields import is_object
from nacre.config.mcp import mcp_servers_from, server_name_from
from nacre.errors import ConfigError
from nacre.telemetry.redaction import is_secret_key

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from nacre.json_types import JsonObject

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
