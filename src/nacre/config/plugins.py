"""Plugins: their directories, which of them are loaded, and the settings of each."""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from nacre.config.setting_paths import member_path
from nacre.errors import ConfigError
from nacre.json_types import NotJsonError, encode_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from nacre.config.document import PluginsSection
    from nacre.config.references import Resolver
    from nacre.json_types import JsonObject, JsonValue


def _no_config() -> JsonObject:
    return {}


@dataclass(frozen=True, kw_only=True, slots=True)
class PluginEntry:
    """The settings of one plugin."""

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
    context_engine: str = "legacy"
    """The id of the context engine; `legacy` and `none` for none."""

    def entry(self, plugin_id: str) -> PluginEntry:
        return self.entries.get(plugin_id, PluginEntry())

    def refusal(self, plugin_id: str) -> str:
        """Why the plugin is not loaded; empty if it is."""
        if not self.entry(plugin_id).is_enabled:
            return f"`plugins.entries.{plugin_id}.enabled` is false"
        for pattern in self.deny:
            if fnmatchcase(plugin_id, pattern):
                return f"`plugins.deny` has {pattern!r}"
        if not any(fnmatchcase(plugin_id, pattern) for pattern in self.allow):
            return "`plugins.allow` does not name it"
        return ""


def resolve_plugins(section: PluginsSection, resolver: Resolver) -> PluginsConfig:
    """Resolve `plugins`; problems are noted."""
    paths = (
        *_resolve_paths(section.paths, "plugins.paths", resolver),
        # OpenClaw's name for the setting.
        *_resolve_paths(section.load.paths, "plugins.load.paths", resolver),
    )
    return PluginsConfig(
        is_enabled=section.enabled,
        paths=tuple(dict.fromkeys(paths)),
        uses_entry_points=section.entry_points,
        allow=tuple(section.allow),
        deny=tuple(section.deny),
        context_engine=section.slots.context_engine,
        entries={
            name: PluginEntry(
                is_enabled=entry.enabled,
                config=_resolve_config(entry.config, f"{_entry_path(name)}.config", resolver),
            )
            for name, entry in section.entries.by_id.items()
        },
    )


def _entry_path(name: str) -> str:
    return member_path("plugins.entries", name)


def _resolve_paths(names: Sequence[str], where: str, resolver: Resolver) -> list[Path]:
    paths = [resolver.path(name, f"{where}[{index}]") for index, name in enumerate(names)]
    return [path for path in paths if path is not None]


def _resolve_config(members: JsonObject, path: str, resolver: Resolver) -> JsonObject:
    try:
        encode_json(members)
    except NotJsonError as problem:
        resolver.note(ConfigError(path, f"is not JSON: {problem}"))
        return {}
    return {
        key: _expand_references(member, member_path(path, key), resolver)
        for key, member in members.items()
    }


def _expand_references(value: JsonValue, path: str, resolver: Resolver) -> JsonValue:
    # No deeper than JSON that could be written.
    match value:
        case str():
            return resolver.expand(value, path)
        case list():
            return [
                _expand_references(item, f"{path}[{at}]", resolver) for at, item in enumerate(value)
            ]
        case dict():
            return {
                key: _expand_references(member, member_path(path, key), resolver)
                for key, member in value.items()
            }
        case _:
            return value
