"""Configuration files of other MCP clients: imports their servers, and entries for `nacre mcp`.

References such as `${TOKEN}` are not resolved.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, assert_never, cast, get_args

from nacre.config import (
    Fields,
    home_folder,
    is_object,
    object_at,
    parse_json5,
    reject_value,
    servers_in,
    starts_nacre,
)
from nacre.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from nacre.json_types import JsonObject, JsonValue


_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)
_VARIABLE = re.compile(r"[A-Za-z_]\w*", re.ASCII)

_SECONDS: Final = {"startup_timeout_sec": "startupSeconds", "tool_timeout_sec": "timeoutSeconds"}
_TOOL_NAMES: Final = {"enabled_tools": "allow", "disabled_tools": "deny"}
_MAX_SECONDS: Final = 86_400
_TEXTS: Final = ("command", "cwd", "url")
_IMPORTED: Final = (
    *_SECONDS,
    *_TOOL_NAMES,
    *_TEXTS,
    "args",
    "env",
    "env_vars",
    "http_headers",
    "env_http_headers",
    "bearer_token_env_var",
    "startup_timeout_ms",
    "enabled",
    # The key of the table is the name.
    "name",
)


def entry_from_codex(value: object, path: str, notes: list[str]) -> JsonObject:
    """Convert a server of Codex. Forwarded variables become references. Raises ConfigError."""
    fields = Fields(value, path)
    entry: JsonObject = {key: _literal(fields.text(key)) for key in _TEXTS if fields.has(key)}
    if fields.has("args"):
        entry["args"] = [_literal(text) for text in fields.texts("args") or ()]
    if env := _environment(fields, notes):
        entry["env"] = env
    if headers := _headers(fields):
        entry["headers"] = headers
    for key, ours in _TOOL_NAMES.items():
        if (names := fields.texts(key)) is not None:
            entry[ours] = [*names]
    entry.update(_times(fields))
    if fields.switch("enabled") is False:
        entry["disabled"] = True
    notes += [f"{fields.path_of(key)} is not imported" for key in fields.others(_IMPORTED)]
    return entry


def _environment(fields: Fields, notes: list[str]) -> dict[str, JsonValue]:
    env: dict[str, JsonValue] = {}
    listed = fields.get("env_vars")
    for index, item in enumerate(cast("list[object]", listed if isinstance(listed, list) else [])):
        if isinstance(item, str):
            # Codex ignores a variable that is not set.
            env[item] = f"${{{item}:-}}" if _VARIABLE.fullmatch(item) else f"${{env:{item}:-}}"
        else:
            notes.append(f"{fields.path_of('env_vars')}[{index}] is not imported")
    for name, text in fields.text_map("env").items():
        env[name] = _literal(text)
    return env


def _headers(fields: Fields) -> dict[str, JsonValue]:
    headers: dict[str, JsonValue] = {
        name: _literal(text) for name, text in fields.text_map("http_headers").items()
    }
    for name, variable in fields.text_map("env_http_headers").items():
        headers[name] = _reference(variable)
    if fields.has("bearer_token_env_var"):
        headers["Authorization"] = f"Bearer {_reference(fields.text('bearer_token_env_var'))}"
    return headers


def _times(fields: Fields) -> dict[str, JsonValue]:
    times: dict[str, JsonValue] = {}
    if fields.has("startup_timeout_ms"):
        ms = fields.number("startup_timeout_ms", default=0, least=100, most=_MAX_SECONDS * 1000)
        times["startupSeconds"] = ms / 1000
    for key, ours in _SECONDS.items():
        if fields.has(key):
            times[ours] = fields.number(key, default=0, least=0.1, most=_MAX_SECONDS)
    return times


def _reference(variable: str) -> str:
    return f"${{{variable}}}" if _VARIABLE.fullmatch(variable) else f"${{env:{variable}}}"


def _literal(text: str) -> str:
    """Escape text that looks like a reference, because Codex has no references."""
    return text.replace("${", "$${")


Client = Literal["claude", "claude-code", "cursor", "vscode", "codex"]
CLIENTS: Final[tuple[Client, ...]] = get_args(Client)


@dataclass(frozen=True, kw_only=True, slots=True)
class ClientServers:
    """The servers of a client: config entries by name."""

    servers: Mapping[str, JsonObject]
    notes: tuple[str, ...]
    """What was not imported, and why."""
    files: tuple[Path, ...]
    """The files that were found."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ClientFolders:
    """The folders that are searched for files of clients."""

    environment: Mapping[str, str]
    project: Path
    platform: str = sys.platform

    @property
    def home(self) -> Path:
        return home_folder(self.environment)

    def application(self, name: str) -> Path:
        """Return the settings folder of a desktop application."""
        match self.platform:
            case "darwin":
                return self.home / "Library" / "Application Support" / name
            case "win32":
                roaming = self.environment.get("APPDATA")
                return (Path(roaming) if roaming else self.home / "AppData" / "Roaming") / name
            case _:
                config = self.environment.get("XDG_CONFIG_HOME")
                return (Path(config) if config else self.home / ".config") / name


def client_files(client: Client, folders: ClientFolders) -> list[Path]:
    """Return the paths that the client reads, whether they exist or not. The first one wins."""
    # If the project is the home directory, both can have the same file.
    return list(dict.fromkeys(_project_and_user_files(client, folders)))


def _project_and_user_files(client: Client, folders: ClientFolders) -> list[Path]:
    home, project = folders.home, folders.project
    match client:
        case "claude":
            return [folders.application("Claude") / "claude_desktop_config.json"]
        case "claude-code":
            return [project / ".mcp.json", home / ".claude.json"]
        case "cursor":
            return [project / ".cursor" / "mcp.json", home / ".cursor" / "mcp.json"]
        case "vscode":
            user = folders.application("Code") / "User"
            return [project / ".vscode" / "mcp.json", user / "mcp.json", user / "settings.json"]
        case "codex":
            own = folders.environment.get("CODEX_HOME")
            user = Path(own) if own else home / ".codex"
            return [project / ".codex" / "config.toml", user / "config.toml"]
        case _:
            assert_never(client)


def servers_of_client(client: Client, folders: ClientFolders) -> ClientServers:
    """Read all servers of a client. Raises ConfigError if a file cannot be read."""
    files = [file for file in client_files(client, folders) if file.is_file()]
    return _gather_servers(files, folders.project)


def servers_of_file(file: Path, *, project: Path | None = None) -> ClientServers:
    """Read the servers of a file of any client. Raises ConfigError if it has none.

    `project` selects the servers that Claude Code stores for one folder.
    """
    found = _gather_servers([file], project)
    if not found.servers and not found.notes:
        raise ConfigError(str(file), "has no MCP servers")
    return found


def _gather_servers(files: Sequence[Path], project: Path | None) -> ClientServers:
    servers: dict[str, JsonObject] = {}
    notes: list[str] = []
    for file in files:
        for name, entry in _entries(file, project, notes):
            if starts_nacre(entry):
                notes.append(f"{file}: {name} is left out: it starts `nacre mcp` itself")
            elif servers.setdefault(name, entry) != entry:
                notes.append(f"{file}: {name} is left out: the name is already used")
    return ClientServers(servers=servers, notes=tuple(notes), files=tuple(files))


def _entries(
    file: Path, project: Path | None, notes: list[str]
) -> Iterator[tuple[str, JsonObject]]:
    for name, value in _raw_entries(file, project):
        try:
            if file.suffix == ".toml":
                entry = entry_from_codex(value, f"{file}: mcp_servers.{name}", notes)
            else:
                entry = _as_entry(value, f"{file}: {name}")
        except ConfigError as error:
            # Only this server is left out.
            notes.append(f"{error}; it is left out")
        else:
            yield name, entry


def _raw_entries(file: Path, project: Path | None) -> Iterator[tuple[str, object]]:
    text = _read_text(file)
    if file.suffix == ".toml":
        yield from _codex_servers(text, file).items()
        return
    document = parse_json5(text, path=str(file)) if text.strip() else None
    for servers in (_servers_of_project(document, project), servers_in(document, path=str(file))):
        yield from (servers or {}).items()


def _servers_of_project(document: object, project: Path | None) -> Mapping[str, object] | None:
    """Return the servers that Claude Code stores for one folder in the user's file."""
    here: object = document
    for key in ("projects", str(project), "mcpServers"):
        here = here.get(key) if is_object(here) else None
    return here if is_object(here) else None


def _codex_servers(text: str, file: Path) -> Mapping[str, object]:
    import tomllib

    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(str(file), f"is not TOML: {error}") from None
    except RecursionError:
        raise ConfigError(str(file), "is nested too deep to be a configuration") from None
    return object_at(document.get("mcp_servers"), f"{file}: mcp_servers")


def _as_entry(value: object, path: str) -> JsonObject:
    # The parser returns JSON values.
    if not isinstance(value, dict):
        raise reject_value(path, value, "an object")
    return cast("JsonObject", value)


def _read_text(file: Path) -> str:
    try:
        return file.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise ConfigError(str(file), f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError:
        raise ConfigError(str(file), "is not UTF-8 text") from None


@dataclass(frozen=True, kw_only=True, slots=True)
class ClientSnippet:
    """An entry for `nacre mcp` in the file of a client."""

    text: str
    language: Literal["json", "toml"]
    files: tuple[Path, ...]
    """The files that the client reads: of the project first, if there is one, then the user's."""


def client_snippet(
    client: Client,
    folders: ClientFolders,
    *,
    command: Sequence[str],
    name: str = "nacre",
    variables: Sequence[str] = (),
) -> ClientSnippet:
    """Return the entry that makes a client start `command` as its server `name`.

    Clients start servers with few environment variables. The client has to pass on `variables`.
    """
    return ClientSnippet(
        text=_snippet_text(client, name, command, variables),
        language="toml" if client == "codex" else "json",
        # Only older versions of VS Code have servers in `settings.json`.
        files=tuple(file for file in client_files(client, folders) if file.name != "settings.json"),
    )


def nacre_command(*arguments: str) -> list[str]:
    """Return the command that starts this `nacre` by its path. A client may have another PATH."""
    program = shutil.which("nacre", path=os.path.dirname(sys.executable))
    start = [program] if program else [sys.executable, "-m", "nacre.cli.main"]
    return [*start, *arguments]


def _snippet_text(
    client: Client, name: str, command: Sequence[str], variables: Sequence[str]
) -> str:
    program, *arguments = command
    entry: dict[str, object] = {"command": program, "args": arguments}
    if variables:
        entry["env"] = {variable: _variable_text(client, variable) for variable in variables}
    match client:
        case "claude" | "cursor":
            return _json({"mcpServers": {name: entry}})
        case "claude-code":
            return _json({"mcpServers": {name: {"type": "stdio", **entry}}})
        case "vscode":
            return _json({"servers": {name: {"type": "stdio", **entry}}})
        case "codex":
            key = name if _BARE_KEY.fullmatch(name) else _toml_text(name)
            listed = ", ".join(map(_toml_text, arguments))
            text = f"[mcp_servers.{key}]\ncommand = {_toml_text(program)}\nargs = [{listed}]\n"
            passed = ", ".join(map(_toml_text, variables))
            return f"{text}env_vars = [{passed}]\n" if variables else text
        case _:
            assert_never(client)


def _variable_text(client: Client, variable: str) -> str:
    """The value of a variable, as a reference where the client supports one."""
    match client:
        case "claude-code":
            return f"${{{variable}}}"
        case "cursor" | "vscode":
            return f"${{env:{variable}}}"
        case _:
            return f"<the value of {variable}>"


def _json(value: object) -> str:
    return f"{json.dumps(value, indent=2, ensure_ascii=False)}\n"


def _toml_text(text: str) -> str:
    # As in JSON, except for one character that TOML requires to be escaped.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
