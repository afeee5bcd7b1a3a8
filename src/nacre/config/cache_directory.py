"""Where things are kept that can be made again: a directory that only this user can write."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

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
