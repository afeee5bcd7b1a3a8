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
"""Stands for the value in a validator's messages: settings may hold secrets."""

_MAX_OPTIONS: Final = 20


def config_problems(
    errors: Iterable[jsonschema_rs.ValidationError], *, path: str, schema: JsonObject
) -> Iterator[ConfigError]:
    """A validator's errors; one of them may be several problems."""
    for error in errors:
        place = _path_below(path, error.instance_path)
        # Typed as any of the kinds that there are.
        kind = cast("Any", error.kind)
        match kind.name:
            case "additionalProperties" | "unevaluatedProperties":
                known = _known_names(schema, error.schema_path[:-1])
                for key in kind.unexpected:
                    yield _unknown_key_error(place, key, known)
            case "required":
                yield ConfigError(member_path(place, kind.property), "is missing, and needed")
            case "enum":
                allowed = ", ".join(map(_format_option, kind.options[:_MAX_OPTIONS]))
                yield ConfigError(place, f"is none of what is allowed: {allowed}")
            case "type":
                yield ConfigError(place, f"is of another type; allowed: {' or '.join(kind.types)}")
            case _:
                yield ConfigError(place, f"does not fit: {error.message}")


def _unknown_key_error(place: str, key: str, known: list[str]) -> ConfigError:
    if not known:
        return ConfigError(place, f"has the unknown key {_format_option(key)}")
    return unknown_key(place, key, known)


def _format_option(option: object) -> str:
    return json.dumps(option, ensure_ascii=False)


def _known_names(schema: JsonObject, steps: Iterable[str | int]) -> list[str]:
    node: object = schema
    for step in steps:
        try:
            node = cast("Any", node)[step]
        except (LookupError, TypeError):
            # Below a reference; the names are not known then.
            return []
    properties = cast("JsonObject", node).get("properties") if isinstance(node, dict) else None
    return list(properties) if isinstance(properties, dict) else []


def _path_below(path: str, steps: Iterable[str | int]) -> str:
    """The path of a setting inside of another."""
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
# Owners that mean something else wherever tools are named.
_TAKEN_IDS: Final = frozenset(("core", "client", "code_mode", "tool_search", "bundle-mcp"))


@dataclass(frozen=True, kw_only=True, slots=True)
class PluginManifest:
    """Who a plugin is, where its code begins, and what it may be configured with."""

    id: str
    name: str
    version: str = ""
    description: str = ""
    entry: str = DEFAULT_ENTRY
    """`module:function`, from the plugin's folder."""
    config_schema: JsonObject | None = None

    def problems_in(self, config: JsonObject) -> list[ConfigError]:
        """Every setting at fault; none for settings that fit."""
        path = member_path("plugins.entries", self.id) + ".config"
        if self.config_schema is None:
            return [ConfigError(path, f"has settings, but {self.id} takes none")] if config else []
        errors = _validator(self.config_schema).iter_errors(config)
        return list(config_problems(errors, path=path, schema=self.config_schema))

    def check_config(self, config: JsonObject) -> None:
        """Raises PluginError that names the settings at fault."""
        problems = [str(problem) for problem in self.problems_in(config)]
        if problems:
            raise PluginError("; ".join(problems[:_MAX_PROBLEMS]))


def read_manifest(folder: Path) -> PluginManifest:
    """The manifest in a plugin's folder; raises PluginError that names the file and the fault."""
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
    return getattr(error, "strerror", None) or "that is no file name"


def _hint(folder: Path) -> str:
    """Where a manifest is when not here: a package has it beside its code."""
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
    # Here: a broken schema is the author's fault, not that of whoever configures the plugin.
    if described.get("type", "object") != "object":
        raise ConfigError(schema.path, "does not describe an object")
    try:
        _validator(described)
    except ValueError as error:
        raise ConfigError(schema.path, f"is not a JSON Schema: {error}") from error
    return {"type": "object", **described}


def _validator(schema: JsonObject) -> jsonschema_rs.Validator:
    import jsonschema_rs

    # Settings may hold secrets, so no message shows a value; and no schema is fetched from afar.
    return jsonschema_rs.validator_for(schema, mask=MASK, offline=True)
