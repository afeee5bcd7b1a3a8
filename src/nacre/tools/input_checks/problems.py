"""Describes invalid inputs by path and value, so that a model can correct them."""

from __future__ import annotations

import json
import re
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, cast

from nacre.errors import ToolInputError
from nacre.json_types import describe_json_type
from nacre.lazy_dataclasses import dataclass
from nacre.lazy_exports import lazy_pattern
from nacre.telemetry import REDACTED, Redaction, is_secret_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import jsonschema_rs

    from nacre.json_types import JsonObject, JsonValue

    Error = jsonschema_rs.ValidationError

MASK: Final = "\x00value\x00"
"""Replaces the value in the validator's messages; a short form of it is inserted later."""

_MAX_PROBLEMS: Final = 5
_MAX_COUNTED: Final = 20
_MAX_ALTERNATIVES: Final = 3
_MAX_NAMES: Final = 20
_MAX_NAMES_COMPARED: Final = 200
_MAX_NAME_CHARACTERS: Final = 60
_MAX_VALUE_CHARACTERS: Final = 80
_MAX_INPUT_CHARACTERS: Final = 300
_MAX_TEXT_CHARACTERS: Final = 300
_MAX_PATH_STEPS: Final = 20
# In a longer text, the part that is shown could begin after the start of a secret.
_REDACTION: Final = Redaction(max_text_characters=2_000, max_items=300, max_total_characters=4_000)
_PLAIN_NAME = lazy_pattern(r"[A-Za-z_$][\w$]*", re.ASCII)


@dataclass(frozen=True, kw_only=True, slots=True)
class InputProblem:
    """One problem of an input, and its path."""

    path: str
    text: str

    def __str__(self) -> str:
        return f"`{self.path}`: {_truncate(self.text, _MAX_TEXT_CHARACTERS)}"


def build_input_error(
    problems: Iterable[InputProblem], *, tool_name: str, tool_id: str, given: object
) -> ToolInputError:
    """Build the error that lists the first problems, the number of the others and the input."""
    # Describing a problem is costly, and nobody reads the hundredth.
    counted = [f"- {problem}" for problem in islice(problems, _MAX_COUNTED + 1)]
    lines = list(dict.fromkeys(counted))
    if len(lines) > _MAX_PROBLEMS:
        is_all = len(counted) <= _MAX_COUNTED
        more = f"{len(lines) - _MAX_PROBLEMS} more" if is_all else "more"
        lines[_MAX_PROBLEMS:] = [f"- and {more}"]
    shown = format_value(given, _MAX_INPUT_CHARACTERS)
    message = "\n".join([f"the input does not fit {tool_name}:", *lines, f"given: {shown}"])
    return ToolInputError(message, tool_id=tool_id)


def describe_errors(
    errors: Iterable[Error], *, given: object, schema: JsonObject
) -> Iterator[InputProblem]:
    """Describe the validator's errors; one error may be several problems."""
    for error in errors:
        yield from _describe_error(error, given, schema)


def find_top_level_problems(given: JsonObject, schema: JsonObject) -> Iterator[InputProblem]:
    """Find missing and unknown names without the validator."""
    known, required = _known_names(schema, ()), schema.get("required")
    for name in required if isinstance(required, list) else []:
        if isinstance(name, str) and name not in given:
            yield InputProblem(path=format_path([name]), text="is required")
    if schema.get("additionalProperties") is False and "patternProperties" not in schema:
        table = frozenset(known)
        for name in given:
            if name not in table:
                yield InputProblem(
                    path=format_path([name]), text=_describe_unknown_name(name, known)
                )


def format_path(steps: Sequence[object]) -> str:
    """Format a path like `$.rows[3]["odd key"]`."""
    path = "$"
    for step in steps[:_MAX_PATH_STEPS]:
        if isinstance(step, int):
            path += f"[{step}]"
            continue
        name = _truncate(str(step), _MAX_NAME_CHARACTERS)
        is_plain = _PLAIN_NAME.fullmatch(name)
        path += f".{name}" if is_plain else f"[{json.dumps(name, ensure_ascii=False)}]"
    return path if len(steps) <= _MAX_PATH_STEPS else f"{path}…"


def format_value(
    value: object, max_characters: int = _MAX_VALUE_CHARACTERS, *, steps: Sequence[object] = ()
) -> str:
    """Format a value as truncated JSON without secrets: neither those in the value, nor the value
    itself if its path names a secret."""
    *outer, last = steps or [0]
    if any(isinstance(step, str) and is_secret_key(step) for step in outer):
        return json.dumps(REDACTED)
    # As a member, so that the rules for members apply.
    kept = _REDACTION.value({last: value} if isinstance(last, str) else [value])
    [shown] = kept.values() if isinstance(kept, dict) else cast("list[JsonValue]", kept)
    return _truncate(json.dumps(shown, ensure_ascii=False), max_characters)


def resolve_path(value: object, steps: Sequence[object]) -> object:
    """Return the part at a path of the validator, or None."""
    for step in steps:
        try:
            # The validator writes the key "0" as an index.
            value = cast("Any", value)[str(step) if isinstance(value, dict) else step]
        except (LookupError, TypeError):
            return None
    return value


def _truncate(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}…"


def _describe_error(error: Error, given: object, schema: JsonObject) -> list[InputProblem]:
    kind, steps = cast("Any", error.kind), error.instance_path
    match kind.name:
        case "required":
            return [InputProblem(path=format_path([*steps, kind.property]), text="is required")]
        case "additionalProperties" | "unevaluatedProperties":
            known = _known_names(schema, error.schema_path[:-1])
            return [
                InputProblem(
                    path=format_path([*steps, name]), text=_describe_unknown_name(name, known)
                )
                for name in cast("list[str]", kind.unexpected)[:_MAX_NAMES]
            ]
        case _:
            text = _describe_kind(error, given, schema)
            return [InputProblem(path=format_path(steps), text=text)]


def _describe_kind(error: Error, given: object, schema: JsonObject) -> str:
    kind, value = cast("Any", error.kind), resolve_path(given, error.instance_path)
    match kind.name:
        case "type":
            return _describe_wrong_type(value, kind.types, error.instance_path)
        case "anyOf" | "oneOf" if kind.context and any(kind.context):
            return _describe_alternatives(error, given, schema)
        case _:
            return error.message.replace(MASK, format_value(value, steps=error.instance_path))


def _describe_alternatives(error: Error, given: object, schema: JsonObject) -> str:
    alternatives: list[list[Error]] = [found for found in cast("Any", error.kind).context if found]
    value = resolve_path(given, error.instance_path)
    firsts = [found[0] for found in alternatives]
    kinds = [cast("Any", first.kind) for first in firsts]
    is_type = [kind.name == "type" for kind in kinds]
    at_the_top = [first.instance_path == error.instance_path for first in firsts]
    if all(is_type) and all(at_the_top):
        allowed = dict.fromkeys(name for kind in kinds for name in kind.types)
        return _describe_wrong_type(value, allowed, error.instance_path)
    # Skip the alternatives for other types.
    meant = [
        first
        for first, wrong, top in zip(firsts, is_type, at_the_top, strict=True)
        if not (wrong and top)
    ]
    texts = [str(_describe_error(first, given, schema)[0]) for first in meant[:_MAX_ALTERNATIVES]]
    more = f" (or {len(meant) - len(texts)} more ways)" if len(meant) > len(texts) else ""
    return f"fits no alternative: {', or '.join(texts)}{more}"


def _describe_unknown_name(name: str, known: list[str]) -> str:
    # Imported here, so that valid calls do not pay for it.
    from difflib import get_close_matches

    by_lower_case = {other.lower(): other for other in known[:_MAX_NAMES_COMPARED]}
    near = get_close_matches(name[:_MAX_NAME_CHARACTERS].lower(), by_lower_case, n=1)
    if near:
        meant = _truncate(by_lower_case[near[0]], _MAX_NAME_CHARACTERS)
        return f"is not known; did you mean `{meant}`?"
    if not known:
        return "is not known; there are no properties"
    names = ", ".join(_truncate(other, _MAX_NAME_CHARACTERS) for other in known[:_MAX_NAMES])
    more = f" and {len(known) - _MAX_NAMES} more" if len(known) > _MAX_NAMES else ""
    return f"is not known; known: {names}{more}"


def _known_names(schema: JsonObject, steps: Sequence[object]) -> list[str]:
    node = resolve_path(schema, steps)
    properties = cast("JsonObject", node).get("properties") if isinstance(node, dict) else None
    return list(properties) if isinstance(properties, dict) else []


def _describe_wrong_type(value: object, allowed: Iterable[str], steps: Sequence[object]) -> str:
    text = format_value(value, steps=steps)
    kind = describe_json_type(value)
    shown = kind if value is None else f"the {kind.partition(' ')[2]} {text}"
    return f"is {shown}; allowed: {' or '.join(allowed)}"
