"""Says on a terminal which servers are still waited for."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from nacre.cli.output import cell_text, count_text, errors_are_on_terminal

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence


@contextmanager
def waiting_for_servers(names: Sequence[str]) -> Generator[Callable[[str], None]]:
    """Call what it gives with the name of each server that has mark_answered."""
    if not names or not errors_are_on_terminal():
        yield lambda _name: None
        return
    # Slow to import, and only people need it.
    from rich.console import Console
    from rich.text import Text

    waited_for = dict.fromkeys(names)

    def text() -> Text:
        # As text, not as markup.
        which = cell_text(", ".join(waited_for), most_characters=60)
        return Text(f"waiting for {count_text(len(waited_for), 'server')}: {which}")

    with Console(stderr=True).status(text()) as status:

        def mark_answered(name: str) -> None:
            waited_for.pop(name, None)
            if waited_for:
                status.update(text())
            else:
                status.stop()

        yield mark_answered
