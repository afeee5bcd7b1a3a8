"""What is wrong with a tool's input, said by path and value so that a model can put it right."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, cast

from nacre.errors import ToolInputError
from nacre.telemetry import REDACTED, Redaction, is_secret_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import jsonschema_rs

    from nacre.json_types import JsonObject, JsonValue

    Error = jsonschema_rs.ValidationError

MASK: Final = "\x00value\x00"
"""Stands for the value in a validator's messages: only a short form of it is ever shown."""

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
# Of a longer text, what is shown may begin later than the secret in it.
_REDACTION: Final = Redaction(max_text_characters=2_000, max_items=300, max_total_characters=4_000)
_PLAIN_NAME = re.compile(r"[A-Za-z_$][\w$]*", re.ASCII)


@dataclass(frozen=True, kw_only=True, slots=True)
class InputProblem:
    """One thing that is wrong, and where."""

    path: str
    text: str

    def __str__(self) -> str:
        return f"`{self.path}`: {_cut(self.text, _MAX_TEXT_CHARACTERS)}"


def input_refused(
    problems: Iterable[InputProblem], *, tool_name: str, tool_id: str, given: object
) -> ToolInputError:
    """The error that lists the first problems, says how many more there are and what was given."""
    # Not all of them are looked at: the words are costly, and nobody needs those of the hundredth.
    counted = [f"- {problem}" for problem in islice(problems, _MAX_COUNTED + 1)]
    lines = list(dict.fromkeys(counted))
    if len(lines) > _MAX_PROBLEMS:
        is_all = len(counted) <= _MAX_COUNTED
        more = f"{len(lines) - _MAX_PROBLEMS} more" if is_all else "more"
        lines[_MAX_PROBLEMS:] = [f"- and {more}"]
    shown = shown_value(given, _MAX_INPUT_CHARACTERS)
    message = "\n".join([f"the input does not fit {tool_name}:", *lines, f"given: {shown}"])
    return ToolInputError(message, tool_id=tool_id)


def problems_in(
    errors: Iterable[Error], *, given: object, schema: JsonObject
) -> Iterator[InputProblem]:
    """A validator's errors in our words; one of them may be several problems."""
    for error in errors:
        yield from _problems_of(error, given, schema)


def top_level_problems(given: JsonObject, schema: JsonObject) -> Iterator[InputProblem]:
    """The names that are missing or not known, found without a validator."""
    known, required = _known_names(schema, ()), schema.get("required")
    for name in required if isinstance(required, list) else []:
        if isinstance(name, str) and name not in given:
            yield InputProblem(path=shown_path([name]), text="is required")
    if schema.get("additionalProperties") is False and "patternProperties" not in schema:
        table = frozenset(known)
        for name in given:
            if name not in table:
                yield InputProblem(path=shown_path([name]), text=_unknown(name, known))


def shown_path(steps: Sequence[object]) -> str:
    """`$.rows[3]["odd key"]`."""
    path = "$"
    for step in steps[:_MAX_PATH_STEPS]:
        if isinstance(step, int):
            path += f"[{step}]"
            continue
        name = _cut(str(step), _MAX_NAME_CHARACTERS)
        is_plain = _PLAIN_NAME.fullmatch(name)
        path += f".{name}" if is_plain else f"[{json.dumps(name, ensure_ascii=False)}]"
    return path if len(steps) <= _MAX_PATH_STEPS else f"{path}…"


def shown_value(
    value: object, max_characters: int = _MAX_VALUE_CHARACTERS, *, steps: Sequence[object] = ()
) -> str:
    """A value as JSON, cut short without looking at the rest of it, and without secrets: neither
    those in it, nor the value itself if its path says that it is one."""
    *outer, last = steps or [0]
    if any(isinstance(step, str) and is_secret_key(step) for step in outer):
        return json.dumps(REDACTED)
    # As a member, so that the rules for members decide.
    kept = _REDACTION.value({last: value} if isinstance(last, str) else [value])
    [shown] = kept.values() if isinstance(kept, dict) else cast("list[JsonValue]", kept)
    return _cut(json.dumps(shown, ensure_ascii=False), max_characters)


def value_at(value: object, steps: Sequence[object]) -> object:
    """The part that a validator's path names; None if there is none."""
    for step in steps:
        try:
            # A validator takes the key "0" for an index.
            value = cast("Any", value)[str(step) if isinstance(value, dict) else step]
        except (LookupError, TypeError):
            return None
    return value


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}…"


def _problems_of(error: Error, given: object, schema: JsonObject) -> list[InputProblem]:
    kind, steps = cast("Any", error.kind), error.instance_path
    match kind.name:
        case "required":
            return [InputProblem(path=shown_path([*steps, kind.property]), text="is required")]
        case "additionalProperties" | "unevaluatedProperties":
            known = _known_names(schema, error.schema_path[:-1])
            return [
                InputProblem(path=shown_path([*steps, name]), text=_unknown(name, known))
                for name in cast("list[str]", kind.unexpected)[:_MAX_NAMES]
            ]
        case _:
            text = _text_of(error, given, schema)
            return [InputProblem(path=shown_path(steps), text=text)]


def _text_of(error: Error, given: object, schema: JsonObject) -> str:
    kind, value = cast("Any", error.kind), value_at(given, error.instance_path)
    match kind.name:
        case "type":
            return _wrong_type(value, kind.types, error.instance_path)
        case "anyOf" | "oneOf" if kind.context and any(kind.context):
            return _text_of_alternatives(error, given, schema)
        case _:
            return error.message.replace(MASK, shown_value(value, steps=error.instance_path))


def _text_of_alternatives(error: Error, given: object, schema: JsonObject) -> str:
    alternatives: list[list[Error]] = [found for found in cast("Any", error.kind).context if found]
    value = value_at(given, error.instance_path)
    firsts = [found[0] for found in alternatives]
    kinds = [cast("Any", first.kind) for first in firsts]
    is_type = [kind.name == "type" for kind in kinds]
    at_the_top = [first.instance_path == error.instance_path for first in firsts]
    if all(is_type) and all(at_the_top):
        allowed = dict.fromkeys(name for kind in kinds for name in kind.types)
        return _wrong_type(value, allowed, error.instance_path)
    # An alternative of another type is not the one that was meant.
    meant = [
        first
        for first, wrong, top in zip(firsts, is_type, at_the_top, strict=True)
        if not (wrong and top)
    ]
    texts = [str(_problems_of(first, given, schema)[0]) for first in meant[:_MAX_ALTERNATIVES]]
    more = f" (or {len(meant) - len(texts)} more ways)" if len(meant) > len(texts) else ""
    return f"fits no alternative: {', or '.join(texts)}{more}"


def _unknown(name: str, known: list[str]) -> str:
    # Only on the way to an error, so that a sound call does not pay for the import.
    from difflib import get_close_matches

    by_lower_case = {other.lower(): other for other in known[:_MAX_NAMES_COMPARED]}
    near = get_close_matches(name[:_MAX_NAME_CHARACTERS].lower(), by_lower_case, n=1)
    if near:
        return f"is not known; did you mean `{_cut(by_lower_case[near[0]], _MAX_NAME_CHARACTERS)}`?"
    if not known:
        return "is not known; there are no properties"
    names = ", ".join(_cut(other, _MAX_NAME_CHARACTERS) for other in known[:_MAX_NAMES])
    more = f" and {len(known) - _MAX_NAMES} more" if len(known) > _MAX_NAMES else ""
    return f"is not known; known: {names}{more}"


def _known_names(schema: JsonObject, steps: Sequence[object]) -> list[str]:
    node = value_at(schema, steps)
    properties = cast("JsonObject", node).get("properties") if isinstance(node, dict) else None
    return list(properties) if isinstance(properties, dict) else []


def _wrong_type(value: object, allowed: Iterable[str], steps: Sequence[object]) -> str:
    text = shown_value(value, steps=steps)
    shown = "null" if value is None else f"the {_type_name(value)} {text}"
    return f"is {shown}; allowed: {' or '.join(allowed)}"


def _type_name(value: object) -> str:
    match value:
        case bool():
            return "boolean"
        case str():
            return "string"
        case int() | float():
            return "number"
        case Mapping():
            return "object"
        case _:
            return "array"
