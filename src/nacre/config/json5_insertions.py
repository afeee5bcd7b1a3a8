"""Where a new value goes in the text of a JSON5 document, and on which lines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from nacre.config.json5_layout import Layout
from nacre.config.json5_lines import (
    BLANKS,
    LINE_END,
    apply_edits,
    begins_line,
    line_start,
    margin_at,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nacre.config.json5_lines import Edit
    from nacre.config.json5_spans import ContainerSpan, MemberSpan
    from nacre.json_types import JsonValue

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
