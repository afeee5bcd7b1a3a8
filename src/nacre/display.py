"""Formats untrusted text and tool input for a person: nothing in it is hidden.

A program chooses the input and the order of its keys, so no part may push another out of view.
"""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, Final

from nacre.errors import NacreError
from nacre.json_types import encode_json

if TYPE_CHECKING:
    from nacre.json_types import JsonValue


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
    """Whether a person cannot see the character as what it is. A plain space is visible."""
    # Not printable: controls, format characters (writing directions, tags, soft hyphens), halves
    # of surrogate pairs, unassigned characters, and every space but the plain one.
    return not character.isprintable() or character in _DRAWN_AS_NOTHING


def escape(text: str) -> str:
    """Replace each invisible character by an escape, for a person who has to judge the text."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escape_character(it) if is_invisible(it) else it for it in text)


def escape_start(text: str, *, most_characters: int) -> str:
    """Escape the text; a longer text is cut, and its length is stated."""
    if len(text) <= most_characters:
        return escape(text)
    return f"{escape(text[:most_characters])}… (cut: {len(text)} characters in all)"


def one_line(text: str, *, most_characters: int) -> str:
    """Put the words on one line, without invisible characters, which some languages write with."""
    # Cut first, with some reserve: a text may be megabytes long.
    start = text[: 4 * most_characters]
    words = " ".join(visible_lines(" ".join(start.split())).split())
    if len(words) <= most_characters and len(start) == len(text):
        return words
    return f"{words[:most_characters]}…"


def visible_lines(text: str) -> str:
    """Drop invisible characters, except line ends and tabs."""
    lines = "\n".join(text.splitlines())
    return "".join(it for it in lines if it in "\n\t" or not _is_dropped(it))


def _is_dropped(character: str) -> bool:
    # A space of another width is still a space.
    return is_invisible(character) and unicodedata.category(character) != "Zs"


def _escape_character(character: str) -> str:
    code = ord(character)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\u{{{code:x}}}"


MAX_SHOWN_CHARACTERS: Final = 4_000
# Characters shown of each text: the first limit with which the whole fits.
_TEXT_LIMITS: Final = (4_000, 2_000, 1_000, 500, 250, 120, 60, 30)
_MAX_LEVELS: Final = 32


class UnshowableInputError(NacreError):
    """The input is too large for a person to see every part of it."""

    def __init__(self) -> None:
        super().__init__(
            "the input has too many parts to be shown to the person who has to approve it: at "
            f"most {MAX_SHOWN_CHARACTERS} characters besides long texts, {_MAX_LEVELS} levels "
            "deep; split it over several calls"
        )


def format_input(value: JsonValue) -> str:
    """Format as JSON with short members first; long texts are cut, and their length is stated.

    Raises UnshowableInputError.
    """
    part_characters, text_lengths = _measure(value)
    for limit in _TEXT_LIMITS:
        at_least = part_characters + sum(min(length, limit) for length in text_lengths)
        # Skip limits that cannot fit: an input may be megabytes long.
        if at_least <= MAX_SHOWN_CHARACTERS:
            shown = _format(value, limit)
            if len(shown) <= MAX_SHOWN_CHARACTERS:
                return shown
    raise UnshowableInputError


def _measure(value: JsonValue) -> tuple[int, list[int]]:
    """Count the characters besides texts, at least, and the length of each text."""
    characters, text_lengths = 0, list[int]()
    level = [value]
    for _ in range(_MAX_LEVELS):
        inner: list[JsonValue] = []
        for part in level:
            characters += 1
            match part:
                case dict():
                    characters += sum(len(key) for key in part) + len(part)
                    inner.extend(part.values())
                case list():
                    characters += len(part)
                    inner.extend(part)
                case str():
                    text_lengths.append(len(part))
                case _:
                    pass
            if characters > MAX_SHOWN_CHARACTERS:
                raise UnshowableInputError
        if not inner:
            return characters, text_lengths
        level = inner
    raise UnshowableInputError


def _format(value: JsonValue, text_limit: int) -> str:
    match value:
        case dict():
            members = [f"{_encode(key)}:{_format(it, text_limit)}" for key, it in value.items()]
            return f"{{{','.join(sorted(members, key=len))}}}"
        case list():
            return f"[{','.join([_format(it, text_limit) for it in value])}]"
        case str() if len(value) > text_limit:
            # After the closing quote, where no text can fake it.
            return f"{_encode(value[:text_limit])}… (cut: {len(value)} characters in all)"
        case _:
            return _encode(value)


def _encode(value: JsonValue) -> str:
    return escape(encode_json(value).decode())
