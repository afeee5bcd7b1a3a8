"""One entry of `mcp.servers`: our keys, and the keys of other clients for the same settings."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import TYPE_CHECKING, Final, Literal, Protocol, cast
from urllib.parse import urlsplit

from nacre.config.references import key_path, read_secret_text, section_key
from nacre.config.setting_paths import is_object, member_path, nearest_key
from nacre.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from nacre.config.document import McpServerSection
    from nacre.config.references import Expander


Transport = Literal["stdio", "http", "sse"]

DEFAULT_TIMEOUT_SECONDS: Final = 60.0
DEFAULT_STARTUP_SECONDS: Final = 30.0
DEFAULT_IDLE_SECONDS: Final = 600.0
DEFAULT_MAX_RESULT_BYTES: Final = 4 * 1024 * 1024

_ORIGIN = re.compile(r"(https?://)(?:[^/?#]*@)?([^/?#@]*)")


# What starts a package that its arguments name, with the words and options before its name.
_PACKAGE_RUNNERS: Final = re.compile(
    r"npx|bunx|pnpx|npm|pnpm|yarn|bun|uvx?|pipx|python[\d.]*", re.IGNORECASE
)
_RUNNER_WORDS: Final = ("exec", "dlx", "x", "tool", "run", "-y", "--yes", "--from", "-p", "-m")
_PACKAGE: Final = re.compile(r"@?[A-Za-z0-9][\w.-]*(/[\w.-]+)?(\[[\w,-]+\])?([@=~^]+[\w.*-]+)?")


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
    """A larger part of a result is replaced by a description."""

    looked_up: tuple[str, ...] = ()
    """The values of `${...}` references, also those in arguments: as secret as `env`."""

    missing: str = ""
    """The message about a missing variable or file. If set, only the name is valid."""

    @property
    def excludes_all_tools(self) -> bool:
        """Whether `allow` or `deny` excludes every tool, whatever its name is."""
        if self.allow == ():
            return True
        every = {"*", "mcp:*", f"mcp:{self.name}:*".casefold()}
        return any(re.sub(r"\*+", "*", pattern).casefold() in every for pattern in self.deny)

    @property
    def place(self) -> str:
        """Where the server is, for people. Without arguments and paths, which are often secrets."""
        if self.transport == "stdio":
            return self.command
        # The URL of a disabled server is not checked.
        origin = _ORIGIN.match(self.url)
        return f"{origin[1]}{origin[2]}" if origin else ""

    @property
    def package(self) -> str:
        """The package or module that the command starts, if it only starts another program."""
        if not _PACKAGE_RUNNERS.fullmatch(_program_name(self.command)):
            return ""
        # After any other option, the next word may be its value, and a secret.
        word = next((word for word in self.args if word not in _RUNNER_WORDS), "")
        secrets = (*self.looked_up, *self.env.values())
        is_public = bool(_PACKAGE.fullmatch(word)) and word not in secrets
        return word if is_public else ""

    def __repr__(self) -> str:
        return (
            f"McpServerConfig(name={self.name!r}, transport={self.transport!r}, "
            f"place={self.place!r}, env={sorted(self.env)}, headers={sorted(self.headers)}, "
            f"is_disabled={self.is_disabled})"
        )


_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e]*")
_NOT_IN_A_PROCESS = re.compile(r"[\x00\ud800-\udfff]")


class _EntryValues:
    """Resolves the settings of an entry; without an expander, references stay as they are."""

    def __init__(self, entry: McpServerSection, path: str, expander: Expander | None) -> None:
        self._entry = entry
        self._path = path
        self._expander = expander
        self.looked_up: list[str] = []
        """The values of the references that were replaced so far."""

    def command(self) -> str:
        command = self.text("command")
        if not command:
            raise ConfigError(f"{self._path}.command", "is empty; name a program")
        return command

    def text(self, name: str) -> str:
        path = key_path(self._entry, name, self._path)
        return self._expand_for_process(getattr(self._entry, name), path)

    def args(self) -> tuple[str, ...]:
        return tuple(
            self._expand_for_process(text, f"{self._path}.args[{index}]")
            for index, text in enumerate(self._entry.args)
        )

    def environment(self) -> dict[str, str]:
        path = f"{self._path}.env"
        found = self._variables_of_file()
        for name, text in self._entry.env.items():
            if not name or "=" in name or _NOT_IN_A_PROCESS.search(name):
                # Not shown: a value in the wrong place looks like this.
                raise ConfigError(path, "has a member that is not a valid variable name")
            found[name] = self._expand_for_process(text, member_path(path, name))
        return found

    def url(self) -> str:
        name = "server_url" if self._entry.server_url else "url"
        path = key_path(self._entry, name, self._path)
        url = self._expand(getattr(self._entry, name), path)
        if self._expander is not None and not is_web_address(url):
            raise ConfigError(path, "is not a server address; allowed: http:// and https:// URLs")
        return url

    def headers(self) -> dict[str, str]:
        return resolve_headers(self._entry.headers, f"{self._path}.headers", self._expand)

    def _variables_of_file(self) -> dict[str, str]:
        name, path = self.text("env_file"), f"{self._path}.envFile"
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
        return self._check_for_process(self._expand(text, path=path), path)

    def _check_for_process(self, text: str, path: str) -> str:
        if _NOT_IN_A_PROCESS.search(text):
            raise ConfigError(path, "has a character that cannot be passed to a process")
        return text

    def _expand(self, text: str, path: str) -> str:
        if self._expander is None:
            return text
        return self._expander.expand(text, path=path, looked_up=self.looked_up)


class _Expand(Protocol):
    def __call__(self, text: str, /, *, path: str) -> str: ...


def resolve_headers(headers: Mapping[str, str], path: str, expand: _Expand) -> dict[str, str]:
    """Replace the references in headers; raises ConfigError for one that cannot be sent."""
    found: dict[str, str] = {}
    for name, text in headers.items():
        if not _HEADER_NAME.fullmatch(name):
            # Not shown: a value in the wrong place looks like this.
            raise ConfigError(path, "has a member that is not a valid header name")
        found[name] = expand(text, path=member_path(path, name))
        if not _HEADER_VALUE.fullmatch(found[name]):
            raise ConfigError(
                member_path(path, name),
                "has characters that a header cannot have: line ends, control or non-ASCII ones",
            )
    return found


def is_web_address(url: str) -> bool:
    """Whether it is a URL of a server that speaks HTTP."""
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and url.isprintable()
    except ValueError:
        return False


_LOCAL_KEYS: Final = ("command", "args", "env", "envFile", "cwd")
_REMOTE_KEYS: Final = ("url", "serverUrl", "headers", "oauth", "auth")
_TRANSPORTS: Final[Mapping[str, Transport]] = {
    "stdio": "stdio",
    "local": "stdio",
    "http": "http",
    "streamablehttp": "http",
    "sse": "sse",
}
# Seconds in one client and milliseconds in another, so it is not used.
_HINTS: Final = {"timeout": "write `timeoutSeconds`"}

_OUR_PROGRAM: Final = "nacre"
_OUR_MODULES: Final = ("nacre.cli", "nacre.cli.main")
# Commands that start the program named in their arguments.
_RUNNERS: Final = re.compile(r"uvx?|pipx|python[\d.]*w?|py|env|cmd|rye|poetry|hatch|pdm|sudo|nice")


def resolve_server(
    entry: McpServerSection, name: str, path: str, expander: Expander, notes: list[str]
) -> McpServerConfig:
    """Resolve the entry of the server `name`; raises ConfigError for a problem."""
    transport = _choose_transport(entry, path)
    _note_keys_without_effect(entry, path, transport, notes)
    is_disabled = _is_disabled(entry, path, notes)
    values = _EntryValues(entry, path, None if is_disabled else expander)
    allow = getattr(entry, _choose(entry, path, "allow", "enabled_tools"))
    return McpServerConfig(
        name=name,
        transport=transport,
        command=values.command() if transport == "stdio" else "",
        args=values.args(),
        env=values.environment(),
        cwd=values.text("cwd") or None,
        url="" if transport == "stdio" else values.url(),
        headers=values.headers(),
        timeout_seconds=entry.timeout_seconds,
        startup_seconds=entry.startup_seconds,
        idle_seconds=entry.idle_seconds,
        max_result_bytes=int(entry.max_result_bytes),
        allow=None if allow is None else tuple(allow),
        deny=tuple(getattr(entry, _choose(entry, path, "deny", "disabled_tools")) or ()),
        require_approval=_patterns_to_approve(entry),
        is_disabled=is_disabled,
        oauth=_wants_oauth(entry, path, notes),
        # Last: by now all references of the entry have been replaced.
        looked_up=tuple(dict.fromkeys(values.looked_up)),
    )


def _choose(entry: McpServerSection, path: str, *names: str) -> str:
    """The field that is used, of several for the same setting; the first if none is."""
    used = [name for name in names if name in entry.model_fields_set]
    if len(used) > 1:
        keys = " and ".join(f"`{section_key(entry, name)}`" for name in used[:2])
        raise ConfigError(path, f"has both {keys}; write one of them")
    return used[0] if used else names[0]


def starts_nacre(value: object) -> bool:
    """Whether an entry starts `nacre mcp`, which would have itself as a server of its own."""
    if not is_object(value):
        return False
    command, args = value.get("command"), value.get("args")
    listed = cast("list[object]", args) if isinstance(args, (list, tuple)) else []
    words = [word for word in listed if isinstance(word, str)]
    return isinstance(command, str) and _is_nacre_mcp(command, words)


def _is_nacre_mcp(command: str, words: Sequence[str]) -> bool:
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
    # Also for Windows paths: the file may come from another system.
    return PurePath(word.replace("\\", "/")).name.removesuffix(".exe")


def _choose_transport(entry: McpServerSection, path: str) -> Transport:
    name = _choose(entry, path, "type", "transport")
    url = _choose(entry, path, "url", "server_url")
    has_command, has_url = "command" in entry.model_fields_set, url in entry.model_fields_set
    if has_command == has_url:
        problem = "both `command` and `url`" if has_command else "neither `command` nor `url`"
        raise ConfigError(path, f"has {problem}; a server has one of them")
    if name not in entry.model_fields_set:
        return "stdio" if has_command else _transport_of_url(getattr(entry, url))
    named = getattr(entry, name)
    transport = _TRANSPORTS.get(re.sub(r"[-_ ]", "", named).lower())
    if transport is None:
        raise ConfigError(f"{path}.{name}", f'is {named!r}; allowed: "stdio", "http" and "sse"')
    if (transport == "stdio") != has_command:
        needed = "command" if transport == "stdio" else "url"
        raise ConfigError(path, f"has the {name} {named!r}, so it needs `{needed}`")
    return transport


def _transport_of_url(url: str) -> Transport:
    """Clients try one after the other; by custom the older transport is at `/sse`."""
    is_older = url.partition("?")[0].rstrip("/").endswith("/sse")
    return "sse" if is_older else "http"


def _note_keys_without_effect(
    entry: McpServerSection, path: str, transport: Transport, notes: list[str]
) -> None:
    names = {section_key(entry, name): name for name in type(entry).model_fields}
    for key in _REMOTE_KEYS if transport == "stdio" else _LOCAL_KEYS:
        if names[key] in entry.model_fields_set:
            kind = "a command" if transport == "stdio" else "an URL"
            notes.append(f"`{path}.{key}` has no effect on a server that is {kind}")
    for key in entry.unknown_keys:
        hint = _HINTS.get(key) or _format_nearest(key, names)
        notes.append(f"`{member_path(path, key)}` is not used by Nacre{hint and f'; {hint}'}")


def _format_nearest(key: str, known: Iterable[str]) -> str:
    near = nearest_key(key, known, least_similarity=0.8)
    return f"did you mean `{near}`?" if near else ""


def _is_disabled(entry: McpServerSection, path: str, notes: list[str]) -> bool:
    if entry.command and _is_nacre_mcp(entry.command, entry.args):
        notes.append(f"`{path}` starts `nacre mcp` itself, so it is left out")
        return True
    return entry.disabled or not entry.enabled


def _patterns_to_approve(entry: McpServerSection) -> tuple[str, ...]:
    value = entry.require_approval
    if isinstance(value, bool):
        return ("*",) if value else ()
    return tuple(value)


def _wants_oauth(entry: McpServerSection, path: str, notes: list[str]) -> bool:
    """In files of other clients an object describes a client that was registered by hand."""
    name = _choose(entry, path, "oauth", "auth")
    value: bool | Mapping[str, object] = getattr(entry, name)
    if isinstance(value, bool):
        return value
    for key in value:
        place = member_path(f"{path}.{name}", key)
        notes.append(f"`{place}` is not used: Nacre registers itself with the server")
    return True


def list_unused_keys(entry: McpServerSection) -> list[str]:
    """The keys of an entry whose values Nacre does not read."""
    # Only whether an object exists counts, not its content.
    logins = [name for name in ("oauth", "auth") if isinstance(getattr(entry, name), dict)]
    return [*entry.unknown_keys, *logins]
