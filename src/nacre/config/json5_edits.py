"""Set or remove a member or item in the text of a JSON5 document; all else, comments too, stays."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from nacre.config.fields import member_path
from nacre.config.json5_insertions import inserting, replacing
from nacre.config.json5_lines import BLANKS, LINE_END, apply_edits, begins_line, line_start
from nacre.config.json5_spans import container_span
from nacre.config.json5_text import parse_json5
from nacre.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nacre.config.json5_lines import Edit
    from nacre.config.json5_spans import ContainerSpan, MemberSpan
    from nacre.json_types import JsonValue

Key: TypeAlias = str | int
"""Of a member of an object, or of an item of a list by its place, from 0."""

_Container: TypeAlias = dict[str, object] | list[object]

_NOTHING: Final = object()


def with_member(text: str, keys: Sequence[Key], value: JsonValue, *, path: str) -> str:
    """The text in which the member at `keys` has the value; what is missing on the way is made.

    A list can grow by one item, at its end. Raises ConfigError for `path`, the file, if it is not
    JSON5 or something else is in the way.
    """
    before = text if text.strip() else "{}\n"
    expected = parse_json5(before, path=path)
    _set(_parent(expected, keys, path), keys[-1], value, path)
    return _verify_edit(apply_edits(before, _setting(before, keys, value)), expected, path)


def without_member(text: str, keys: Sequence[Key], *, path: str) -> str | None:
    """The text without the member at `keys`; None if it has no such member. Raises ConfigError."""
    if not text.strip():
        return None
    expected = parse_json5(text, path=path)
    if not _remove(_parent(expected, keys, path), keys[-1]):
        return None
    return _verify_edit(apply_edits(text, _removing(text, keys)), expected, path)


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


def _verify_edit(text: str, expected: object, path: str) -> str:
    """Read again what would be written: an edit that went wrong never reaches the file."""
    if parse_json5(text, path=path) != expected:
        raise ConfigError(path, "cannot be changed without harm; change it by hand")
    return text


def _setting(text: str, keys: Sequence[Key], value: JsonValue) -> list[Edit]:
    way, member, missing = _deepest(text, keys)
    if member is not None:
        return replacing(text, way, member, value)
    for key in reversed(missing[1:]):
        value = {key: value} if isinstance(key, str) else [value]
    return inserting(text, way, missing[0], value)


def _deepest(
    text: str, keys: Sequence[Key]
) -> tuple[list[ContainerSpan], MemberSpan | None, Sequence[Key]]:
    """What of the way is there: its objects and lists, the member if it is, the other keys."""
    way = [_container_at(text, 0)]
    for depth, key in enumerate(keys):
        member = way[-1].member(key)
        if member is None or depth == len(keys) - 1:
            return way, member, keys[depth:]
        way.append(_container_at(text, member.value_start))
    raise ValueError("a member has at least one key")


def _container_at(text: str, start: int) -> ContainerSpan:
    found = container_span(text, start)
    if found is None:
        raise ValueError("no object or list begins here")
    return found


def _removing(text: str, keys: Sequence[Key]) -> list[Edit]:
    way, member, _ = _deepest(text, keys)
    if member is None:
        raise ValueError("no such member")
    here = way[-1]
    index = here.members.index(member)
    edits: list[Edit] = []
    if member.comma_end is None and index > 0:
        # The one before is the last now.
        comma_end = here.members[index - 1].comma_end or 0
        edits.append((comma_end - 1, comma_end, ""))
    start, end = _with_blanks(text, member.start, member.comma_end or member.end)
    return [*edits, (start, end, "")]


def _with_blanks(text: str, start: int, end: int) -> tuple[int, int]:
    """Take the whole line if nothing else is on it, else the blanks that would be too many."""
    after = end + len(text[end:]) - len(text[end:].lstrip(BLANKS))
    line_end = LINE_END.match(text, after)
    if begins_line(text, start) and line_end:
        return line_start(text, start), line_end.end()
    if text[after] in "}]":
        return len(text[:start].rstrip(BLANKS)), end
    return start, after
