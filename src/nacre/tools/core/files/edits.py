"""Replacing exact text: where it stands once, or everywhere, and what to say where it does not."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from nacre.tools.core.files.workspace import FileProblem

_MAX_LINES_COMPARED: Final = 5_000
_MAX_SHOWN: Final = 160


@dataclass(frozen=True, kw_only=True, slots=True)
class Edited:
    """The new text, and what was done to get there."""

    text: str
    count: int
    first_line: int


def edited(text: str, *, path: str, old: str, new: str, is_everywhere: bool) -> Edited:
    """The text with `old` replaced; raises FileProblem that says how to do better."""
    if not old:
        raise FileProblem("oldText is empty; write the file instead")
    if "\r\n" in text and "\r\n" not in old:
        # A model reads lines, not line ends.
        old, new = old.replace("\n", "\r\n"), new.replace("\r\n", "\n").replace("\n", "\r\n")
    count = text.count(old)
    if count == 0:
        raise FileProblem(f"oldText is not in {path}{_hint(text, old)}")
    if count > 1 and not is_everywhere:
        raise FileProblem(
            f"oldText is in {path} {count} times; add lines around it until it is there once, "
            "or set replaceAll"
        )
    if old == new:
        raise FileProblem("oldText and newText are the same; nothing to do")
    return Edited(
        text=text.replace(old, new),
        count=count,
        first_line=text.count("\n", 0, text.index(old)) + 1,
    )


def _hint(text: str, old: str) -> str:
    """The line that comes nearest to the first of those that were looked for."""
    wanted = next((line.strip() for line in old.splitlines() if line.strip()), "")
    lines = text.splitlines()[:_MAX_LINES_COMPARED]
    numbers = {line.strip(): number for number, line in enumerate(lines, start=1)}
    near = get_close_matches(wanted[:_MAX_SHOWN], numbers, n=1, cutoff=0.6)
    if not near:
        return "; read it first: every character has to be the same"
    return f"; the nearest is line {numbers[near[0]]}: {near[0][:_MAX_SHOWN]}"
