"""Replacing exact text: where it stands once, or everywhere, and what to say where it does not."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import SequenceMatcher
from heapq import nlargest
from typing import Final

from nacre.tools.core.workspace import FileProblem

# What is there after an edit can be edited again.
MAX_EDITED_CHARACTERS: Final = 4 * 1024 * 1024
_MAX_LINES_COMPARED: Final = 5_000
# The closer look takes time that grows with the square of the line.
_MAX_LINES_COMPARED_CLOSELY: Final = 20
_MIN_LIKENESS: Final = 0.6
_MAX_SHOWN: Final = 160
# Longer ones cannot be alike enough.
_MAX_COMPARED: Final = 400


@dataclass(frozen=True, kw_only=True, slots=True)
class Edited:
    """The new text, and what was done to get there."""

    text: str
    count: int
    first_line: int


def replace_text(text: str, *, path: str, old: str, new: str, is_everywhere: bool) -> Edited:
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
    characters = len(text) + count * (len(new) - len(old))
    if characters > max(len(text), MAX_EDITED_CHARACTERS):
        raise FileProblem(
            f"{path} would have {characters} characters; an edit may make it "
            f"{MAX_EDITED_CHARACTERS} at most"
        )
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
    near = _nearest(wanted[:_MAX_SHOWN], [line for line in numbers if len(line) <= _MAX_COMPARED])
    if near is None:
        return "; read it first: every character has to be the same"
    return f"; the nearest is line {numbers[near]}: {near[:_MAX_SHOWN]}"


def _nearest(wanted: str, lines: list[str]) -> str | None:
    likeness = SequenceMatcher[str](None, "", wanted)

    def quick_likeness(line: str) -> float:
        likeness.set_seq1(line)
        return likeness.quick_ratio()

    def exact_likeness(line: str) -> float:
        likeness.set_seq1(line)
        return likeness.ratio()

    likely = nlargest(_MAX_LINES_COMPARED_CLOSELY, lines, key=quick_likeness)
    best = max(likely, key=exact_likeness, default=None)
    return best if best is not None and exact_likeness(best) >= _MIN_LIKENESS else None
