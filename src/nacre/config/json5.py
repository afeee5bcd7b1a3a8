"""Parses JSON5, and sets or removes one member of a text; all other text stays as it is."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from nacre.config.setting_paths import Key, member_path, object_at
from nacre.errors import ConfigError
from nacre.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from nacre.json_types import JsonValue


# The JSON5 parser takes 15 s for a megabyte. Strict JSON has no such limit.
_MAX_JSON5_CHARACTERS: Final = 1_000_000
_SYNTAX_ERROR = re.compile(r"^.*:(\d+) Unexpected (.*) at column (\d+)$", re.DOTALL)


def parse_json5(text: str, *, path: str) -> object:
    """The value; raises ConfigError for `path` with the place of the error, without any value.

    A key that is in one object twice is an error: one of the two would be lost.
    """
    try:
        # Most files are strict JSON, and its parser is a thousand times faster.
        return json.loads(text.removeprefix("\ufeff"), object_pairs_hook=_without_repeats)
    except RecursionError:
        raise _too_deep(path) from None
    except ValueError:
        return _parse_slowly(text, path)


def _parse_slowly(text: str, path: str) -> object:
    # 30 ms to import.
    import json5

    if len(text) > _MAX_JSON5_CHARACTERS:
        raise ConfigError(
            path,
            f"is not strict JSON and has {len(text)} characters; JSON with comments may have "
            f"{_MAX_JSON5_CHARACTERS}",
        )
    try:
        value: object = json5.loads(text, allow_duplicate_keys=False)
    except RecursionError:
        raise _too_deep(path) from None
    except ValueError as error:
        # Without its cause: a traceback would show content of the file.
        raise ConfigError(path, f"is not JSON5: {_problem(str(error))}") from None
    return value


def _without_repeats(members: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(members)
    if len(found) < len(members):
        # The JSON5 parser reports it, with a better message.
        raise ValueError("a key is there twice")
    return found


def _too_deep(path: str) -> ConfigError:
    return ConfigError(path, "is nested too deep to be a configuration")


def _problem(message: str) -> str:
    place = _SYNTAX_ERROR.match(message)
    if place is None:
        return message[:1].lower() + message[1:]
    line, found, column = place.groups()
    return f"line {line}, column {column}: unexpected {found}"


# For valid documents only: it does not detect errors.
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
class _MemberSpan:
    """A member: from its key to the end of its value, and past its comma if it has one.

    An item of a list has its place in it as its key, and begins with its value.
    """

    key: str | int
    start: int
    value_start: int
    end: int
    comma_end: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class _ContainerSpan:
    """An object or a list: from its brace or bracket to the other, with its members."""

    start: int
    end: int
    members: tuple[_MemberSpan, ...]

    def member(self, key: str | int) -> _MemberSpan | None:
        return next((member for member in self.members if member.key == key), None)


def _find_container(text: str, start: int = 0) -> _ContainerSpan | None:
    """The object or list that begins at or after `start`; None where another value does."""
    tokens = _tokens(text, start)
    mark, opening, _ = next(tokens)
    if mark not in _OPENING:
        return None
    members: list[_MemberSpan] = []
    for token in tokens:
        kind, begin, end = token
        if kind in _CLOSING:
            return _ContainerSpan(start=opening, end=end, members=tuple(members))
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
            _MemberSpan(
                key=key, start=begin, value_start=token[1], end=value_end, comma_end=comma_end
            )
        )
        if comma_end is None:
            return _ContainerSpan(start=opening, end=mark_end, members=tuple(members))
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
    holder = object_at(parse_json5(f"{{{token}: 0}}", path=token), token)
    return next(iter(holder))


_Edit: TypeAlias = tuple[int, int, str]
"""Replace the text from a start to an end."""

_BLANKS: Final = " \t\ufeff"
_LINE_END: Final = re.compile(r"\r\n|\n|\r")


def _apply(text: str, edits: Sequence[_Edit]) -> str:
    line_end = _LINE_END.search(text)
    pieces: list[str] = []
    done = 0
    for start, end, new in edits:
        pieces += text[done:start], new.replace("\n", line_end[0] if line_end else "\n")
        done = end
    return "".join((*pieces, text[done:]))


def _begins_line(text: str, position: int) -> bool:
    return not text[_line_start(text, position) : position].strip(_BLANKS)


def _line_start(text: str, position: int) -> int:
    return max(text.rfind("\n", 0, position), text.rfind("\r", 0, position)) + 1


_INDENT: Final = "  "


def _replace(
    text: str, way: Sequence[_ContainerSpan], member: _MemberSpan, value: JsonValue
) -> list[_Edit]:
    """Give a member of the last of `way` another value; `way` leads there from the outside in."""
    written = _format(value, 0 if _is_on_one_line(text, way[-1]) else len(way))
    return [(member.value_start, member.end, written)]


def _insert(text: str, way: Sequence[_ContainerSpan], key: Key, value: JsonValue) -> list[_Edit]:
    """Add a member at the end of the last of `way`, after the comments that follow the others."""
    here = way[-1]
    last = here.members[-1] if here.members else None
    edits: list[_Edit] = [] if last is None or last.comma_end else [(last.end, last.end, ",")]
    start = here.start + 1 if last is None else last.comma_end or last.end
    place = start + len(text[start : here.end - 1].rstrip())
    filled = next((span for span in reversed(way) if span.members), None)
    is_inline = filled is not None and _is_on_one_line(text, filled)
    depth = 0 if is_inline else len(way)
    name = "" if isinstance(key, int) else f"{_format(key, 0)}: "
    space = " " if place > here.start + 1 else ""
    line = space if is_inline else f"\n{_INDENT * depth}"
    # Removing the member again must restore the text.
    comma = "," if last is not None and last.comma_end else ""
    edits.append((place, place, f"{line}{name}{_format(value, depth)}{comma}"))
    if not is_inline and not _LINE_END.search(text, place, here.end - 1):
        edits.append((place, here.end - 1, f"\n{_INDENT * (depth - 1)}"))
    return edits


def _is_on_one_line(text: str, span: _ContainerSpan) -> bool:
    return _LINE_END.search(text, span.start, span.end) is None


def _format(value: JsonValue, depth: int) -> str:
    """JSON on lines of its own, at this depth of the document; on one line for 0."""
    indent = len(_INDENT) if depth else None
    return json.dumps(value, ensure_ascii=False, indent=indent).replace(
        "\n", f"\n{_INDENT * depth}"
    )


_Container: TypeAlias = dict[str, object] | list[object]

_NOTHING: Final = object()


def with_member(text: str, keys: Sequence[Key], value: JsonValue, *, path: str) -> str:
    """The text in which the member at `keys` has the value; missing objects and lists are added.

    A list can grow by one item, at its end. Raises ConfigError for `path`, the file, if it is not
    JSON5 or something else is in the way.
    """
    before = text if text.strip() else "{}\n"
    expected = parse_json5(before, path=path)
    _set(_parent(expected, keys, path), keys[-1], value, path)
    return _verify_edit(_apply(before, _edits_to_set(before, keys, value)), expected, path)


def without_member(text: str, keys: Sequence[Key], *, path: str) -> str | None:
    """The text without the member at `keys`; None if it has no such member. Raises ConfigError."""
    if not text.strip():
        return None
    expected = parse_json5(text, path=path)
    if not _remove(_parent(expected, keys, path), keys[-1]):
        return None
    return _verify_edit(_apply(text, _edits_to_remove(text, keys)), expected, path)


def _parent(document: object, keys: Sequence[Key], path: str) -> _Container:
    """The object or list of the last key; it is added if it is missing."""
    here, way = _container_for(document, keys[0], "", path), ""
    for key, next_key in pairwise(keys):
        found = _get(here, key)
        if found is _NOTHING:
            made: _Container = {} if isinstance(next_key, str) else []
            _set(here, key, made, path)
            found = made
        way = f"{way}[{key}]" if isinstance(key, int) else member_path(way, key)
        here = _container_for(found, next_key, way, path)
    return here


def _container_for(value: object, key: Key, way: str, path: str) -> _Container:
    if isinstance(value, dict if isinstance(key, str) else list):
        return cast("_Container", value)
    kind, place = "object" if isinstance(key, str) else "list", f"at `{way}`" if way else "in it"
    raise ConfigError(path, f"has no {kind} {place}; change it by hand")


def _get(here: _Container, key: Key) -> object:
    if isinstance(here, dict):
        return here.get(str(key), _NOTHING)
    return here[int(key)] if int(key) < len(here) else _NOTHING


def _set(here: _Container, key: Key, value: object, path: str) -> None:
    if isinstance(here, dict):
        here[str(key)] = value
    elif int(key) < len(here):
        here[int(key)] = value
    elif int(key) == len(here):
        here.append(value)
    else:
        raise ConfigError(path, f"has a list of {len(here)} there, so [{key}] would leave a gap")


def _remove(here: _Container, key: Key) -> bool:
    if isinstance(here, dict):
        return here.pop(str(key), _NOTHING) is not _NOTHING
    if int(key) >= len(here):
        return False
    del here[int(key)]
    return True


def _verify_edit(text: str, expected: object, path: str) -> str:
    """Parse the new text before it is written, so that a wrong edit never reaches the file."""
    if parse_json5(text, path=path) != expected:
        raise ConfigError(path, "cannot be changed safely; change it by hand")
    return text


def _edits_to_set(text: str, keys: Sequence[Key], value: JsonValue) -> list[_Edit]:
    way, member, missing = _deepest(text, keys)
    if member is not None:
        return _replace(text, way, member, value)
    for key in reversed(missing[1:]):
        value = {key: value} if isinstance(key, str) else [value]
    return _insert(text, way, missing[0], value)


def _deepest(
    text: str, keys: Sequence[Key]
) -> tuple[list[_ContainerSpan], _MemberSpan | None, Sequence[Key]]:
    """What of the way is there: its objects and lists, the member if it is, the other keys."""
    way = [_container_at(text, 0)]
    for depth, key in enumerate(keys):
        member = way[-1].member(key)
        if member is None or depth == len(keys) - 1:
            return way, member, keys[depth:]
        way.append(_container_at(text, member.value_start))
    raise ValueError("a member has at least one key")


def _container_at(text: str, start: int) -> _ContainerSpan:
    found = _find_container(text, start)
    if found is None:
        raise ValueError("no object or list begins here")
    return found


def _edits_to_remove(text: str, keys: Sequence[Key]) -> list[_Edit]:
    way, member, _ = _deepest(text, keys)
    if member is None:
        raise ValueError("no such member")
    here = way[-1]
    index = here.members.index(member)
    edits: list[_Edit] = []
    if member.comma_end is None and index > 0:
        # The member before it is now the last.
        comma_end = here.members[index - 1].comma_end or 0
        edits.append((comma_end - 1, comma_end, ""))
    start, end = _with_blanks(text, member.start, member.comma_end or member.end)
    return [*edits, (start, end, "")]


def _with_blanks(text: str, start: int, end: int) -> tuple[int, int]:
    """Take the whole line if nothing else is on it, else the blanks that would be too many."""
    after = end + len(text[end:]) - len(text[end:].lstrip(_BLANKS))
    line_end = _LINE_END.match(text, after)
    if _begins_line(text, start) and line_end:
        return _line_start(text, start), line_end.end()
    if text[after] in "}]":
        return len(text[:start].rstrip(_BLANKS)), end
    return start, after
