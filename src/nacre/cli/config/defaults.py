"""What holds where the configuration says nothing: the default of a setting, or of a section."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from nacre.config.paths import MISSING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nacre.config.reading import Setting


def defaults_at(path: str, settings: Mapping[str, Setting]) -> object:
    """The default there, of a section as an object; MISSING if no setting has such a path."""
    if path in settings:
        return settings[path].default
    start, found = f"{path}.", dict[str, object]()
    for name, setting in settings.items():
        # Those of which there may be many have no defaults of their own.
        if name.startswith(start) and "<" not in name and "[]" not in name:
            _set_default(found, name.removeprefix(start).split("."), setting.default)
    return found or MISSING


def _set_default(here: dict[str, object], keys: list[str], value: object) -> None:
    for key in keys[:-1]:
        inner = here.setdefault(key, {})
        if not isinstance(inner, dict):
            # The other way to write what the one word before it says.
            return
        here = cast("dict[str, object]", inner)
    here[keys[-1]] = value
