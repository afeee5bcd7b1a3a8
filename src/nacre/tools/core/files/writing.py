"""Writing a file: whoever reads meanwhile, or after a crash, finds the old one or the new one."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from nacre.tools.core.files.workspace import FileProblem, kind_of, problems_of

if TYPE_CHECKING:
    from nacre.tools.core.files.workspace import Place

_MODE_OF_NEW_FILE: Final = 0o644
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def write_file(place: Place, data: bytes) -> bool:
    """Put the data there; whether the file is a new one. Raises FileProblem."""
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
                os.fchmod(file.fileno(), mode)
                os.fsync(file.fileno())
            os.rename(temporary, place.name, src_dir_fd=place.folder, dst_dir_fd=place.folder)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=place.folder)
            raise
    return before is None
