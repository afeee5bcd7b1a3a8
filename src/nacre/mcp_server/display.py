"""Formats untrusted text and tool input for a person: nothing in it is hidden.

A program picks the input, and the order of its keys: nothing may push a part of it out of sight.
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


MAX_SHOWN_CHARACTERS: Final = 4_000
# How much of each text is shown: the first that makes the whole fit.
_TEXT_LIMITS: Final = (4_000, 2_000, 1_000, 500, 250, 120, 60, 30)
_MAX_LEVELS: Final = 32


class UnshowableInputError(NacreError):
    """An input of which a person could not see every part."""

    def __init__(self) -> None:
        super().__init__(
            "the input has too many parts to be shown to the person who has to approve it: at "
            f"most {MAX_SHOWN_CHARACTERS} characters besides long texts, {_MAX_LEVELS} levels "
            "deep; split it over several calls"
        )


def format_input(value: JsonValue) -> str:
    """JSON with short members first; says of each text that is cut how long it is.

    Raises UnshowableInputError.
    """
    part_characters, text_lengths = _measure(value)
    for limit in _TEXT_LIMITS:
        at_least = part_characters + sum(min(length, limit) for length in text_lengths)
        # Not even tried where it cannot fit: an input may be megabytes long.
        if at_least <= MAX_SHOWN_CHARACTERS:
            shown = _format(value, limit)
            if len(shown) <= MAX_SHOWN_CHARACTERS:
                return shown
    raise UnshowableInputError


def _measure(value: JsonValue) -> tuple[int, list[int]]:
    """How many characters it takes at least without its texts, and how long each of these is."""
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
            members = [f"{_exact(key)}:{_format(it, text_limit)}" for key, it in value.items()]
            return f"{{{','.join(sorted(members, key=len))}}}"
        case list():
            return f"[{','.join([_format(it, text_limit) for it in value])}]"
        case str() if len(value) > text_limit:
            # After the quotes: a text that says that it is cut is not.
            return f"{_exact(value[:text_limit])}… (cut: {len(value)} characters in all)"
        case _:
            return _exact(value)


def _exact(value: JsonValue) -> str:
    return escape(encode_json(value).decode())
