"""A server in Codex's `config.toml` as an entry of `mcp.servers`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, cast

from nacre.config.fields import Fields

if TYPE_CHECKING:
    from nacre.json_types import JsonObject, JsonValue

_VARIABLE = re.compile(r"[A-Za-z_]\w*", re.ASCII)

_SECONDS: Final = {"startup_timeout_sec": "startupSeconds", "tool_timeout_sec": "timeoutSeconds"}
_TOOL_NAMES: Final = {"enabled_tools": "allow", "disabled_tools": "deny"}
_MAX_SECONDS: Final = 86_400
_TEXTS: Final = ("command", "cwd", "url")
_TAKEN: Final = (
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
    # Has no meaning beside the key of the table.
    "name",
)


def entry_from_codex(value: object, path: str, notes: list[str]) -> JsonObject:
    """Variables that Codex forwards become references; raises ConfigError for a wrong type."""
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
    notes += [f"{fields.path_of(key)} is not taken over" for key in fields.others(_TAKEN)]
    return entry


def _environment(fields: Fields, notes: list[str]) -> dict[str, JsonValue]:
    env: dict[str, JsonValue] = {}
    listed = fields.get("env_vars")
    for index, item in enumerate(cast("list[object]", listed if isinstance(listed, list) else [])):
        if isinstance(item, str):
            # Codex forwards what is set and does not mind what is not.
            env[item] = f"${{{item}:-}}" if _VARIABLE.fullmatch(item) else f"${{env:{item}:-}}"
        else:
            notes.append(f"{fields.path_of('env_vars')}[{index}] is not taken over")
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
    """Codex has no references: what looks like one is meant as it stands."""
    return text.replace("${", "$${")
