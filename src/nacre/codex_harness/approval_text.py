"""Describes approval requests of the app-server for a person, with their risks."""

from __future__ import annotations

import ipaddress
import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from nacre.display import one_line
from nacre.json_types import get_objects

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nacre.json_types import JsonObject, JsonValue

_MAX_TITLE: Final = 80
_MAX_DESCRIPTION: Final = 256
_MAX_PREVIEW: Final = 180
_MAX_PATHS: Final = 3
# Colours, cursor movements and titles of terminals. Their letters would stay visible.
_TERMINAL_CODES: Final = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x9b[0-?]*[ -/]*[@-~]|\x1b[@-_]"
)
_ROOTS: Final = frozenset(("/", "//", "~", "/home", "/root", "/etc", "/usr", "/var"))
_LOCAL_HOSTS: Final = ("localhost", "local", "internal", "lan", "home.arpa")


def describe_request(method: str, shown: JsonObject, *, workspace: PurePosixPath) -> str:
    """A title, then what is asked for, the reason of the model, and the risks."""
    title, details = _describe(method, shown, workspace=workspace)
    risks = list(dict.fromkeys(_find_risks(shown, workspace=workspace)))
    given = shown.get("reason", shown.get("justification"))
    parts = [
        # First: a long text of the model must not push it out of view.
        f"risk: {', '.join(risks)}" if risks else "",
        details,
        f"the model says: {given}" if isinstance(given, str) and given.strip() else "",
    ]
    description = clean_line("; ".join(filter(None, parts)), max_characters=_MAX_DESCRIPTION)
    return f"{clean_line(title, max_characters=_MAX_TITLE)}. {description}".strip().rstrip(".")


def clean_line(text: str, *, max_characters: int) -> str:
    """One line of at most this many characters, without terminal codes and hidden characters."""
    # Cut first, with some reserve: a text may be megabytes long.
    start = _TERMINAL_CODES.sub("", text[: 8 * max_characters])
    line = one_line(start, most_characters=max_characters - 1)
    is_cut = len(text) > 8 * max_characters and not line.endswith("…")
    return f"{line}…" if is_cut else line


def _describe(method: str, shown: JsonObject, *, workspace: PurePosixPath) -> tuple[str, str]:
    match method:
        case "item/commandExecution/requestApproval":
            network = shown.get("networkApprovalContext")
            if isinstance(network, dict):
                host = f"{network.get('protocol')}://{network.get('host')}"
                return "Codex asks for network access", f"{host}, {_preview(shown.get('command'))}"
            if shown.get("kind") == "writeStdin":
                return "Codex asks to write to a running command", _preview(shown.get("command"))
            place = f"in {shown.get('cwd')}: " if shown.get("cwd") else ""
            return "Codex asks to run a command", f"{place}{_preview(shown.get('command'))}"
        case "item/fileChange/requestApproval":
            paths = list(_changed_paths(shown, workspace=workspace))
            more = f" and {len(paths) - _MAX_PATHS} more" if len(paths) > _MAX_PATHS else ""
            return "Codex asks to change files", f"{', '.join(paths[:_MAX_PATHS])}{more}"
        case "item/permissions/requestApproval":
            wanted = list(_list_permissions(shown.get("permissions")))
            return "Codex asks for more permissions", ", ".join(wanted) or "none"
        case _:
            tool, server = shown.get("tool"), shown.get("server")
            return f"Codex asks to call {tool} of the MCP server {server}", ""


def _preview(command: JsonValue) -> str:
    return clean_line(command, max_characters=_MAX_PREVIEW) if isinstance(command, str) else ""


def _changed_paths(shown: JsonObject, *, workspace: PurePosixPath) -> Iterator[str]:
    for change in get_objects(shown, "changes"):
        path, kind = str(change.get("path")), change.get("kind")
        verb = kind.get("type") if isinstance(kind, dict) else kind
        is_inside = _is_inside(path, workspace)
        name = str(PurePosixPath(path).relative_to(workspace)) if is_inside else path
        yield f"{verb} {name}"


def _list_permissions(permissions: JsonValue) -> Iterator[str]:
    if not isinstance(permissions, dict):
        return
    network = permissions.get("network")
    if isinstance(network, dict) and network.get("enabled"):
        yield "network"
    for access, path in _list_paths(permissions.get("fileSystem")):
        yield f"{access} {path}"


def _list_paths(file_system: JsonValue) -> Iterator[tuple[str, str]]:
    """The accesses and the paths that are asked for. Versions of Codex write them in two ways."""
    if not isinstance(file_system, dict):
        return
    seen: set[tuple[str, str]] = set()
    for access in ("write", "read"):
        paths = file_system.get(access)
        if isinstance(paths, list):
            seen.update((access, str(path)) for path in paths)
    for entry in get_objects(file_system, "entries"):
        path = entry.get("path")
        if isinstance(path, dict):
            value = path.get("value")
            special = value.get("kind") if isinstance(value, dict) else None
            text = path.get("path") or path.get("pattern") or f"<{special}>"
            seen.add((str(entry.get("access")), str(text)))
    yield from sorted(seen, reverse=True)


# Risks.


def _find_risks(shown: JsonObject, *, workspace: PurePosixPath) -> Iterator[str]:
    network = shown.get("networkApprovalContext")
    if isinstance(network, dict):
        yield from _host_risks(str(network.get("host")))
    for permissions in (shown.get("permissions"), shown.get("additionalPermissions")):
        if isinstance(permissions, dict):
            asked = permissions.get("network")
            if isinstance(asked, dict) and asked.get("enabled"):
                yield "network access to all hosts"
            for access, path in _list_paths(permissions.get("fileSystem")):
                yield from _path_risks(access, path, workspace=workspace)
    root = shown.get("grantRoot")
    if isinstance(root, str):
        yield f"write access to all of {root} from now on"
    if any(not _is_inside(str(it.get("path")), workspace) for it in get_objects(shown, "changes")):
        yield "files outside of the workspace"


def _host_risks(host: str) -> Iterator[str]:
    name = host.strip("[]").rstrip(".").lower()
    if "*" in name:
        yield "a pattern of hosts"
        return
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        if name.rpartition(".")[2] in _LOCAL_HOSTS or "." not in name:
            yield "a private network"
    else:
        if not address.is_global:
            yield "a private network"


def _path_risks(access: str, path: str, *, workspace: PurePosixPath) -> Iterator[str]:
    if path in _ROOTS or path.rstrip("/*") in _ROOTS | {""} or path == "<root>":
        yield f"{access} access to the file system root or a system directory"
    elif any(mark in path for mark in "*?["):
        yield f"{access} access by a pattern of paths"
    elif access == "write" and not path.startswith("<") and not _is_inside(path, workspace):
        yield "files outside of the workspace"


def _is_inside(path: str, workspace: PurePosixPath) -> bool:
    candidate = PurePosixPath(path)
    is_below = candidate.is_relative_to(workspace) if candidate.is_absolute() else True
    return is_below and ".." not in candidate.parts
