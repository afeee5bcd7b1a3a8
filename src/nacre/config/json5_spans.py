"""Where the members of an object, or the items of a list, stand in the text of a document."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

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
_Token: TypeAlias = tuple[str, int, int]
_OPENING = ("{", "[")
_CLOSING = ("}", "]")


@dataclass(frozen=True, kw_only=True, slots=True)
class MemberSpan:
    """A member: from its key to the end of its value, and past its comma if it has one.

    An item of a list has its place in it as its key, and begins with its value.
    """

    key: str | int
    start: int
    value_start: int
    end: int
    comma_end: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class ContainerSpan:
    """An object or a list: from its brace or bracket to the other, and what stands between."""

    start: int
    end: int
    members: tuple[MemberSpan, ...]

    def member(self, key: str | int) -> MemberSpan | None:
        return next((member for member in self.members if member.key == key), None)


def container_span(text: str, start: int = 0) -> ContainerSpan | None:
    """The object or list that begins at or after `start`; None where another value does."""
    tokens = _tokens(text, start)
    mark, opening, _ = next(tokens)
    if mark not in _OPENING:
        return None
    members: list[MemberSpan] = []
    for token in tokens:
        kind, begin, end = token
        if kind in _CLOSING:
            return ContainerSpan(start=opening, end=end, members=tuple(members))
        if mark == "{":
            key = _key(text[begin:end])
            next(tokens)
            token = next(tokens)
        else:
            key = len(members)
        value_end = _end_of_value(token, tokens)
        kind, _, mark_end = next(tokens)
        comma_end = mark_end if kind == "," else None
        members.append(
            MemberSpan(
                key=key, start=begin, value_start=token[1], end=value_end, comma_end=comma_end
            )
        )
        if comma_end is None:
            return ContainerSpan(start=opening, end=mark_end, members=tuple(members))
    raise ValueError("it has no end")


def _end_of_value(first: _Token, tokens: Iterator[_Token]) -> int:
    kind, _, end = first
    depth = 1 if kind in _OPENING else 0
    while depth:
        kind, _, end = next(tokens)
        depth += 1 if kind in _OPENING else -1 if kind in _CLOSING else 0
    return end


def _tokens(text: str, start: int) -> Iterator[_Token]:
    """What is not space: a mark by itself, else `text` or `word`, with its ends."""
    for found in _TOKEN.finditer(text, start):
        if found.lastgroup != "space":
            kind = found[0] if found.lastgroup == "mark" else str(found.lastgroup)
            yield kind, found.start(), found.end()


def _key(token: str) -> str:
    # In quotes of either kind, or a name, which may have escapes as well.
    holder = object_without_showing(parse_json5(f"{{{token}: 0}}", path=token), token)
    return next(iter(holder))
