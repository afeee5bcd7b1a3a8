"""Parses JSON5 and edits it in place; comments and the order of members stay."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from nacre.config.setting_paths import Key, member_path, object_at
from nacre.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from nacre.json_types import JsonValue


# The reader of JSON5 takes 15 s for a megabyte; strict JSON is not bound by this.
_MAX_JSON5_CHARACTERS: Final = 1_000_000
_SYNTAX_ERROR = re.compile(r"^.*:(\d+) Unexpected (.*) at column (\d+)$", re.DOTALL)


def parse_json5(text: str, *, path: str) -> object:
    """The value; raises ConfigError for `path`, which says where it breaks and shows no value.

    A key that stands twice in one object is refused: one of the two would be lost.
    """
    try:
        # Most files are strict JSON, and this is a thousand times as fast.
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
        # Without its cause: a traceback would show what the reader held.
        raise ConfigError(path, f"is not JSON5: {_problem(str(error))}") from None
    return value


def _without_repeats(members: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(members)
    if len(found) < len(members):
        # Told by the other reader, which knows the words.
        raise ValueError("a key stands twice")
    return found


def _too_deep(path: str) -> ConfigError:
    return ConfigError(path, "is nested too deep to be a configuration")


def _problem(message: str) -> str:
    place = _SYNTAX_ERROR.match(message)
    if place is None:
        return message[:1].lower() + message[1:]
    line, found, column = place.groups()
    return f"line {line}, column {column}: unexpected {found}"


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
    holder = object_at(parse_json5(f"{{{token}: 0}}", path=token), token)
    return next(iter(holder))


Edit: TypeAlias = tuple[int, int, str]
"""What stands from here to there becomes this."""

BLANKS: Final = " \t\ufeff"
LINE_END: Final = re.compile(r"\r\n|\n|\r")


def apply_edits(text: str, edits: Sequence[Edit]) -> str:
    line_end = LINE_END.search(text)
    pieces: list[str] = []
    done = 0
    for start, end, new in edits:
        pieces += text[done:start], new.replace("\n", line_end[0] if line_end else "\n")
        done = end
    return "".join((*pieces, text[done:]))


def margin_at(text: str, position: int) -> str:
    line = text[line_start(text, position) : position].lstrip("\ufeff")
    return line[: len(line) - len(line.lstrip(" \t"))]


def begins_line(text: str, position: int) -> bool:
    return not text[line_start(text, position) : position].strip(BLANKS)


def line_start(text: str, position: int) -> int:
    return max(text.rfind("\n", 0, position), text.rfind("\r", 0, position)) + 1


_PLAIN_KEY = re.compile(r"[A-Za-z_$][\w$]*", re.ASCII)
# Names all the same, but not every reader takes them for one.
_WORDS: Final = ("null", "true", "false", "NaN", "Infinity")


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """The habits of whoever wrote the document."""

    indent: str
    has_plain_keys: bool
    """`port: 1`, not `"port": 1`, where the key can be written so."""
    has_padded_braces: bool
    """`{ port: 1 }`, not `{port: 1}`, on one line."""

    def member(self, key: str | int, value: str) -> str:
        """The member; of a list, the item alone."""
        return value if isinstance(key, int) else f"{self._key(key)}: {value}"

    def on_one_line(self, value: JsonValue) -> str:
        match value:
            case dict() if value:
                members = [f"{self._key(k)}: {self.on_one_line(v)}" for k, v in value.items()]
                pad = " " if self.has_padded_braces else ""
                return f"{{{pad}{', '.join(members)}{pad}}}"
            case list() if value:
                return f"[{', '.join(map(self.on_one_line, value))}]"
            case _:
                return _scalar(value)

    def on_lines(self, value: JsonValue, margin: str) -> str:
        """Each member on a line of its own, below a line that begins with `margin`."""
        inner = margin + self.indent
        match value:
            case dict() if value:
                lines = [f"{self._key(k)}: {self.on_lines(v, inner)}" for k, v in value.items()]
                opening, closing = "{", "}"
            case list() if value:
                lines = [self.on_lines(item, inner) for item in value]
                opening, closing = "[", "]"
            case _:
                return _scalar(value)
        listed = f",\n{inner}".join(lines)
        return f"{opening}\n{inner}{listed}\n{margin}{closing}"

    def _key(self, key: str) -> str:
        is_plain = self.has_plain_keys and _PLAIN_KEY.fullmatch(key) and key not in _WORDS
        return key if is_plain else _scalar(key)


def _scalar(value: JsonValue) -> str:
    return json.dumps(value, ensure_ascii=False)


_DEFAULT_INDENT: Final = "  "
_MAX_LINE_CHARACTERS: Final = 100


def replacing(
    text: str, way: Sequence[ContainerSpan], member: MemberSpan, value: JsonValue
) -> list[Edit]:
    """Another value for a member of the last of `way`, the objects and lists that lead there."""
    layout = _layout_of(text, way)
    edits = [(member.value_start, member.end, layout.on_one_line(value))]
    if _is_inline(text, way) and _fits(text, edits, way[-1]):
        return edits
    written = layout.on_lines(value, margin_at(text, member.start))
    return [(member.value_start, member.end, written)]


def inserting(
    text: str, way: Sequence[ContainerSpan], key: str | int, value: JsonValue
) -> list[Edit]:
    """One more member, the last one, for the last of `way`."""
    layout = _layout_of(text, way)
    if _is_inline(text, way):
        return _inserting_inline(text, way, key, value, layout)
    return _inserting_on_lines(text, way[-1], key, value, layout)


def _inserting_on_lines(
    text: str, here: ContainerSpan, key: str | int, value: JsonValue, layout: Layout
) -> list[Edit]:
    """Add a member as the last one, after the comments that follow the one before."""
    margin = margin_at(text, here.start)
    place, inner = _end_of_filled(text, here), margin + layout.indent
    last = here.members[-1] if here.members else None
    if last is not None and begins_line(text, last.start):
        inner = margin_at(text, last.start)
    is_brace_on_own_line = LINE_END.search(text, place, here.end - 1) is not None
    written = layout.member(key, layout.on_lines(value, inner))
    edits = [*_comma_after(last), (place, place, f"\n{inner}{written}{_comma_like(last)}")]
    if not is_brace_on_own_line:
        edits.append((place, here.end - 1, f"\n{margin}"))
    return edits


def _inserting_inline(
    text: str, way: Sequence[ContainerSpan], key: str | int, value: JsonValue, layout: Layout
) -> list[Edit]:
    """Add a member to those that stand on one line. If that would be too long, what is open on it
    gets a line for each member, from the outside in."""
    spans = [span for span in way if _is_on_one_line(text, span)]
    margin = margin_at(text, spans[0].start)
    added = _added_inline(text, way[-1], key, value, layout)
    for count in range(len(spans)):
        edits = _sort_edits([*_breaking(text, spans[:count], margin, layout), *added])
        if _fits(text, edits, spans[0]):
            return edits
    here, outer = way[-1], margin + layout.indent * (len(spans) - 1)
    *broken, (place, end, closing) = _breaking(text, spans, margin, layout)
    last, inner = here.members[-1] if here.members else None, outer + layout.indent
    written = layout.member(key, layout.on_lines(value, inner))
    new = (place, end, f"\n{inner}{written}{_comma_like(last)}{closing}")
    return _sort_edits([*broken, *_comma_after(last), new])


def _added_inline(
    text: str, here: ContainerSpan, key: str | int, value: JsonValue, layout: Layout
) -> list[Edit]:
    written = layout.member(key, layout.on_one_line(value))
    place = _end_of_filled(text, here)
    if place == here.start + 1:
        pad = " " if layout.has_padded_braces and isinstance(key, str) else ""
        return [(place, here.end - 1, f"{pad}{written}{pad}")]
    last = here.members[-1] if here.members else None
    return [*_comma_after(last), (place, place, f" {written}{_comma_like(last)}")]


def _breaking(text: str, spans: Sequence[ContainerSpan], margin: str, layout: Layout) -> list[Edit]:
    """A line for each member of these, of which each stands in the one before it; last comes the
    one before the brace of the last."""
    edits: list[Edit] = []
    for depth, span in enumerate(spans):
        outer = margin + layout.indent * depth
        for member in span.members:
            blank = len(text[: member.start].rstrip(BLANKS))
            edits.append((blank, member.start, f"\n{outer}{layout.indent}"))
        edits.append((_end_of_filled(text, span), span.end - 1, f"\n{outer}"))
    return edits


def _sort_edits(edits: Sequence[Edit]) -> list[Edit]:
    """By their places; those for one place stay in their order."""
    return sorted(edits, key=lambda edit: edit[:2])


def _comma_after(last: MemberSpan | None) -> list[Edit]:
    """The comma that the last member needs when another one follows."""
    return [] if last is None or last.comma_end else [(last.end, last.end, ",")]


def _comma_like(last: MemberSpan | None) -> str:
    return "," if last is not None and last.comma_end else ""


def _end_of_filled(text: str, here: ContainerSpan) -> int:
    """Where the last member and the comments after it end."""
    last = here.members[-1] if here.members else None
    start = here.start + 1 if last is None else last.comma_end or last.end
    return start + len(text[start : here.end - 1].rstrip())


def _is_inline(text: str, way: Sequence[ContainerSpan]) -> bool:
    """Whether the last of them has its members on one line; an empty one, as it stands in one."""
    filled = [span for span in way if span.members]
    return bool(filled) and all(
        _is_on_one_line(text, span) for span in way[way.index(filled[-1]) :]
    )


def _is_on_one_line(text: str, span: ContainerSpan) -> bool:
    return LINE_END.search(text, span.start, span.end) is None


def _fits(text: str, edits: Sequence[Edit], outermost: ContainerSpan) -> bool:
    """Whether no line of the object or list gets too long."""
    changed, start = apply_edits(text, edits), line_start(text, outermost.start)
    end = LINE_END.search(changed, outermost.end + len(changed) - len(text))
    lines = LINE_END.split(changed[start : end.start() if end else None])
    return max(map(len, lines)) <= _MAX_LINE_CHARACTERS


def _layout_of(text: str, way: Sequence[ContainerSpan]) -> Layout:
    lines = [span for span in way if span.members and _is_on_one_line(text, span)]
    return Layout(
        indent=_indent_of(text, way[0]),
        has_plain_keys=any(
            isinstance(member.key, str) and text[member.start] not in "\"'"
            for span in way
            for member in span.members
        ),
        has_padded_braces=any(text[span.start : span.start + 2] == "{ " for span in lines),
    )


def _indent_of(text: str, root: ContainerSpan) -> str:
    """By how much the first member of the document is indented."""
    members = root.members
    is_on_own_line = bool(members) and begins_line(text, members[0].start)
    return margin_at(text, members[0].start) if is_on_own_line else _DEFAULT_INDENT


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
