"""What may be kept of a value: no secrets, and not more than fits a record."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final, cast

from nacre.telemetry.secret_keys import is_amount, is_secret_key
from nacre.telemetry.secret_text import REDACTED, remove_secrets

if TYPE_CHECKING:
    from nacre.json_types import JsonValue

_MAX_KEY_CHARACTERS: Final = 200
_MAX_REMEMBERED_CHARACTERS: Final = 64
_MAX_DEPTH: Final = 32
_MAX_INTEGER_BITS: Final = 4096
# A secret that begins in what is shown is recognised by what follows it, within so many characters.
_LOOK_AHEAD_CHARACTERS: Final = 512
_BYTES_PER_ITEM: Final = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class Redaction:
    """The rules of one record. Whatever is put in, what comes out is JSON, a copy, and small."""

    keep_inputs: bool = True
    """Whether inputs of tools are kept at all, or only what kind of value they were."""
    max_text_characters: int = 2_000
    max_items: int = 1_000
    """How many values are kept of one value, over all its levels."""
    max_total_characters: int = 20_000
    """How much text is kept of one value, over all its levels."""

    def value(self, value: object) -> JsonValue:
        return self.sized_value(value)[0]

    def sized_value(self, value: object) -> tuple[JsonValue, int]:
        """The value as it may be kept, and about how many bytes of memory that takes."""
        walk = _Walk(self)
        kept = walk.value(value, 0)
        characters = self.max_total_characters - walk.characters_left
        return kept, (self.max_items - walk.items_left) * _BYTES_PER_ITEM + characters

    def text(self, text: str) -> str:
        return _truncate(text, self.max_text_characters)

    def input(self, value: object) -> JsonValue:
        """An input of a tool: as any other value, or a note where inputs are not kept."""
        return (
            self.value(value) if self.keep_inputs else f"[input not kept: {_describe_kind(value)}]"
        )


class _Walk:
    """One pass over one value; stops looking when what it may keep is used up."""

    def __init__(self, rules: Redaction) -> None:
        self._max_text_characters = rules.max_text_characters
        self.items_left = rules.max_items
        self.characters_left = rules.max_total_characters

    def value(self, value: object, depth: int) -> JsonValue:
        self.items_left -= 1
        if isinstance(value, str):
            return self._text(value)
        if value is None or isinstance(value, (int, float)):
            return _format_number(value)
        if depth >= _MAX_DEPTH:
            return f"[{_describe_kind(value)}, too deep to be kept]"
        if isinstance(value, (dict, Mapping)):
            return self._members(cast("Mapping[object, object]", value), depth)
        if isinstance(value, list | tuple):
            return self._items(cast("list[object] | tuple[object, ...]", value), depth)
        return f"[{_describe_kind(value)}]"

    def _members(self, members: Mapping[object, object], depth: int) -> JsonValue:
        kept: dict[str, JsonValue] = {}
        for count, (key, value) in enumerate(members.items()):
            if self.items_left <= 0 or self.characters_left <= 0:
                kept["…"] = f"[{len(members) - count:,} more members]"
                break
            name = key if isinstance(key, str) else str(key)
            shown, is_secret = _read_key(name)
            self.characters_left -= len(shown)
            if shown in kept:
                # Two long keys with the same beginning; neither may hide the other.
                shown = f"{shown} ({count})"
            if is_secret and _is_hidden(name, value):
                self.items_left -= 1
                kept[shown] = REDACTED
            else:
                kept[shown] = self.value(value, depth + 1)
        return kept

    def _items(self, items: list[object] | tuple[object, ...], depth: int) -> JsonValue:
        kept: list[JsonValue] = []
        for count, item in enumerate(items):
            if self.items_left <= 0 or self.characters_left <= 0:
                kept.append(f"[{len(items) - count:,} more items]")
                break
            kept.append(self.value(item, depth + 1))
        return kept

    def _text(self, text: str) -> str:
        limit = self._max_text_characters
        if self.characters_left < limit:
            limit = max(0, self.characters_left)
        shown = _truncate(text, limit)
        self.characters_left -= len(shown)
        return shown


def _read_key(key: str) -> tuple[str, bool]:
    """The key as it may be shown, and whether it stands for a secret."""
    # The same few keys come again and again; a long one is not worth the memory.
    return _read_short_key(key) if len(key) <= _MAX_REMEMBERED_CHARACTERS else _read_any_key(key)


def _read_any_key(key: str) -> tuple[str, bool]:
    return _truncate(key, _MAX_KEY_CHARACTERS), is_secret_key(key)


_read_short_key = lru_cache(maxsize=4096)(_read_any_key)


def _is_hidden(key: str, value: object) -> bool:
    # That there is none, or whether there is one, is no secret.
    return value is not None and not isinstance(value, bool) and not is_amount(key, value)


def _truncate(text: str, limit: int) -> str:
    if len(text) <= limit:
        return remove_secrets(text)
    clean = remove_secrets(text[: limit + _LOOK_AHEAD_CHARACTERS])
    shown = clean[: max(0, min(limit, len(clean) - _LOOK_AHEAD_CHARACTERS))]
    return f"{shown}… [{len(text):,} characters]"


def _format_number(value: float | None) -> JsonValue:
    """As JSON has it; numbers that JSON has not are told in words."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, int) and value.bit_length() > _MAX_INTEGER_BITS:
        return f"[integer of {value.bit_length():,} bits]"
    return value


def _describe_kind(value: object) -> str:
    match value:
        case str():
            return f"text of {len(value):,} characters"
        case Mapping():
            return f"object with {len(cast('Mapping[object, object]', value)):,} members"
        case list() | tuple():
            return f"list of {len(cast('list[object]', value)):,} items"
        case bytes() | bytearray():
            return f"{len(value):,} bytes"
        case _:
            return type(value).__name__
