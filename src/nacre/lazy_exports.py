"""What is made on first use: the exports of a package, and regular expressions."""

from __future__ import annotations

import gc
import re
from importlib import import_module
from typing import TYPE_CHECKING, Any, AnyStr, cast

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


def lazy_pattern(text: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Like `re.compile`, but the first use compiles: a process that runs one program uses few of
    its patterns, and each takes as long as the import of a small module."""
    return cast("re.Pattern[AnyStr]", _LazyPattern(text, flags))


class _LazyPattern:
    def __init__(self, text: str | bytes, flags: int) -> None:
        self._text = text
        self._flags = flags

    def __getattr__(self, name: str) -> Any:
        # `re` keeps the pattern for the next name.
        member = getattr(re.compile(self._text, self._flags), name)
        setattr(self, name, member)
        return member
