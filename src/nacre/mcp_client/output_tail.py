"""The last lines that a process wrote; however much it writes, these are few and short."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_MAX_LINES: Final = 20
_MAX_LINE_CHARACTERS: Final = 400


class OutputTail:
    """Takes bytes as they come; `clean` takes secrets out of what is shown."""

    def __init__(self, clean: Callable[[str], str] = str) -> None:
        self._clean = clean
        self._lines: deque[str] = deque(maxlen=_MAX_LINES)
        self._open = b""

    @property
    def lines(self) -> tuple[str, ...]:
        """The last lines, oldest first; also the one that has not ended."""
        shown = (self._clean(line) for line in (*self._lines, _format_line(self._open)) if line)
        return tuple(line[:_MAX_LINE_CHARACTERS] for line in shown)[-_MAX_LINES:]

    @property
    def last(self) -> str:
        lines = self.lines
        return lines[-1] if lines else ""

    def add(self, chunk: bytes) -> None:
        """More of the output."""
        # Looked at from its end: of a flood, only what is kept costs anything.
        *ended, rest = chunk.rsplit(b"\n", _MAX_LINES + 1)
        if not ended:
            self._open = (self._open + rest)[: 4 * _MAX_LINE_CHARACTERS]
            return
        self._note(self._open + ended[0][: 4 * _MAX_LINE_CHARACTERS])
        for line in ended[1:]:
            self._note(line)
        self._open = rest[: 4 * _MAX_LINE_CHARACTERS]

    def add_line(self, line: bytes, *, label: str) -> None:
        """A line from elsewhere."""
        self._lines.append(f"{label}: {_format_line(line)}")

    def _note(self, line: bytes) -> None:
        if shown := _format_line(line):
            self._lines.append(shown)


def _format_line(line: bytes) -> str:
    # Twice what is shown, so that a secret at the cut is seen as a whole.
    text = line[: 4 * _MAX_LINE_CHARACTERS].decode(errors="replace")
    printable = "".join(char if char.isprintable() else " " for char in text)
    return printable.strip()[: 2 * _MAX_LINE_CHARACTERS]
