"""Text of others for a person to read: nothing in it can hide, pretend, or steer a screen."""

from __future__ import annotations

import unicodedata
from typing import Final

# Letters, marks and symbols that are drawn as nothing: joiners, fillers, variation selectors.
_DRAWN_AS_NOTHING: Final = frozenset(
    map(
        chr,
        (
            0x034F,
            0x115F,
            0x1160,
            0x17B4,
            0x17B5,
            *range(0x180B, 0x1810),
            0x2800,
            0x3164,
            *range(0xFE00, 0xFE10),
            0xFFA0,
            *range(0xE0100, 0xE01F0),
        ),
    )
)


def is_invisible(character: str) -> bool:
    """Whether a person does not see it, or not as what it is; a plain space is seen."""
    # Not printable are controls, format characters (writing directions, tags, soft hyphens), halves
    # of surrogate pairs, what no font has, and every space but the plain one.
    return not character.isprintable() or character in _DRAWN_AS_NOTHING


def escape(text: str) -> str:
    """The text with everything that is not seen spelled out, for somebody who has to judge it."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_spelled_out(it) if is_invisible(it) else it for it in text)


def escape_start(text: str, *, most_characters: int) -> str:
    """As `escape`; of a longer text its start, and how long it is."""
    if len(text) <= most_characters:
        return escape(text)
    return f"{escape(text[:most_characters])}… (cut: {len(text)} characters in all)"


def one_line(text: str, *, most_characters: int) -> str:
    """The words of the text; what is not seen is left out, since some languages write with it."""
    # Cut first, with room for what goes: a text may be megabytes long.
    start = text[: 4 * most_characters]
    words = " ".join(visible_lines(" ".join(start.split())).split())
    if len(words) <= most_characters and len(start) == len(text):
        return words
    return f"{words[:most_characters]}…"


def visible_lines(text: str) -> str:
    """The text with its lines and tabs; what else is not seen is left out."""
    lines = "\n".join(text.splitlines())
    return "".join(it for it in lines if it in "\n\t" or not _is_dropped(it))


def _is_dropped(character: str) -> bool:
    # A space of another width is still a space.
    return is_invisible(character) and unicodedata.category(character) != "Zs"


def _spelled_out(character: str) -> str:
    code = ord(character)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\u{{{code:x}}}"
