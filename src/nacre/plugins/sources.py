"""Where plugins come from: directories and entry points, and the Python modules of each."""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import itertools
import os
import sys
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from nacre.config import (
    CODEX_PLUGIN_ID,
    list_unused_places,
    member_path,
    nearest_key,
    read_system,
)
from nacre.errors import ConfigError, MisplacedValueError, MissingReferenceError, PluginError
from nacre.plugins.manifest import MANIFEST_NAME, PluginManifest, read_manifest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from nacre.config import PluginsConfig

ENTRY_POINT_GROUP: Final = "nacre.plugins"


@dataclass(frozen=True, kw_only=True, slots=True)
class PluginSource:
    """A directory or installed package with a plugin, which is not imported yet."""

    manifest: PluginManifest
    folder: Path
    entry_point: EntryPoint | None = None
    """The entry point of an installed package."""
    package: str = ""
    """The installed package that contains the manifest."""

    @property
    def origin(self) -> str:
        if self.entry_point is None:
            return str(self.folder)
        return f"{ENTRY_POINT_GROUP}: {self.entry_point.name} = {self.entry_point.value}"


@dataclass(frozen=True, kw_only=True, slots=True)
class BrokenSource:
    """A configured directory or an entry point without a plugin that can be loaded."""

    name: str
    origin: str
    problem: str


def find_sources(config: PluginsConfig) -> list[PluginSource | BrokenSource]:
    """The configured plugins in order, then the installed ones by name."""
    if not config.is_enabled:
        return []
    found: list[PluginSource | BrokenSource] = [_find_in_folder(path) for path in config.paths]
    if config.uses_entry_points:
        installed = entry_points(group=ENTRY_POINT_GROUP)
        found += [
            _find_by_entry_point(point) for point in sorted(installed, key=lambda it: it.name)
        ]
    return _mark_duplicates(found)


def _find_in_folder(folder: Path) -> PluginSource | BrokenSource:
    try:
        return PluginSource(manifest=read_manifest(folder), folder=folder)
    except PluginError as error:
        name, origin, problem = map(_escape_surrogates, (folder.name, str(folder), str(error)))
        return BrokenSource(name=name, origin=origin, problem=problem)


def _find_by_entry_point(point: EntryPoint) -> PluginSource | BrokenSource:
    origin = f"{ENTRY_POINT_GROUP}: {point.name} = {point.value}"
    try:
        folder, package = _own_package(point.module)
        manifest = read_manifest(folder)
    except PluginError as error:
        return BrokenSource(name=point.name, origin=origin, problem=str(error))
    except (AttributeError, AssertionError, ImportError, ValueError):
        # An invalid entry point of one package must not stop the others.
        problem = "its entry point is not of the form package.module:function"
        return BrokenSource(name=point.name, origin=origin, problem=problem)
    if manifest.id != point.name:
        problem = f"it is named {point.name!r}, but its {MANIFEST_NAME} has the id {manifest.id!r}"
        return BrokenSource(name=point.name, origin=origin, problem=problem)
    return PluginSource(manifest=manifest, folder=folder, entry_point=point, package=package)


def _own_package(module: str) -> tuple[Path, str]:
    """The innermost package around the module that has a manifest.

    Several plugins may be parts of one package or namespace. Nothing is imported, because no code
    of a plugin may run before it is loaded.
    """
    top, *inner = module.split(".")
    spec = find_spec(top)
    if spec is None or not spec.submodule_search_locations:
        raise PluginError(f"there is no package {top!r} with a {MANIFEST_NAME} in it")
    roots = [Path(location) for location in spec.submodule_search_locations]
    for depth in range(len(inner), -1, -1):
        for root in roots:
            folder = root.joinpath(*inner[:depth])
            if (folder / MANIFEST_NAME).is_file():
                return folder, ".".join((top, *inner[:depth]))
    return roots[0], top


def _mark_duplicates(
    found: list[PluginSource | BrokenSource],
) -> list[PluginSource | BrokenSource]:
    """Replace each further plugin with the same id by a BrokenSource."""
    sources: list[PluginSource | BrokenSource] = []
    origins = {CODEX_PLUGIN_ID: "the Codex harness, which is built in"}
    for source in found:
        if isinstance(source, BrokenSource):
            sources.append(source)
        elif source.manifest.id in origins:
            problem = f"the id {source.manifest.id!r} belongs to {origins[source.manifest.id]}"
            sources.append(
                BrokenSource(name=source.manifest.id, origin=source.origin, problem=problem)
            )
        else:
            origins[source.manifest.id] = source.origin
            sources.append(source)
    return sources


def _escape_surrogates(text: str) -> str:
    """Escape unpaired surrogates, which a path may contain, for logs and terminals."""
    return text.encode(errors="backslashreplace").decode()


@dataclass(frozen=True, kw_only=True, slots=True)
class PluginFindings:
    """The problems of all plugins that their manifests show."""

    problems: tuple[ConfigError, ...]
    warnings: tuple[str, ...]


def find_misplaced(document: Mapping[str, object], file: Path) -> frozenset[str]:
    """The paths of values that are misplaced or unused: they may be secrets. Blocks."""
    found = read_system(document, environment=os.environ, folder=file.absolute().parent)
    problems = (*found.problems, *check_plugins(found.config.plugins).problems)
    places = (it.place for it in problems if isinstance(it, MisplacedValueError))
    return frozenset((*places, *list_unused_places(found.document)))


def check_plugins(config: PluginsConfig) -> PluginFindings:
    """Check the manifests of all configured and installed plugins. Blocks."""
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


# Unique, because two plugins may both have a `helpers.py`, and a reload must import it again.
_PACKAGE_PREFIX: Final = "nacre_plugin_"
_numbers = itertools.count(1)
# The package of one plugin may be inside that of another.
_packages_in_use: Final[set[str]] = set()


class PluginModules:
    """The modules of one load of a plugin."""

    def __init__(self, source: PluginSource) -> None:
        self._source = source
        self._before = frozenset(sys.modules)
        self._is_unloaded = False
        if source.entry_point is None:
            self._package = (
                f"{_PACKAGE_PREFIX}{source.manifest.id.replace('-', '_')}_{next(_numbers)}"
            )
        else:
            self._package = source.package

    def load_entry(self) -> Callable[..., object]:
        """Import the plugin and return its `register`; raises any exception of its code. Blocks."""
        _packages_in_use.add(self._package)
        try:
            return self._import_entry()
        finally:
            # An import that timed out continues in its thread.
            if self._is_unloaded:
                self.unload()

    def unload(self) -> None:
        """Remove the modules of this load from `sys.modules`."""
        self._is_unloaded = True
        _packages_in_use.discard(self._package)
        for name in list(sys.modules):
            if name not in self._before and _owner_of(name, self._package) == self._package:
                _remove_module(name)

    def _import_entry(self) -> Callable[..., object]:
        importlib.invalidate_caches()
        if self._source.entry_point is None:
            self._add_package()
            module, _, name = self._source.manifest.entry.partition(":")
            module = f"{self._package}.{module}"
        else:
            module, name = self._source.entry_point.module, self._source.entry_point.attr
        entry: object = getattr(importlib.import_module(module), name, None)
        if not callable(entry):
            raise PluginError(f"its module has no function {name!r}")
        return entry

    def _add_package(self) -> None:
        """Import the directory as a package, with or without an `__init__.py`."""
        initial = self._source.folder / "__init__.py"
        loader = None
        if initial.is_file():
            loader = importlib.machinery.SourceFileLoader(self._package, str(initial))
        spec = importlib.machinery.ModuleSpec(self._package, loader, is_package=True)
        spec.submodule_search_locations = [str(self._source.folder)]
        package = importlib.util.module_from_spec(spec)
        sys.modules[self._package] = package
        if loader is not None:
            loader.exec_module(package)


def _owner_of(name: str, package: str) -> str:
    """The innermost package of a plugin that contains the module, or an empty string."""
    around = [it for it in (*_packages_in_use, package) if f"{name}.".startswith(f"{it}.")]
    return max(around, key=len, default="")


def _remove_module(name: str) -> None:
    module = sys.modules.pop(name, None)
    parent_name, _, child = name.rpartition(".")
    parent = sys.modules.get(parent_name)
    # `from parent import child` would find the attribute.
    if parent is not None and getattr(parent, child, None) is module:
        vars(parent).pop(child, None)
