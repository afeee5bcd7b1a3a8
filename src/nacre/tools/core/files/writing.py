"""Writing a file: whoever reads meanwhile, or after a crash, finds the old one or the new one."""

from __future__ import annotations

import os
import stat
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from nacre.tools.core.workspace import FileProblem, FileVersion, kind_of, problems_of

if TYPE_CHECKING:
    from collections.abc import Generator

    from nacre.tools.core.workspace import Place

_MODE_OF_NEW_FILE: Final = 0o666
"""Without what the user's mask takes away."""
# As many as are not worth counting; two places that share one wait for each other, no more.
_LOCKS: Final = tuple(threading.Lock() for _ in range(64))
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def one_writer(place: Place) -> Generator[None]:
    """Nobody else in this process writes to the place meanwhile. Blocks."""
    folder = os.fstat(place.folder)
    with _LOCKS[hash((folder.st_dev, folder.st_ino, place.name)) % len(_LOCKS)]:
        yield


def write_file(place: Place, data: bytes, *, expected: FileVersion | None = None) -> bool:
    """Put the data there; whether the file is a new one. Raises FileProblem.

    With `expected`, only if the file is still that one.
    """
    before = place.status()
    if before is not None and not stat.S_ISREG(before.st_mode):
        raise FileProblem(f"{place.shown} is {kind_of(before.st_mode)}, so no file can be there")
    mode = _MODE_OF_NEW_FILE if before is None else stat.S_IMODE(before.st_mode)
    temporary = f".{os.urandom(8).hex()}.nacre"
    with problems_of(place.shown):
        descriptor = os.open(temporary, _CREATE, mode, dir_fd=place.folder)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                if before is not None:
                    os.fchmod(file.fileno(), mode)
                os.fsync(file.fileno())
            if expected is not None and FileVersion.of(place.status()) != expected:
                raise FileProblem(f"{place.shown} was changed meanwhile; read it again")
            os.rename(temporary, place.name, src_dir_fd=place.folder, dst_dir_fd=place.folder)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=place.folder)
            raise
    return before is None
