"""The user's own folders: where configuration, data, state and caches of Nacre belong."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

FolderKind = Literal["config", "data", "state", "cache"]

_HOMES: Final[Mapping[FolderKind, tuple[str, ...]]] = {
    "config": (".config",),
    "data": (".local", "share"),
    "state": (".local", "state"),
    "cache": (".cache",),
}
_MAC_HOMES: Final[Mapping[FolderKind, tuple[str, ...]]] = {
    "config": (".config",),
    "data": ("Library", "Application Support"),
    "state": ("Library", "Application Support"),
    "cache": ("Library", "Caches"),
}
_WINDOWS_VARIABLES: Final[Mapping[FolderKind, str]] = {"config": "APPDATA", "data": "LOCALAPPDATA"}


def user_folder(
    kind: FolderKind, environment: Mapping[str, str], *, platform: str = sys.platform
) -> Path:
    """Nacre's folder of this kind; it may not be there yet."""
    variables = [f"XDG_{kind.upper()}_HOME"]
    if platform == "win32" and kind in _WINDOWS_VARIABLES:
        variables.append(_WINDOWS_VARIABLES[kind])
    for variable in variables:
        # The XDG specification has relative paths ignored.
        folder = Path(environment.get(variable, ""))
        if folder.is_absolute():
            return folder / "nacre"
    homes = _MAC_HOMES if platform == "darwin" else _HOMES
    return home_folder(environment).joinpath(*homes[kind], "nacre")


def home_folder(environment: Mapping[str, str]) -> Path:
    """The user's own folder, as the environment has it."""
    named = environment.get("HOME") or environment.get("USERPROFILE")
    return Path(named) if named else Path.home()
