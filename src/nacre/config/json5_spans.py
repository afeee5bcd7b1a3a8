"""Where the members of an object stand in the text of a JSON5 document."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nacre.config.fields import object_without_showing
from nacre.config.json5_text import parse_json5

if TYPE_CHECKING:
    from collections.abc import Iterator

# For documents that are known to be sound, so it need not refuse anything.
_TOKEN = re.compile(
    r"""
    (?P<space> //[^\n\r\u2028\u2029]* | /\*.*?\*/ | [\s\ufeff]+ )
    | (?P<text> "(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*' )
    | (?P<mark> [{}\[\]:,] )
    | (?P<word> [^\s\ufeff{}\[\]:,"'/]+ )
    """,
    re.DOTALL | re.VERBOSE,
)
_OPENING = ("{", "[")
_CLOSING = ("}", "]")


@dataclass(frozen=True, kw_only=True, slots=True)
class MemberSpan:
    """A member: from its key to the end of its value, and past its comma if it has one."""

    key: str
    start: int
    value_start: int
    end: int
    comma_end: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class ObjectSpan:
    """An object: from its brace to the other, and what stands between."""

    start: int
    end: int
    members: tuple[MemberSpan, ...]

    def member(self, key: str) -> MemberSpan | None:
        return next((member for member in self.members if member.key == key), None)


def object_span(text: str, start: int = 0) -> ObjectSpan | None:
    """The object that begins at or after `start`; None where another value does."""
    tokens = _tokens(text, start)
    kind, opening, _ = next(tokens)
    if kind != "{":
        return None
    members: list[MemberSpan] = []
    for kind, begin, end in tokens:
        if kind == "}":
            return ObjectSpan(start=opening, end=end, members=tuple(members))
        key = _key(text[begin:end])
        next(tokens)
        value_start, value_end = _value(tokens)
        kind, _, mark_end = next(tokens)
        comma_end = mark_end if kind == "," else None
        members.append(
            MemberSpan(
                key=key, start=begin, value_start=value_start, end=value_end, comma_end=comma_end
            )
        )
        if comma_end is None:
            return ObjectSpan(start=opening, end=mark_end, members=tuple(members))
    raise ValueError("the object has no end")


def _value(tokens: Iterator[tuple[str, int, int]]) -> tuple[int, int]:
    kind, start, end = next(tokens)
    depth = 1 if kind in _OPENING else 0
    while depth:
        kind, _, end = next(tokens)
        depth += 1 if kind in _OPENING else -1 if kind in _CLOSING else 0
    return start, end


def _tokens(text: str, start: int) -> Iterator[tuple[str, int, int]]:
    """What is not space: a mark by itself, else `text` or `word`, with its ends."""
    for found in _TOKEN.finditer(text, start):
        if found.lastgroup != "space":
            kind = found[0] if found.lastgroup == "mark" else str(found.lastgroup)
            yield kind, found.start(), found.end()


def _key(token: str) -> str:
    # In quotes of either kind, or a name, which may have escapes as well.
    holder = object_without_showing(parse_json5(f"{{{token}: 0}}", path=token), token)
    return next(iter(holder))
