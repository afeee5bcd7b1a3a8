"""What a JSON Schema tells people of a value, on one line: description, range, format, default."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from nacre.tools.declarations.typescript import one_line, short_json
from nacre.tools.schema_references import mapped, target_of

if TYPE_CHECKING:
    from collections.abc import Iterator

_MAX_DESCRIPTION_CHARACTERS: Final = 1_000
_MAX_DEFAULT_CHARACTERS: Final = 80
_MAX_FORMAT_CHARACTERS: Final = 40


def comment_of(schema: object, *, root: object) -> str:
    """Text for a comment, safe inside one; empty when the schema tells nothing."""
    node = mapped(schema)
    text = one_line(_description(node, root), most_characters=_MAX_DESCRIPTION_CHARACTERS)
    notes = ", ".join(_notes(node))
    return f"{text} ({notes})".lstrip() if notes else text


def _description(node: dict[str, object], root: object) -> str:
    found = node.get("description")
    reference = node.get("$ref")
    if found is None and isinstance(reference, str):
        found = mapped(target_of(root, reference)).get("description")
    return found if isinstance(found, str) else ""


def _notes(node: dict[str, object]) -> Iterator[str]:
    least, most = _number(node.get("minimum")), _number(node.get("maximum"))
    if least and most:
        yield f"{least} to {most}"
    elif least or most:
        yield f"at least {least}" if least else f"at most {most}"
    kind = node.get("format")
    if isinstance(kind, str) and kind:
        yield one_line(kind, most_characters=_MAX_FORMAT_CHARACTERS)
    default = node.get("default")
    if default is not None:
        shown = short_json(default, most_characters=_MAX_DEFAULT_CHARACTERS)
        text = shown if shown is not None else "too long to show"
        yield f"default {one_line(text, most_characters=2 * _MAX_DEFAULT_CHARACTERS)}"


def _number(value: object) -> str:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return (short_json(value, most_characters=30) or "") if is_number else ""
