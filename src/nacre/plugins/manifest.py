"""What a plugin says of itself before any of its code runs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast
from unicodedata import category

from nacre.config.fields import Fields, member_path
from nacre.config.json5 import parse_json5
from nacre.errors import ConfigError, PluginError
from nacre.plugins.config_problems import MASK, config_problems

if TYPE_CHECKING:
    from pathlib import Path

    import jsonschema_rs

    from nacre.json_types import JsonObject

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
