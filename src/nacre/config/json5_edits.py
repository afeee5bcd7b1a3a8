"""Set or remove a member or item in the text of a JSON5 document; all else, comments too, stays."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from nacre.config.fields import member_path
from nacre.config.json5_spans import container_span
from nacre.config.json5_text import parse_json5
from nacre.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nacre.config.json5_spans import ContainerSpan, MemberSpan
    from nacre.json_types import JsonValue

Key: TypeAlias = str | int
"""Of a member of an object, or of an item of a list by its place, from 0."""

_Edit: TypeAlias = tuple[int, int, str]
"""What stands from here to there becomes this."""

_Container: TypeAlias = dict[str, object] | list[object]

_DEFAULT_INDENT: Final = "  "
_BLANKS: Final = " \t\ufeff"
_NOTHING: Final = object()
_LINE_END = re.compile(r"\r\n|\n|\r")


def with_member(text: str, keys: Sequence[Key], value: JsonValue, *, path: str) -> str:
    """The text in which the member at `keys` has the value; what is missing on the way is made.

    A list can grow by one item, at its end. Raises ConfigError for `path`, the file, if it is not
    JSON5 or something else is in the way.
    """
    before = text if text.strip() else "{}\n"
    expected = parse_json5(before, path=path)
    _set(_parent(expected, keys, path), keys[-1], value, path)
    return _checked(_edited(before, _setting(before, keys, value)), expected, path)


def without_member(text: str, keys: Sequence[Key], *, path: str) -> str | None:
    """The text without the member at `keys`; None if it has no such member. Raises ConfigError."""
    if not text.strip():
        return None
    expected = parse_json5(text, path=path)
    if not _remove(_parent(expected, keys, path), keys[-1]):
        return None
    return _checked(_edited(text, _removing(text, keys)), expected, path)


def _parent(document: object, keys: Sequence[Key], path: str) -> _Container:
    """What the last key stands in, or would; made where there is none."""
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


def _checked(text: str, expected: object, path: str) -> str:
    """Read again what would be written: an edit that went wrong never reaches the file."""
    if parse_json5(text, path=path) != expected:
        raise ConfigError(path, "cannot be changed without harm; change it by hand")
    return text


def _edited(text: str, edits: Sequence[_Edit]) -> str:
    line_end = _LINE_END.search(text)
    pieces: list[str] = []
    done = 0
    for start, end, new in edits:
        pieces += text[done:start], new.replace("\n", line_end[0] if line_end else "\n")
        done = end
    return "".join((*pieces, text[done:]))


def _setting(text: str, keys: Sequence[Key], value: JsonValue) -> list[_Edit]:
    here, member, missing = _deepest(text, keys)
    indent = _indent_of(text)
    if member is not None:
        written = _written(value, _margin_at(text, member.start), indent)
        return [(member.value_start, member.end, written)]
    for key in reversed(missing[1:]):
        value = {key: value} if isinstance(key, str) else [value]
    return _inserting(text, here, missing[0], value, indent)


def _deepest(
    text: str, keys: Sequence[Key]
) -> tuple[ContainerSpan, MemberSpan | None, Sequence[Key]]:
    """What of the way is there: the last object or list, the member if it is, the other keys."""
    here = _container_at(text, 0)
    for depth, key in enumerate(keys):
        member = here.member(key)
        if member is None or depth == len(keys) - 1:
            return here, member, keys[depth:]
        here = _container_at(text, member.value_start)
    raise ValueError("a member has at least one key")


def _container_at(text: str, start: int) -> ContainerSpan:
    found = container_span(text, start)
    if found is None:
        raise ValueError("no object or list begins here")
    return found


def _inserting(
    text: str, here: ContainerSpan, key: Key, value: JsonValue, indent: str
) -> list[_Edit]:
    """Add a member as the last one, after the comments that follow the one before."""
    margin = _margin_at(text, here.start)
    last = here.members[-1] if here.members else None
    filled_until = here.start + 1 if last is None else last.comma_end or last.end
    place = filled_until + len(text[filled_until : here.end - 1].rstrip())
    inner = margin + indent
    edits: list[_Edit] = []
    has_comma = last is not None and last.comma_end is not None
    if last is not None:
        inner = _margin_at(text, last.start) if _begins_line(text, last.start) else inner
        if not has_comma:
            edits.append((last.end, last.end, ","))
    is_brace_on_own_line = _LINE_END.search(text, place, here.end - 1) is not None
    name = f"{json.dumps(key, ensure_ascii=False)}: " if isinstance(key, str) else ""
    line = f"\n{inner}{name}{_written(value, inner, indent)}"
    edits.append((place, place, f"{line}{',' if has_comma else ''}"))
    if not is_brace_on_own_line:
        edits.append((place, here.end - 1, f"\n{margin}"))
    return edits


def _removing(text: str, keys: Sequence[Key]) -> list[_Edit]:
    here, member, _ = _deepest(text, keys)
    if member is None:
        raise ValueError("no such member")
    index = here.members.index(member)
    edits: list[_Edit] = []
    if member.comma_end is None and index > 0:
        # The one before is the last now.
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


def _written(value: JsonValue, margin: str, indent: str) -> str:
    lines = json.dumps(value, indent=indent, ensure_ascii=False).split("\n")
    return f"\n{margin}".join(lines)


def _indent_of(text: str) -> str:
    """By how much the first member of the document is indented."""
    members = _container_at(text, 0).members
    is_on_own_line = bool(members) and _begins_line(text, members[0].start)
    return _margin_at(text, members[0].start) if is_on_own_line else _DEFAULT_INDENT


def _margin_at(text: str, position: int) -> str:
    line = text[_line_start(text, position) : position].lstrip("\ufeff")
    return line[: len(line) - len(line.lstrip(" \t"))]


def _begins_line(text: str, position: int) -> bool:
    return not text[_line_start(text, position) : position].strip(_BLANKS)


def _line_start(text: str, position: int) -> int:
    return max(text.rfind("\n", 0, position), text.rfind("\r", 0, position)) + 1
