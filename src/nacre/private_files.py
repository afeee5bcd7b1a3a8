"""Private files: only their owner can read them, and writes are atomic. All functions block."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path


def create_private(path: Path) -> None:
    """Create the file and its folder if they are missing, with access for their owner only."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))


def read_private(path: Path) -> bytes | None:
    """Return the content, or None if there is no file or if other users can access it."""
    try:
        with path.open("rb") as file:
            info = os.fstat(file.fileno())
            if sys.platform != "win32" and (info.st_uid != os.geteuid() or info.st_mode & 0o077):
                return None
            return file.read()
    except FileNotFoundError:
        return None


def write_private(path: Path, content: bytes) -> None:
    """Replace the file. Its folder is created if it is missing."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with replace_private(path) as file:
        file.write(content)


@contextmanager
def replace_private(path: Path) -> Generator[IO[bytes]]:
    """Open a temporary file that replaces `path` when the block ends without an error.

    A reader sees the old file or the new one, also after a crash.
    """
    # Not above: many processes only read such files.
    import tempfile

    # `mkstemp` creates it with access for its owner only.
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise
