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
            self._package = source.entry_point.module.partition(".")[0]

    def load_entry(self) -> Callable[..., object]:
        """Import the plugin and return its `register`; raises what its code raises. May block."""
        try:
            return self._loaded_entry()
        finally:
            # Nobody waits for an import that took too long, but its thread goes on with it.
            if self._is_forgotten:
                self.forget()

    def forget(self) -> None:
        """Have Python forget what this load has imported; what was there before stays."""
        self._is_forgotten = True
        for name in list(sys.modules):
            is_ours = name == self._package or name.startswith(f"{self._package}.")
            if is_ours and name not in self._before:
                sys.modules.pop(name, None)

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
