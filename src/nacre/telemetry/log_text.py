"""Texts of others in our log: a line each, of bounded length, without what looks like a secret."""

from __future__ import annotations

from typing import Final

from nacre.telemetry.secret_text import remove_secrets

_MAX_LINE_CHARACTERS: Final = 500


def format_log_line(text: str) -> str:
    """What somebody else wrote, so that it cannot look like lines of our own."""
    # Cut first, with room for spaces that go: it may be megabytes long.
    head = remove_secrets(text[: 4 * _MAX_LINE_CHARACTERS])
    line = " ".join("".join(char if char.isprintable() else " " for char in head).split())
    is_whole = len(line) <= _MAX_LINE_CHARACTERS and len(text) <= 4 * _MAX_LINE_CHARACTERS
    return line if is_whole else f"{line[: _MAX_LINE_CHARACTERS - 1]}…"
