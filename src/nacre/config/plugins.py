"""The `plugins` contract: where plugins come from, which may load, and what each is told."""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final, cast

from nacre.config.fields import member_path, object_without_showing
from nacre.config.section_values import expanded, path_from
from nacre.errors import ConfigError
from nacre.json_types import NotJsonError, encode_json

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from nacre.config.reading import Reading
    from nacre.config.section import Section
    from nacre.json_types import JsonObject, JsonValue

_IDS: Final = "ids of plugins; `*` stands for any text"


def _no_config() -> JsonObject:
    return {}


@dataclass(frozen=True, kw_only=True, slots=True)
class PluginEntry:
    """What the configuration says to one plugin."""

    is_enabled: bool = True
    config: JsonObject = field(default_factory=_no_config, repr=False)
    """References in its texts are replaced, so it may hold secrets."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PluginsConfig:
    """Which plugins are loaded."""

    is_enabled: bool = True
    paths: tuple[Path, ...] = ()
    uses_entry_points: bool = True
    allow: tuple[str, ...] = ("*",)
    deny: tuple[str, ...] = ()
    entries: Mapping[str, PluginEntry] = field(default_factory=dict[str, PluginEntry])
    """By the plugin's id."""

    def entry(self, plugin_id: str) -> PluginEntry:
        return self.entries.get(plugin_id, PluginEntry())

    def refusal(self, plugin_id: str) -> str:
        """Why the plugin is not wanted; empty if it is."""
        if not self.entry(plugin_id).is_enabled:
            return f"`plugins.entries.{plugin_id}.enabled` is false"
        for pattern in self.deny:
            if fnmatchcase(plugin_id, pattern):
                return f"`plugins.deny` has {pattern!r}"
        if not any(fnmatchcase(plugin_id, pattern) for pattern in self.allow):
            return "`plugins.allow` does not name it"
        return ""


def read_plugins(plugins: Section) -> PluginsConfig:
    """Read `plugins`; faults are noted."""
    default = PluginsConfig()
    # The second is how the original writes it.
    names = (*_paths(plugins), *_paths(plugins.section("load")))
    entries = plugins.named("entries")
    return PluginsConfig(
        is_enabled=plugins.switch("enabled", default.is_enabled),
        paths=tuple(dict.fromkeys(names)),
        uses_entry_points=plugins.switch("entryPoints", default.uses_entry_points),
        allow=plugins.texts("allow", default.allow, allowed=_IDS),
        deny=plugins.texts("deny", allowed=_IDS),
        entries={name: _entry(entry) for name, entry in entries.items()},
    )


def _paths(section: Section) -> list[Path]:
    reading, where = section.reading, section.path_of("paths")
    paths: list[Path] = []
    for index, name in enumerate(section.texts("paths", allowed="paths")):
        text = expanded(name, reading, path=f"{where}[{index}]")
        if text:
            paths.append(path_from(text, reading))
    return paths


def _entry(entry: Section) -> PluginEntry:
    found = entry.find("config", default={}, allowed="an object, as the plugin has it")
    config: JsonObject = {}
    if found is not None:
        config = entry.reading.attempt(
            lambda: _config(found.value, found.path, entry.reading), config
        )
    return PluginEntry(is_enabled=entry.switch("enabled", True), config=config)


def _config(value: object, path: str, reading: Reading) -> JsonObject:
    members = object_without_showing(value, path)
    try:
        encode_json(members)
    except NotJsonError as problem:
        raise ConfigError(path, f"is not JSON: {problem}") from None
    return {
        key: _expand_references(cast("JsonValue", member), member_path(path, key), reading)
        for key, member in members.items()
    }


def _expand_references(value: JsonValue, path: str, reading: Reading) -> JsonValue:
    # No deeper than JSON that could be written.
    match value:
        case str():
            return expanded(value, reading, path=path)
        case list():
            return [
                _expand_references(item, f"{path}[{at}]", reading) for at, item in enumerate(value)
            ]
        case dict():
            return {
                key: _expand_references(member, member_path(path, key), reading)
                for key, member in value.items()
            }
        case _:
            return value
