"""Writes stored events, page by page, and says how far it has come."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from nacre.cli.output import count_text, errors_are_on_terminal
from nacre.cli.stored_records import pages
from nacre.cli.trajectory.export_file import open_export
from nacre.json_types import encode_json

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from nacre.cli.output import Printer
    from nacre.cli.stored_records import RecordOf
    from nacre.storage import Store


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
