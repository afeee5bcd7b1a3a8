"""A plugin's manifest, `nacre.plugin.json`, and the check of its settings by `configSchema`."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast
from unicodedata import category

from nacre.config import Fields, member_path, parse_json5, unknown_key
from nacre.errors import ConfigError, PluginError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    import jsonschema_rs

    from nacre.json_types import JsonObject


MASK: Final = "its value"
"""Replaces the value in messages of the validator, because settings may contain secrets."""

_MAX_OPTIONS: Final = 20


def config_problems(
    errors: Iterable[jsonschema_rs.ValidationError], *, path: str, schema: JsonObject
) -> Iterator[ConfigError]:
    """The problems in a validator's errors; one error may contain several."""
    for error in errors:
        at = _path_below(path, error.instance_path)
        # Its type is a union of all error kinds.
        kind = cast("Any", error.kind)
        match kind.name:
            case "additionalProperties" | "unevaluatedProperties":
                known = _known_names(schema, error.schema_path[:-1])
                for key in kind.unexpected:
                    yield _unknown_key_error(at, key, known)
            case "required":
                yield ConfigError(member_path(at, kind.property), "is missing")
            case "enum":
                allowed = ", ".join(map(_format_option, kind.options[:_MAX_OPTIONS]))
                yield ConfigError(at, f"is not an allowed value; allowed: {allowed}")
            case "type":
                yield ConfigError(at, f"has the wrong type; allowed: {' or '.join(kind.types)}")
            case _:
                yield ConfigError(at, f"is invalid: {error.message}")


def _unknown_key_error(path: str, key: str, known: list[str]) -> ConfigError:
    if not known:
        return ConfigError(path, f"has the unknown key {_format_option(key)}")
    return unknown_key(path, key, known)


def _format_option(option: object) -> str:
    return json.dumps(option, ensure_ascii=False)


def _known_names(schema: JsonObject, steps: Iterable[str | int]) -> list[str]:
    node: object = schema
    for step in steps:
        try:
            node = cast("Any", node)[step]
        except (LookupError, TypeError):
            # The schema is behind a reference, so the names are unknown.
            return []
    properties = cast("JsonObject", node).get("properties") if isinstance(node, dict) else None
    return list(properties) if isinstance(properties, dict) else []


def _path_below(path: str, steps: Iterable[str | int]) -> str:
    """The path of a nested setting."""
    for step in steps:
        path = f"{path}[{step}]" if isinstance(step, int) else member_path(path, step)
    return path


MANIFEST_NAME: Final = "nacre.plugin.json"
DEFAULT_ENTRY: Final = "plugin:register"

_MAX_PROBLEMS: Final = 10

_KEYS: Final = ("id", "name", "version", "description", "entry", "configSchema")
_ALLOWED_CONTROLS: Final = "\n\r\t"
_ID = re.compile(r"[a-z][a-z0-9_-]{0,63}")
_ENTRY = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)
# Owners with another meaning in tool names and policies.
_TAKEN_IDS: Final = frozenset(("core", "client", "code_mode", "tool_search", "bundle-mcp"))


@dataclass(frozen=True, kw_only=True, slots=True)
class PluginManifest:
    """The identity of a plugin, its entry point, and the schema of its settings."""

    id: str
    name: str
    version: str = ""
    description: str = ""
    entry: str = DEFAULT_ENTRY
    """`module:function`, relative to the plugin's directory."""
    config_schema: JsonObject | None = None

    def problems_in(self, config: JsonObject) -> list[ConfigError]:
        """The problems in the settings of the plugin."""
        path = member_path("plugins.entries", self.id) + ".config"
        if self.config_schema is None:
            return [ConfigError(path, f"has settings, but {self.id} takes none")] if config else []
        errors = _validator(self.config_schema).iter_errors(config)
        return list(config_problems(errors, path=path, schema=self.config_schema))

    def check_config(self, config: JsonObject) -> None:
        """Raise PluginError if settings are invalid."""
        problems = [str(problem) for problem in self.problems_in(config)]
        if problems:
            raise PluginError("; ".join(problems[:_MAX_PROBLEMS]))


def read_manifest(folder: Path) -> PluginManifest:
    """Read the manifest in a plugin's directory; raises PluginError."""
    file = folder / MANIFEST_NAME
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise PluginError(f"{file} cannot be read: {_reason(error)}{_hint(folder)}") from error
    try:
        return _manifest_in(Fields(parse_json5(text, path=str(file)), str(file)))
    except ConfigError as error:
        raise PluginError(str(error)) from error


def _reason(error: OSError | ValueError) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "is not UTF-8 text"
    return getattr(error, "strerror", None) or "that is not a file name"


def _hint(folder: Path) -> str:
    """A hint if a subdirectory contains the manifest, as in a package."""
    try:
        below = [*folder.glob(f"*/{MANIFEST_NAME}"), *folder.glob(f"src/*/{MANIFEST_NAME}")]
    except (OSError, ValueError):
        return ""
    return f"; there is one in {min(below).parent}" if below else ""


def _manifest_in(fields: Fields) -> PluginManifest:
    for key in fields.others((*_KEYS, "$schema")):
        known = ", ".join(_KEYS)
        raise ConfigError(fields.path, f"has the unknown key {key!r}; known: {known}")
    plugin_id = fields.text("id")
    if not _ID.fullmatch(plugin_id) or plugin_id in _TAKEN_IDS:
        raise ConfigError(
            fields.path_of("id"),
            f"is {plugin_id[:80]!r}; allowed: a lower-case letter, then letters, digits, - and _, "
            f"at most 64, and none of {', '.join(sorted(_TAKEN_IDS))}",
        )
    for key in ("name", "version", "description"):
        if not _is_shown_as_it_is(fields.text(key)):
            problem = "holds control characters or halves of characters, which cannot be shown"
            raise ConfigError(fields.path_of(key), problem)
    entry = fields.text("entry") or DEFAULT_ENTRY
    if not _ENTRY.fullmatch(entry):
        raise ConfigError(
            fields.path_of("entry"),
            f"is {entry[:80]!r}; allowed: module:function, such as {DEFAULT_ENTRY}",
        )
    return PluginManifest(
        id=plugin_id,
        name=fields.text("name") or plugin_id,
        version=fields.text("version"),
        description=fields.text("description"),
        entry=entry,
        config_schema=_schema_in(fields),
    )


def _is_shown_as_it_is(text: str) -> bool:
    return all(mark in _ALLOWED_CONTROLS or category(mark) not in ("Cc", "Cs") for mark in text)


def _schema_in(fields: Fields) -> JsonObject | None:
    if not fields.has("configSchema"):
        return None
    schema = Fields(fields.get("configSchema"), fields.path_of("configSchema"))
    described = cast("JsonObject", dict(schema.members))
    # Checked here, because an invalid schema is a mistake of the author, not of the user.
    if described.get("type", "object") != "object":
        raise ConfigError(schema.path, "does not describe an object")
    try:
        _validator(described)
    except ValueError as error:
        raise ConfigError(schema.path, f"is not a JSON Schema: {error}") from error
    return {"type": "object", **described}


def _validator(schema: JsonObject) -> jsonschema_rs.Validator:
    import jsonschema_rs

    # Messages must not contain values, which may be secrets; schemas are not fetched remotely.
    return jsonschema_rs.validator_for(schema, mask=MASK, offline=True)
