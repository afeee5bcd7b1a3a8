"""Exports stored events as JSON Lines to a file or to standard output."""

from __future__ import annotations

import os
import tempfile
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

import anyio
import anyio.to_thread

from nacre.cli.output import UsageProblem, count_text, errors_are_on_terminal
from nacre.cli.stored_records import pages
from nacre.json_types import encode_json

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Generator

    from nacre.cli.output import Printer
    from nacre.cli.stored_records import RecordOf
    from nacre.storage import Store


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


async def export_events(
    store: Store, record: RecordOf, *, out: str | None, printer: Printer
) -> int:
    """How many were written; raises UsageProblem and StorageError."""
    count = 0
    is_on_screen = out in (None, "-") and printer.is_terminal
    with _progress(is_shown=not is_on_screen) as told:
        async with open_export(out, printer) as write:
            async for page in pages(store, record):
                lines: list[str] = []
                for stored in page:
                    # One row of numbers, so that the events of several runs can be read back.
                    line = encode_json({**stored.event, "sequence": count})
                    lines.append(f"{line.decode()}\n")
                    count += 1
                await write("".join(lines))
                told(count)
                if printer.problem is not None:
                    break
    return count


@contextmanager
def _progress(*, is_shown: bool) -> Generator[Callable[[int], None]]:
    """Call what it gives with how many are written; only people are told."""
    if not is_shown or not errors_are_on_terminal():
        yield lambda _count: None
        return
    # Slow to import, and only people need it.
    from rich.console import Console

    with Console(stderr=True).status("reading") as status:
        yield lambda count: status.update(f"{count_text(count, 'event')} written")
