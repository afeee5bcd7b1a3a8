"""The user's folders for configuration, data, state and caches, and a private cache folder."""

from __future__ import annotations

import os
import stat
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


def default_diagnostics_folder(environment: Mapping[str, str]) -> Path:
    """Where support bundles are written."""
    return user_folder("state", environment) / "diagnostics"


def home_folder(environment: Mapping[str, str]) -> Path:
    """The user's own folder, as the environment has it."""
    named = environment.get("HOME") or environment.get("USERPROFILE")
    return Path(named) if named else Path.home()


_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class NotPrivateError(Exception):
    """A file or directory must not be used; the message says why."""


def default_cache_directory() -> Path:
    """Raises RuntimeError if one is needed in the home directory and there is none."""
    if named := os.environ.get("NACRE_CACHE_DIR"):
        return Path(named)
    # The XDG specification has relative paths ignored.
    if (base := os.environ.get("XDG_CACHE_HOME")) and os.path.isabs(base):
        return Path(base, "nacre")
    home = Path.home()
    if not home.is_dir():
        raise RuntimeError(f"the home directory {home} does not exist")
    caches = ("Library", "Caches") if sys.platform == "darwin" else (".cache",)
    return home.joinpath(*caches, "nacre")


def private_cache_directory(wanted: Path | None = None) -> Path:
    """Where the directory really is, created if missing and private in any case.

    Raises OSError, RuntimeError or NotPrivateError where there is none.
    """
    directory = wanted or default_cache_directory().absolute()
    missing = [path for path in (directory, *directory.parents) if not path.exists()]
    for path in reversed(missing):
        path.mkdir(mode=0o700, exist_ok=True)
    place = directory.resolve(strict=True)
    info = place.stat()
    if not stat.S_ISDIR(info.st_mode):
        raise NotPrivateError(f"{place} is not a directory")
    check_private(place, info)
    return place


def check_private(path: Path, info: os.stat_result) -> None:
    """Raise NotPrivateError unless the file or directory is ours, and only ours to write."""
    if sys.platform == "win32":
        return
    if (owner := _owner(info)) != os.geteuid():
        raise NotPrivateError(f"{path} belongs to user {owner}, not to user {os.geteuid()}")
    if info.st_mode & _OTHERS_WRITE:
        mode = stat.S_IMODE(info.st_mode)
        raise NotPrivateError(f"{path} can be written by others (mode {mode:04o}; chmod go-w)")


def _owner(info: os.stat_result) -> int:
    return info.st_uid
