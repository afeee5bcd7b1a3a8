"""Exports of a package that are imported on first use."""

from __future__ import annotations

import gc
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import ModuleType


def _import_without_gc(module: str) -> ModuleType:
    """Import a module. Imports leave no garbage; to look for it takes a tenth of the time."""
    if not gc.isenabled():
        return import_module(module)
    gc.disable()
    try:
        return import_module(module)
    finally:
        gc.enable()


def lazy_exports(package: str, modules: Mapping[str, Sequence[str]]) -> Callable[[str], object]:
    """Return a module-level `__getattr__` for `package`: module names to the names they define."""
    module_of = {name: module for module, names in modules.items() for name in names}

    def get_export(name: str) -> object:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(_import_without_gc(module_of[name]), name)

    return get_export
