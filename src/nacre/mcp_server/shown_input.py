"""The input of a call for a person to judge: every key and every item, long texts shortened.

A program picks the input, and the order of its keys: nothing may push a part of it out of sight.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from nacre.errors import NacreError
from nacre.json_types import encode_json
from nacre.mcp_server.shown_text import escape

if TYPE_CHECKING:
    from nacre.json_types import JsonValue

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
