"""A plugin's Python modules: imported under names of their own, and forgotten again."""

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

# Two plugins may both have a `helpers.py`, and one that is loaded again is to be read again.
_PACKAGE_PREFIX: Final = "nacre_plugin_"
_numbers = itertools.count(1)
# One plugin's package may be inside of another's.
_packages_in_use: Final[set[str]] = set()


class PluginModules:
    """The modules of one load of a plugin."""

    def __init__(self, source: PluginSource) -> None:
        self._source = source
        self._before = frozenset(sys.modules)
        self._is_forgotten = False
        if source.entry_point is None:
            self._package = (
                f"{_PACKAGE_PREFIX}{source.manifest.id.replace('-', '_')}_{next(_numbers)}"
            )
        else:
            self._package = source.package

    def load_entry(self) -> Callable[..., object]:
        """Import the plugin and return its `register`; raises what its code raises. May block."""
        _packages_in_use.add(self._package)
        try:
            return self._loaded_entry()
        finally:
            # Nobody waits for an import that took too long, but its thread goes on with it.
            if self._is_forgotten:
                self.forget()

    def forget(self) -> None:
        """Have Python forget what this load has imported; what was there before stays."""
        self._is_forgotten = True
        _packages_in_use.discard(self._package)
        for name in list(sys.modules):
            if name not in self._before and _owner_of(name, self._package) == self._package:
                _forget_module(name)

    def _loaded_entry(self) -> Callable[..., object]:
        importlib.invalidate_caches()
        if self._source.entry_point is None:
            self._add_package()
            module, _, name = self._source.manifest.entry.partition(":")
            module = f"{self._package}.{module}"
        else:
            module, name = self._source.entry_point.module, self._source.entry_point.attr
        found: object = getattr(importlib.import_module(module), name, None)
        if not callable(found):
            raise PluginError(f"its module has no function {name!r}")
        return found

    def _add_package(self) -> None:
        """The folder as a package, whether it has an `__init__.py` or not."""
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
    """The package of a plugin that a module belongs to: this one, one inside of it, or none."""
    around = [it for it in (*_packages_in_use, package) if f"{name}.".startswith(f"{it}.")]
    return max(around, key=len, default="")


def _forget_module(name: str) -> None:
    module = sys.modules.pop(name, None)
    parent, _, child = name.rpartition(".")
    around = sys.modules.get(parent)
    # `from parent import child` would find it there.
    if around is not None and getattr(around, child, None) is module:
        vars(around).pop(child, None)
