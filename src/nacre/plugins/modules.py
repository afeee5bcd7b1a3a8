"""The Python modules of a plugin: imported under unique names, and removed on unload."""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import itertools
import sys
from typing import TYPE_CHECKING, Final

from nacre.errors import PluginError

if TYPE_CHECKING:
    from collections.abc import Callable

    from nacre.plugins.sources import PluginSource

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
