"""Checks the input of a tool against its schema, with errors that a model can act on.

Both are untrusted: a server writes the schema, and a program writes the input. So no reference is
fetched, patterns are matched in linear time, and both are limited before a check.
"""

from __future__ import annotations

import logging
import weakref
from typing import TYPE_CHECKING, Any, Final, cast

from nacre.errors import ToolFailedError, ToolInputError
from nacre.json_types import decode_json, encode_json
from nacre.lazy_dataclasses import dataclass
from nacre.tools.input_checks.limits import MAX_INPUT_VALUES, SchemaLimits
from nacre.tools.input_checks.problems import (
    MASK,
    InputProblem,
    build_input_error,
    describe_errors,
    find_top_level_problems,
    format_path,
    format_value,
    resolve_path,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    import jsonschema_rs

    from nacre.json_types import JsonObject
    from nacre.tools.definition import Tool

logger = logging.getLogger(__name__)

_MAX_PATTERNS_LEFT_OUT: Final = 50
# The whole schema is compiled again for each; 20,000 parts take about 50 ms.
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
    """The compiled schemas of tools; a schema is compiled at the first call of its tool."""

    def __init__(self) -> None:
        # By identity, because a tool contains dicts and is not hashable.
        self._compiled: dict[int, tuple[weakref.ref[Tool], _CompiledSchema | str]] = {}

    def check(self, tool: Tool, given: object) -> JsonObject:
        """Return the input, an empty object for None, in a bounded time.

        Raises ToolInputError if the input is invalid, and ToolFailedError if the schema is invalid
        or too costly."""
        if given is None:
            given = {}
        if not isinstance(given, dict):
            raise _not_an_object_error(tool, given)
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
            raise _broken_schema_error(tool, compiled)
        return compiled


def _compile(tool: Tool) -> _CompiledSchema | str:
    """Compile the schema of a tool; returns its problem if it is invalid."""
    # A copy, because the owner may change its dict.
    schema = cast("JsonObject", decode_json(encode_json(dict(tool.parameters))))
    limits = SchemaLimits(schema)
    if limits.problem:
        return limits.problem
    attempts = min(_MAX_PATTERNS_LEFT_OUT, 1 + _MAX_PARTS_COMPILED // limits.part_count)
    for _ in range(attempts):
        validator = _validator_for(schema)
        if not isinstance(validator, Exception):
            return _CompiledSchema(schema=schema, validator=validator, limits=limits)
        if not _remove_pattern(tool, schema, validator):
            where = format_path(validator.instance_path)
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
            # The linear engine. Formats are annotations, as in the newer drafts of JSON Schema.
            pattern_options=jsonschema_rs.RegexOptions(),
            validate_formats=False,
        )
    except jsonschema_rs.ValidationError as error:
        return error


def _remove_pattern(tool: Tool, schema: JsonObject, error: jsonschema_rs.ValidationError) -> bool:
    """Remove a pattern that only a backtracking engine can match; returns whether it was one.

    Such patterns are common (`zod` writes one for mail addresses), and the tool checks them itself.
    """
    *steps, last = error.instance_path or [""]
    node = resolve_path(schema, steps)
    # A key of `patternProperties` must stay, or the names that it allows would be refused.
    if last != "pattern" or not isinstance(node, dict) or "pattern" not in node:
        return False
    pattern = format_value(cast("JsonObject", node).pop("pattern"))
    where = format_path(error.instance_path)
    logger.warning("%s: the pattern %s at %s is left to the tool", tool.id, pattern, where)
    return True


def _refuse_if_costly(tool: Tool, compiled: _CompiledSchema, given: JsonObject) -> None:
    match compiled.limits.verdict(given):
        case "ok":
            return
        case "input_too_large":
            raise _too_large_error(tool)
        case "schema_too_costly":
            raise _broken_schema_error(
                tool, "it asks for so much work that this input would take too long"
            )


def _explain(tool: Tool, compiled: _CompiledSchema, given: JsonObject) -> ToolInputError:
    problems = _find_problems(compiled, given)
    return build_input_error(problems, tool_name=tool.name, tool_id=tool.id, given=given)


def _find_problems(compiled: _CompiledSchema, given: JsonObject) -> Iterator[InputProblem]:
    """Find as many problems as the limits allow, and say so if there may be more."""
    schema = compiled.schema
    if compiled.limits.can_list_errors(given):
        yield from describe_errors(
            compiled.validator.iter_errors(given), given=given, schema=schema
        )
    elif compiled.limits.can_find_first_error(given):
        yield from find_top_level_problems(given, schema)
        yield from describe_errors(_first_error(compiled, given), given=given, schema=schema)
        yield _ONLY_FIRST
    else:
        yield from find_top_level_problems(given, schema)
        yield _TOO_LARGE


def _first_error(
    compiled: _CompiledSchema, given: JsonObject
) -> Iterator[jsonschema_rs.ValidationError]:
    import jsonschema_rs

    try:
        compiled.validator.validate(given)
    except jsonschema_rs.ValidationError as error:
        yield error


def _not_an_object_error(tool: Tool, given: object) -> ToolInputError:
    text = f"the input is {format_value(given)}; {tool.name} takes one object"
    return ToolInputError(text, tool_id=tool.id)


def _too_large_error(tool: Tool) -> ToolInputError:
    text = (
        f"the input is too large to be checked against the schema of {tool.name}; pass it in parts "
        f"(at most {MAX_INPUT_VALUES:,} values, fewer where the schema asks for much work)"
    )
    return ToolInputError(text, tool_id=tool.id)


def _broken_schema_error(tool: Tool, problem: str) -> ToolFailedError:
    message = (
        f"{tool.name} cannot be called: its input schema is broken ({problem}); "
        f"its owner, {tool.owner}, has to repair it"
    )
    return ToolFailedError(message, code="tool_failed", tool_id=tool.id)
