"""Exports of a package that are imported on first use."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


def lazy_exports(package: str, modules: Mapping[str, Sequence[str]]) -> Callable[[str], object]:
    """Return a module-level `__getattr__` for `package`: module names to the names they define."""
    module_of = {name: module for module, names in modules.items() for name in names}

    def get_export(name: str) -> object:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(module_of[name]), name)

    return get_export
