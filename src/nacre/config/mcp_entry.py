"""One entry of `mcp.servers`: our keys, and the keys of other clients for the same settings."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import TYPE_CHECKING, Final, Literal, cast
from urllib.parse import urlsplit

from nacre.config.expansion import read_secret_text
from nacre.config.fields import Fields, is_object, member_path
from nacre.config.setting_paths import nearest_key
from nacre.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nacre.config.expansion import Expander


Transport = Literal["stdio", "http", "sse"]

DEFAULT_TIMEOUT_SECONDS: Final = 60.0
DEFAULT_STARTUP_SECONDS: Final = 30.0
DEFAULT_IDLE_SECONDS: Final = 600.0
DEFAULT_MAX_RESULT_BYTES: Final = 4 * 1024 * 1024

_ORIGIN = re.compile(r"(https?://)(?:[^/?#]*@)?([^/?#@]*)")


def _no_texts() -> Mapping[str, str]:
    return {}


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class McpServerConfig:
    """Complete and checked, references replaced: so it holds secrets, and never shows them."""

    name: str
    transport: Transport
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=_no_texts)
    cwd: str | None = None
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=_no_texts)
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS
    """For one request."""
    startup_seconds: float = DEFAULT_STARTUP_SECONDS
    idle_seconds: float = DEFAULT_IDLE_SECONDS
    allow: tuple[str, ...] | None = None
    """Patterns of tools and operations; None for all of them, empty for none."""
    deny: tuple[str, ...] = ()
    require_approval: tuple[str, ...] = ()
    """Patterns of the tools that a person has to approve; `*` for all."""
    is_disabled: bool = False
    oauth: bool = False
    """Whether the user may be asked to log in."""
    max_result_bytes: int = DEFAULT_MAX_RESULT_BYTES
    """A part of a result beyond this is named instead of carried."""

    looked_up: tuple[str, ...] = ()
    """What `${...}` references were replaced by, in arguments too: as secret as `env`."""

    missing: str = ""
    """A variable or file that is named and not there: all but the name is a stopgap then."""

    @property
    def place(self) -> str:
        """Where the server is, for people. Arguments and the rest of an URL often are secrets."""
        if self.transport == "stdio":
            return self.command
        # Of a disabled server the URL may be anything.
        origin = _ORIGIN.match(self.url)
        return f"{origin[1]}{origin[2]}" if origin else ""

    def __repr__(self) -> str:
        return (
            f"McpServerConfig(name={self.name!r}, transport={self.transport!r}, "
            f"place={self.place!r}, env={sorted(self.env)}, headers={sorted(self.headers)}, "
            f"is_disabled={self.is_disabled})"
        )


_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e]*")
_NOT_IN_A_PROCESS = re.compile(r"[\x00\ud800-\udfff]")


class EntryValues:
    """Reads what may hold references; without an expander they stay."""

    def __init__(self, fields: Fields, expander: Expander | None) -> None:
        self._fields = fields
        self._expander = expander
        self.looked_up: list[str] = []
        """What references in the values read so far were replaced by."""

    def command(self) -> str:
        command = self.text("command")
        if not command:
            raise ConfigError(self._fields.path_of("command"), "is empty; name a program")
        return command

    def text(self, key: str) -> str:
        return self._expand_for_process(self._fields.text(key), self._fields.path_of(key))

    def texts(self, key: str) -> tuple[str, ...]:
        path = self._fields.path_of(key)
        return tuple(
            self._expand_for_process(text, f"{path}[{index}]")
            for index, text in enumerate(self._fields.texts(key) or ())
        )

    def environment(self) -> dict[str, str]:
        path = self._fields.path_of("env")
        found = self._variables_of_file()
        for name, text in self._fields.text_map("env").items():
            if not name or "=" in name or _NOT_IN_A_PROCESS.search(name):
                # Not shown: a value that was put in the wrong place looks like this.
                raise ConfigError(path, "has a member whose name is no name of a variable")
            found[name] = self._expand_for_process(text, member_path(path, name))
        return found

    def url(self) -> str:
        key = self._fields.one_of("url", "serverUrl")
        path = self._fields.path_of(key)
        url = self._expand(self._fields.text(key), path)
        if self._expander is not None and not is_web_address(url):
            raise ConfigError(path, "is no address of a server; allowed: http:// and https:// URLs")
        return url

    def headers(self) -> dict[str, str]:
        path = self._fields.path_of("headers")
        found: dict[str, str] = {}
        for name, text in self._fields.text_map("headers").items():
            if not _HEADER_NAME.fullmatch(name):
                # Not shown: a value that was put in the wrong place looks like this.
                raise ConfigError(path, "has a member whose name is no name of a header")
            found[name] = self._expand(text, member_path(path, name))
            if not _HEADER_VALUE.fullmatch(found[name]):
                raise ConfigError(
                    member_path(path, name),
                    "holds what no header can: line ends, control or non-ASCII characters",
                )
        return found

    def _variables_of_file(self) -> dict[str, str]:
        name, path = self.text("envFile"), self._fields.path_of("envFile")
        if not name or self._expander is None:
            return {}
        # Few entries have such a file.
        from io import StringIO

        from dotenv import dotenv_values

        text = read_secret_text(self._expander.workspace / name, path=path)
        values = dotenv_values(stream=StringIO(text), interpolate=False)
        bare = next((key for key, value in values.items() if value is None), None)
        if bare is not None:
            raise ConfigError(path, f"names a file that has {bare} without a value")
        return {key: self._check_for_process(value or "", path) for key, value in values.items()}

    def _expand_for_process(self, text: str, path: str) -> str:
        return self._check_for_process(self._expand(text, path), path)

    def _check_for_process(self, text: str, path: str) -> str:
        if _NOT_IN_A_PROCESS.search(text):
            raise ConfigError(path, "holds a character that no process can be given")
        return text

    def _expand(self, text: str, path: str) -> str:
        if self._expander is None:
            return text
        return self._expander.expand(text, path=path, looked_up=self.looked_up)


def is_web_address(url: str) -> bool:
    """Whether it is a URL of a server that speaks HTTP."""
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and url.isprintable()
    except ValueError:
        return False


_LOCAL_KEYS: Final = ("command", "args", "env", "envFile", "cwd")
_REMOTE_KEYS: Final = ("url", "serverUrl", "headers", "oauth", "auth")
_COMMON_KEYS: Final = (
    "type",
    "transport",
    "timeoutSeconds",
    "startupSeconds",
    "idleSeconds",
    "maxResultBytes",
    "allow",
    "enabledTools",
    "deny",
    "disabledTools",
    "requireApproval",
    "disabled",
    "enabled",
)
_KNOWN_KEYS: Final = (*_LOCAL_KEYS, *_REMOTE_KEYS, *_COMMON_KEYS)
_TRANSPORTS: Final[Mapping[str, Transport]] = {
    "stdio": "stdio",
    "local": "stdio",
    "http": "http",
    "streamablehttp": "http",
    "sse": "sse",
}
# Seconds in one client and milliseconds in the next, so it is not ours to guess.
_HINTS: Final = {"timeout": "write `timeoutSeconds`"}

_DAY_SECONDS: Final = 86_400
_MAX_RESULT_BYTES: Final = 64 * 1024 * 1024
_OUR_PROGRAM: Final = "nacre"
_OUR_MODULES: Final = ("nacre.cli", "nacre.cli.main")
# What starts a program that its arguments name.
_RUNNERS: Final = re.compile(r"uvx?|pipx|python[\d.]*w?|py|env|cmd|rye|poetry|hatch|pdm|sudo|nice")


def mcp_server_from_entry(
    value: object, name: str, path: str, expander: Expander, notes: list[str]
) -> McpServerConfig:
    """Read the entry of the server `name`; raises ConfigError for anything wrong."""
    fields = Fields(value, path)
    transport = _transport_of(fields)
    _note_keys_without_effect(fields, transport, notes)
    is_disabled = _is_disabled(fields, notes)
    values = EntryValues(fields, None if is_disabled else expander)
    return McpServerConfig(
        name=name,
        transport=transport,
        command=values.command() if transport == "stdio" else "",
        args=values.texts("args"),
        env=values.environment(),
        cwd=values.text("cwd") or None,
        url="" if transport == "stdio" else values.url(),
        headers=values.headers(),
        timeout_seconds=_seconds(fields, "timeoutSeconds", DEFAULT_TIMEOUT_SECONDS),
        startup_seconds=_seconds(fields, "startupSeconds", DEFAULT_STARTUP_SECONDS),
        idle_seconds=_seconds(fields, "idleSeconds", DEFAULT_IDLE_SECONDS),
        max_result_bytes=_max_result_bytes(fields),
        allow=fields.texts(fields.one_of("allow", "enabledTools")),
        deny=fields.texts(fields.one_of("deny", "disabledTools")) or (),
        require_approval=_patterns_to_approve(fields),
        is_disabled=is_disabled,
        oauth=_wants_oauth(fields, notes),
        # Last: it holds what reading the others has looked up.
        looked_up=tuple(dict.fromkeys(values.looked_up)),
    )


def unused_keys(value: object) -> list[str]:
    """The keys of an entry under which nothing is read."""
    if not is_object(value):
        return []
    fields = Fields(value, "")
    # Of an object there, only that it is there counts.
    logins = [key for key in ("oauth", "auth") if is_object(fields.get(key))]
    return [*fields.others(_KNOWN_KEYS), *logins]


def starts_nacre(value: object) -> bool:
    """Whether an entry starts `nacre mcp`, which would have itself as a server of its own."""
    if not is_object(value):
        return False
    fields = Fields(value, "")
    command, args = fields.get("command"), fields.get("args")
    listed = cast("list[object]", args) if isinstance(args, (list, tuple)) else []
    words = [word for word in listed if isinstance(word, str)]
    if not isinstance(command, str):
        return False
    program = _program_name(command)
    if program == _OUR_PROGRAM:
        return words[:1] == ["mcp"]
    return bool(_RUNNERS.fullmatch(program)) and _runs_nacre(words)


def _runs_nacre(words: Sequence[str]) -> bool:
    """Not where our name is the value of an option, or a folder that a server works in."""
    for before, word, after in zip(["", *words], words, words[1:], strict=False):
        is_value = before.startswith("-") and before != "-m"
        if after == "mcp" and not is_value and _is_our_program(word):
            return True
    return False


def _is_our_program(word: str) -> bool:
    path = PurePath(word.replace("\\", "/"))
    is_plain = len(path.parts) == 1 or path.parent.name.lower() in ("bin", "scripts")
    return is_plain and _program_name(word) in (_OUR_PROGRAM, *_OUR_MODULES)


def _program_name(word: str) -> str:
    # Also for a path of the other system: files travel.
    return PurePath(word.replace("\\", "/")).name.removesuffix(".exe")


def _transport_of(fields: Fields) -> Transport:
    key = fields.one_of("type", "transport")
    has_command = fields.has("command")
    has_url = fields.has(fields.one_of("url", "serverUrl"))
    if has_command == has_url:
        problem = "both `command` and `url`" if has_command else "neither `command` nor `url`"
        raise ConfigError(fields.path, f"has {problem}; a server has one of them")
    if not fields.has(key):
        return "stdio" if has_command else _transport_of_url(fields)
    named = fields.text(key)
    transport = _TRANSPORTS.get(re.sub(r"[-_ ]", "", named).lower())
    if transport is None:
        raise ConfigError(fields.path_of(key), f'is {named!r}; allowed: "stdio", "http" and "sse"')
    if (transport == "stdio") != has_command:
        needed = "command" if transport == "stdio" else "url"
        raise ConfigError(fields.path, f"has the {key} {named!r}, so it needs `{needed}`")
    return transport


def _transport_of_url(fields: Fields) -> Transport:
    """Clients try one after the other; by custom the older transport lives at `/sse`."""
    url = fields.text(fields.one_of("url", "serverUrl"))
    is_older = url.partition("?")[0].rstrip("/").endswith("/sse")
    return "sse" if is_older else "http"


def _note_keys_without_effect(fields: Fields, transport: Transport, notes: list[str]) -> None:
    for key in _REMOTE_KEYS if transport == "stdio" else _LOCAL_KEYS:
        if fields.has(key):
            kind = "a command" if transport == "stdio" else "an URL"
            notes.append(f"`{fields.path_of(key)}` has no effect on a server that is {kind}")
    for key in fields.others(_KNOWN_KEYS):
        hint = _HINTS.get(key) or _nearest_key(key)
        notes.append(f"`{fields.path_of(key)}` is not used by Nacre{hint and f'; {hint}'}")


def _nearest_key(key: str) -> str:
    near = nearest_key(key, _KNOWN_KEYS, least_similarity=0.8)
    return f"did you mean `{near}`?" if near else ""


def _is_disabled(fields: Fields, notes: list[str]) -> bool:
    if starts_nacre(fields.members):
        notes.append(f"`{fields.path}` starts `nacre mcp` itself, so it is left out")
        return True
    return fields.switch("disabled") is True or fields.switch("enabled") is False


def _patterns_to_approve(fields: Fields) -> tuple[str, ...]:
    value = fields.get("requireApproval")
    if isinstance(value, bool):
        return ("*",) if value else ()
    return fields.texts("requireApproval") or ()


def _wants_oauth(fields: Fields, notes: list[str]) -> bool:
    """Other clients have an object there, with a client that was registered by hand."""
    key = fields.one_of("oauth", "auth")
    value = fields.get(key)
    if not is_object(value):
        return fields.switch(key) is True
    for name in Fields(value, fields.path_of(key)).others(()):
        path = member_path(fields.path_of(key), name)
        notes.append(f"`{path}` is not used: Nacre registers itself with the server")
    return True


def _seconds(fields: Fields, key: str, default: float) -> float:
    return fields.number(key, default=default, least=0.1, most=_DAY_SECONDS)


def _max_result_bytes(fields: Fields) -> int:
    most, default = _MAX_RESULT_BYTES, DEFAULT_MAX_RESULT_BYTES
    return int(fields.number("maxResultBytes", default=default, least=1024, most=most))
