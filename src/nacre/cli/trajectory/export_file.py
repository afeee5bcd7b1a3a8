"""Where an export goes: a file, which is there whole or not at all, or standard output."""

from __future__ import annotations

import os
import tempfile
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

import anyio
import anyio.to_thread

from nacre.cli.output import UsageProblem

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from nacre.cli.output import Printer


@asynccontextmanager
async def open_export(
    name: str | None, printer: Printer
) -> AsyncGenerator[Callable[[str], Awaitable[None]]]:
    """What writes text to the file, or to standard output for none and for `-`.

    Raises UsageProblem for a file that cannot be written.
    """
    if name in (None, "-"):

        async def write(text: str) -> None:
            printer.write(text)

        yield write
        return
    path = Path(name)
    try:
        file = await anyio.to_thread.run_sync(_open_temporary, path)
        try:

            async def write_to_file(text: str) -> None:
                await anyio.to_thread.run_sync(file.write, text)

            yield write_to_file
            await anyio.to_thread.run_sync(_replace_target, file, path)
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(_discard, file)
    except OSError as error:
        problem = f"cannot write {str(path)!r}: {error.strerror or error}"
        raise UsageProblem(problem) from error


def _open_temporary(path: Path) -> IO[str]:
    if path.is_dir():
        raise IsADirectoryError(None, "it is a folder")
    # Beside the file, and for its owner alone.
    return tempfile.NamedTemporaryFile(
        "w", encoding="utf-8", dir=path.parent, prefix=f".{path.name}.", delete=False
    )


def _replace_target(file: IO[str], path: Path) -> None:
    file.close()
    os.replace(file.name, path)


def _discard(file: IO[str]) -> None:
    file.close()
    # Nothing is there any more when it was finished.
    with suppress(OSError):
        os.unlink(file.name)
