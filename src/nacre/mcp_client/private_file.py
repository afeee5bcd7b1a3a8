"""Files that only the user may read, written whole or not at all. Everything here blocks."""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import suppress
from typing import TYPE_CHECKING

from nacre.config.folders import user_folder

if TYPE_CHECKING:
    from pathlib import Path


def state_directory() -> Path:
    """Where what is to be remembered lies."""
    return user_folder("state", os.environ)


def read_private(path: Path) -> bytes | None:
    """None if there is none, or one that somebody else could have written."""
    try:
        with path.open("rb") as file:
            info = os.fstat(file.fileno())
            if sys.platform != "win32" and (info.st_uid != os.geteuid() or info.st_mode & 0o077):
                return None
            return file.read()
    except FileNotFoundError:
        return None


def write_private(path: Path, content: bytes) -> None:
    """Replace the file; whoever reads meanwhile sees the old one or the new one."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # For its owner alone from the first byte on.
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(name, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise
