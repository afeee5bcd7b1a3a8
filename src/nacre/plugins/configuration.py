"""What a configuration says to plugins, checked by their manifests: no code of theirs runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nacre.config.fields import member_path
from nacre.config.setting_paths import nearest_key
from nacre.errors import ConfigError, MissingReferenceError
from nacre.plugins.sources import BrokenSource, find_sources

if TYPE_CHECKING:
    from nacre.config.plugins import PluginsConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class PluginFindings:
    """What keeps plugins from being loaded, as far as manifests tell."""

    problems: tuple[ConfigError, ...]
    warnings: tuple[str, ...]


def check_plugins(config: PluginsConfig) -> PluginFindings:
    """Read the manifest of every plugin that is named or installed. Blocks."""
    if not config.is_enabled:
        return PluginFindings(problems=(), warnings=())
    problems: list[ConfigError] = []
    warnings: list[str] = []
    sources, folders = find_sources(config), {str(path) for path in config.paths}
    ids = [source.manifest.id for source in sources if not isinstance(source, BrokenSource)]
    for source in sources:
        if not isinstance(source, BrokenSource):
            plugin_id = source.manifest.id
            if not config.refusal(plugin_id):
                problems += source.manifest.problems_in(config.entry(plugin_id).config)
        elif source.origin in folders:
            problem = f"names {source.origin}, which has no plugin to load: {source.problem}"
            problems.append(MissingReferenceError("plugins.paths", problem))
        else:
            warnings.append(f"the plugin {source.name} ({source.origin}): {source.problem}")
    broken = [source.name for source in sources if isinstance(source, BrokenSource)]
    warnings += [
        _format_unknown_plugin(name, ids) for name in config.entries if name not in (*ids, *broken)
    ]
    return PluginFindings(problems=tuple(problems), warnings=tuple(warnings))


def _format_unknown_plugin(name: str, ids: list[str]) -> str:
    near = nearest_key(name, ids)
    hint = f"did you mean `{near}`?" if near else f"there are: {', '.join(ids) or 'none'}"
    return f"`{member_path('plugins.entries', name)}` is for a plugin that is not there; {hint}"
