"""Checks a tool's input against its schema, with errors that a model can act on.

Both sides are hostile: a server writes the schema, a program the input. So nothing is fetched,
patterns are matched in linear time, and what a check can cost is bounded before it is made.
"""

from __future__ import annotations

import logging
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from nacre.errors import ToolFailedError, ToolInputError
from nacre.json_types import decode_json, encode_json
from nacre.tools.input_checks.limits import MAX_INPUT_VALUES, SchemaLimits
from nacre.tools.input_checks.problems import (
    MASK,
    InputProblem,
    input_refused,
    problems_in,
    shown_path,
    shown_value,
    top_level_problems,
    value_at,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    import jsonschema_rs

    from nacre.json_types import JsonObject
    from nacre.tools.definition import Tool

logger = logging.getLogger(__name__)

_MAX_PATTERNS_LEFT_OUT: Final = 50
# The whole schema is compiled again for each; 20,000 parts take some 50 ms.
_MAX_PARTS_COMPILED: Final = 50_000
_MAX_PROBLEM_CHARACTERS: Final = 300
_TOO_LARGE: Final = InputProblem(
    path="$", text="does not fit; where would take too long to say: try a small part first"
)
_ONLY_FIRST: Final = InputProblem(path="$", text="may have more problems; it is too large to list")


@dataclass(frozen=True, kw_only=True, slots=True)
class _CompiledSchema:
    schema: JsonObject
    validator: jsonschema_rs.Validator
    limits: SchemaLimits


class InputValidators:
    """The compiled schemas of tools, each made when its tool is first called."""

    def __init__(self) -> None:
        # By identity: a tool holds dicts, so it cannot be a key; two equal ones are rare.
        self._compiled: dict[int, tuple[weakref.ref[Tool], _CompiledSchema | str]] = {}

    def check(self, tool: Tool, given: object) -> JsonObject:
        """The input, an empty object for None. Raises ToolInputError for what does not fit, and
        ToolFailedError for a tool whose schema is broken or costs too much to apply.

        What it may cost is bounded, so that the event loop does not stand still for long."""
        if given is None:
            given = {}
        if not isinstance(given, dict):
            raise _not_an_object(tool, given)
        checked = cast("JsonObject", given)
        compiled = self._schema_of(tool)
        _refuse_if_costly(tool, compiled, checked)
        try:
            if not compiled.validator.is_valid(checked):
                raise _explain(tool, compiled, checked)
        except ValueError as error:
            raise ToolInputError(f"the input is not JSON: {error}", tool_id=tool.id) from error
        return checked

    def _schema_of(self, tool: Tool) -> _CompiledSchema:
        key = id(tool)
        if key not in self._compiled:
            forget = weakref.ref(tool, lambda _: self._compiled.pop(key, None))
            self._compiled[key] = (forget, _compile(tool))
        compiled = self._compiled[key][1]
        if isinstance(compiled, str):
            raise _broken(tool, compiled)
        return compiled


def _compile(tool: Tool) -> _CompiledSchema | str:
    """The compiled schema, or what is wrong with it."""
    # A copy: what is checked stays what was compiled, whatever the owner does with its dict.
    schema = cast("JsonObject", decode_json(encode_json(dict(tool.parameters))))
    limits = SchemaLimits(schema)
    if limits.problem:
        return limits.problem
    attempts = min(_MAX_PATTERNS_LEFT_OUT, 1 + _MAX_PARTS_COMPILED // limits.part_count)
    for _ in range(attempts):
        validator = _validator_for(schema)
        if not isinstance(validator, Exception):
            return _CompiledSchema(schema=schema, validator=validator, limits=limits)
        if not _leave_out_pattern(tool, schema, validator):
            where = shown_path(validator.instance_path)
            what = validator.message.replace(MASK, "its value")
            return f"`{where}`: {what[:_MAX_PROBLEM_CHARACTERS]}"
    return f"{attempts} of its patterns, or more, cannot be matched"


def _validator_for(schema: JsonObject) -> jsonschema_rs.Validator | jsonschema_rs.ValidationError:
    import jsonschema_rs

    try:
        return jsonschema_rs.validator_for(
            cast("dict[str, Any]", schema),
            mask=MASK,
            offline=True,
            # The linear engine; and a format is a note, as in the newer drafts of JSON Schema.
            pattern_options=jsonschema_rs.RegexOptions(),
            validate_formats=False,
        )
    except jsonschema_rs.ValidationError as error:
        return error


def _leave_out_pattern(
    tool: Tool, schema: JsonObject, error: jsonschema_rs.ValidationError
) -> bool:
    """Whether the fault was a pattern that only a backtracking engine can match; now it is gone.

    Such patterns are common (`zod` writes one for mail addresses), and the tool itself knows it.
    """
    *steps, last = error.instance_path or [""]
    node = value_at(schema, steps)
    # A key of `patternProperties` cannot go: what it allows would be refused.
    if last != "pattern" or not isinstance(node, dict) or "pattern" not in node:
        return False
    pattern = shown_value(cast("JsonObject", node).pop("pattern"))
    where = shown_path(error.instance_path)
    logger.warning("%s: the pattern %s at %s is left to the tool", tool.id, pattern, where)
    return True


def _refuse_if_costly(tool: Tool, compiled: _CompiledSchema, given: JsonObject) -> None:
    match compiled.limits.verdict(given):
        case "ok":
            return
        case "input_too_large":
            raise _too_large(tool)
        case "schema_too_costly":
            raise _broken(tool, "it asks for so much work that this input would take too long")


def _explain(tool: Tool, compiled: _CompiledSchema, given: JsonObject) -> ToolInputError:
    problems = _problems_with(compiled, given)
    return input_refused(problems, tool_name=tool.name, tool_id=tool.id, given=given)


def _problems_with(compiled: _CompiledSchema, given: JsonObject) -> Iterator[InputProblem]:
    """As many as can be found without long work; where they cannot, it says so."""
    schema = compiled.schema
    if compiled.limits.can_list_errors(given):
        yield from problems_in(compiled.validator.iter_errors(given), given=given, schema=schema)
    elif compiled.limits.can_find_first_error(given):
        yield from top_level_problems(given, schema)
        yield from problems_in(_first_error(compiled, given), given=given, schema=schema)
        yield _ONLY_FIRST
    else:
        yield from top_level_problems(given, schema)
        yield _TOO_LARGE


def _first_error(
    compiled: _CompiledSchema, given: JsonObject
) -> Iterator[jsonschema_rs.ValidationError]:
    import jsonschema_rs

    try:
        compiled.validator.validate(given)
    except jsonschema_rs.ValidationError as error:
        yield error


def _not_an_object(tool: Tool, given: object) -> ToolInputError:
    text = f"the input is {shown_value(given)}; {tool.name} takes one object"
    return ToolInputError(text, tool_id=tool.id)


def _too_large(tool: Tool) -> ToolInputError:
    text = (
        f"the input is too large to be checked against the schema of {tool.name}; pass it in parts "
        f"(at most {MAX_INPUT_VALUES:,} values, fewer where the schema asks for much work)"
    )
    return ToolInputError(text, tool_id=tool.id)


def _broken(tool: Tool, problem: str) -> ToolFailedError:
    message = (
        f"{tool.name} cannot be called: its input schema is broken ({problem}); "
        f"its owner, {tool.owner}, has to repair it"
    )
    return ToolFailedError(message, code="tool_failed", tool_id=tool.id)
