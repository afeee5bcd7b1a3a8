"""Checks the input of a tool against its schema, with errors that a model can act on.

Both are untrusted: a server writes the schema, and a program writes the input. So no reference is
fetched, patterns are matched in linear time, and both are limited before a check.

One page of `anyOf` and `$ref` can apply 2^40 schemas to one number, and the validator does so with
the interpreter's lock held. So three numbers are limited first: the size of the schema, the fan-out
(the schemas that apply to a value and to the values it is in), and the size of the input times the
fan-out. One unit of fan-out takes about 6 ns (measured with jsonschema-rs 0.60).
"""

from __future__ import annotations

import logging
import re
import weakref
from functools import lru_cache
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, cast

from nacre.errors import ToolFailedError, ToolInputError
from nacre.json_types import MAX_JSON_DEPTH, decode_json, encode_json
from nacre.lazy_dataclasses import dataclass
from nacre.lazy_exports import lazy_pattern
from nacre.tools.definition import as_dict, as_list, target_of
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
    from collections.abc import Callable, Iterable, Iterator

    import jsonschema_rs

    from nacre.json_types import JsonObject
    from nacre.tools.definition import Tool

logger = logging.getLogger(__name__)

MAX_INPUT_VALUES: Final = 250_000
_MAX_WORK: Final = 8_000_000
_MAX_SCHEMA_PARTS: Final = 20_000
_MAX_PATTERN_STATES: Final = 50_000
_MAX_FANOUT_STEPS: Final = 400_000
# Each member has its own fan-out where there are not too many of them to look at.
_MAX_SINGLE_MEMBERS: Final = 64
# An error copies the value that it is about; a copy takes about 500 ns for each part of it.
_MAX_COPIES: Final = 150_000
# A schema that allows fewer values than this is at fault, not the input.
_MIN_INPUT_VALUES: Final = 1_000
_ENDLESS: Final = 1 << 60

# The cost of keywords, in units of fan-out.
_COST: Final = {"uniqueItems": 40, "propertyNames": 60}
_BOUNDS: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_NAME_COST: Final = 3
_PATTERN_COST: Final = 5
_OPTION_COST: Final = 50
# The validator compares fractions exactly, and 1e300 is a fraction of a thousand bits.
_FRACTION_COST: Final = 300
_EXTREME_COST: Final = 20_000
_FRACTION_UNITS: Final = 50
_EXTREME_UNITS: Final = 6_000

Verdict = Literal["ok", "input_too_large", "schema_too_costly"]

# Inputs with at most this many members are looked at one by one.
_MAX_SMALL_MEMBERS: Final = 16

_MAX_PATTERNS_LEFT_OUT: Final = 50
# The whole schema is compiled again for each; 20,000 parts take about 50 ms.
_MAX_PARTS_COMPILED: Final = 50_000
_MAX_PROBLEM_CHARACTERS: Final = 300
_TOO_LARGE: Final = InputProblem(
    path="$", text="does not fit; where would take too long to say: try a small part first"
)
_ONLY_FIRST: Final = InputProblem(path="$", text="may have more problems; it is too large to list")


class SchemaLimits:
    """Decides which inputs may be checked against one schema."""

    def __init__(self, schema: JsonObject) -> None:
        self.problem = ""
        """Why no input may be checked; empty if there is no reason."""
        parts = list(islice(_walk_values([schema]), _MAX_SCHEMA_PARTS + 1))
        self.part_count = len(parts)
        if len(parts) > _MAX_SCHEMA_PARTS:
            self.problem = f"it has more than {_MAX_SCHEMA_PARTS:,} parts"
            return
        nodes = [cast("JsonObject", part) for part in parts if isinstance(part, dict)]
        patterns = [pattern for node in nodes for pattern in _patterns_of(node)]
        if sum(map(count_states, patterns)) > _MAX_PATTERN_STATES:
            self.problem = "its patterns are too large or too many"
            return
        self._has_alternatives = any("anyOf" in node or "oneOf" in node for node in nodes)
        self._per_value = Fanout(schema, value_cost)
        self._max_options = max(map(_count_options, nodes))
        self._per_character = Fanout(schema, character_cost) if patterns else None
        self._per_number = Fanout(schema, number_cost)
        self._flat_value_cost = self._per_value.of_root(1)
        self._flat_character_cost = self._per_character.of_root(1) if self._per_character else 0
        if self._flat_value_cost > _MAX_WORK:
            self.problem = (
                "a `$ref` does not exist, is not of the form `#/...` or leads to itself; "
                "or there are too many alternatives or values to compare"
            )

    def verdict(self, given: JsonObject) -> Verdict:
        """Whether the input may be checked; if not, whether the input or the schema is at fault."""
        if self._is_small(given):
            return "ok"
        levels = self._per_value.levels
        size = measure(given, levels=levels)
        if size.values > MAX_INPUT_VALUES:
            return "input_too_large"
        work = self._work(size, lambda fanout: fanout.of_root(size.depth))
        if work > _MAX_WORK and len(given) <= _MAX_SINGLE_MEMBERS:
            work = sum(self._member_work(name, value, levels) for name, value in given.items())
        if work <= _MAX_WORK:
            return "ok"
        total = size.values + size.characters + size.number_units // _EXTREME_UNITS
        is_large = work * _MIN_INPUT_VALUES <= _MAX_WORK * total
        return "input_too_large" if is_large else "schema_too_costly"

    def can_list_errors(self, given: JsonObject) -> bool:
        """Whether all errors may be listed: the validator makes them all at once."""
        size = measure(given)
        errors = self._per_value.of_root(size.depth) + self._max_options
        return errors * (size.depth + 11) * _count_copies(size) <= _MAX_COPIES

    def can_find_first_error(self, given: JsonObject) -> bool:
        """Whether one error may be requested; with alternatives it contains the errors of each."""
        size = measure(given)
        errors = 4
        if self._has_alternatives:
            errors = self._per_value.of_root(size.depth) * (size.depth + 1)
        return errors * _count_copies(size) <= _MAX_COPIES

    def _is_small(self, given: JsonObject) -> bool:
        """Whether the input has a few texts and plain values, which may be checked by that alone.

        Most inputs are like this, and measuring them takes longer than to check them.
        """
        if len(given) > _MAX_SMALL_MEMBERS:
            return False
        characters = 0
        for name, value in given.items():
            # Python code may pass names that are not texts.
            if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
                return False
            characters += len(name)
            if isinstance(value, str):
                characters += len(value)
            elif value is not None and (not isinstance(value, int) or _is_extreme(value)):
                return False
        work = (1 + len(given)) * self._flat_value_cost + characters * self._flat_character_cost
        return work <= _MAX_WORK

    def _work(self, size: InputSize, fanout: Callable[[Fanout], int]) -> int:
        work = size.values * fanout(self._per_value)
        if size.characters and self._per_character:
            work += size.characters * fanout(self._per_character)
        if size.number_units:
            work += size.number_units * fanout(self._per_number)
        return work

    def _member_work(self, name: str, value: object, levels: int | None) -> int:
        size = measure(value, levels=None if levels is None else max(0, levels - 1))
        size = size._replace(characters=size.characters + len(str(name)))
        return self._work(size, lambda fanout: fanout.of_member(name, size.depth + 1))


def _count_copies(size: InputSize) -> int:
    return size.values + size.characters // 1_000


class _Applied(NamedTuple):
    """The cost of the schemas that apply to a value, to one of its members, to one of its items."""

    here: int
    members: int
    items: int

    @property
    def total(self) -> int:
        # A value has members or items, never both.
        return min(self.here + max(self.members, self.items), _ENDLESS)


class Fanout:
    """The cost of the schemas that apply to one value and to the values it is in."""

    def __init__(self, root: JsonObject, cost: Callable[[JsonObject], int]) -> None:
        self._root = root
        self._cost = cost
        self._costs: dict[int, int] = {}
        self._heights: dict[int, int] = {}
        self._applied: dict[tuple[int, int], _Applied] = {}
        self._steps = 0
        try:
            self._height = self._find_height(root)
        except RecursionError:
            self._height = _ENDLESS

    @property
    def levels(self) -> int | None:
        """How many levels of an input the schema looks at; None for all."""
        return None if self._height >= _ENDLESS else self._height

    def of_root(self, depth: int) -> int:
        """The cost for a value `depth` levels below the input."""
        try:
            # Bottom-up, so that a schema that contains itself is followed by one level at a time.
            for level in range(min(depth, self._height) + 1):
                self._find_applied(self._root, level)
            return self._find_applied(self._root, depth).total
        except RecursionError:
            return _ENDLESS

    def of_member(self, name: str, depth: int) -> int:
        """The same for a value in one member of the input."""
        if self.of_root(depth) >= _ENDLESS:
            return _ENDLESS
        total, todo = 0, list[object]([self._root])
        for count, schema in enumerate(todo):
            if count > _MAX_SINGLE_MEMBERS:
                return _ENDLESS
            if isinstance(schema, dict):
                node = cast("JsonObject", schema)
                total += self._find_cost(node) + self._below(_member_groups(node, name), depth)
                todo += self._in_place(node)
        return total

    def _find_applied(self, schema: object, depth: int) -> _Applied:
        if not isinstance(schema, dict):
            return _Applied(0, 0, 0)
        node = cast("JsonObject", schema)
        depth = min(depth, self._find_height(node))
        key = (id(node), depth)
        if key not in self._applied:
            parts, groups = list(self._in_place(node)), list(_member_groups(node))
            self._steps += 1 + len(parts) + sum(map(len, groups))
            if self._steps > _MAX_FANOUT_STEPS or self._is_unsupported(node):
                raise RecursionError
            # Found again before it is done: the schema leads to itself.
            self._applied[key] = _Applied(_ENDLESS, 0, 0)
            applied = [self._find_applied(part, depth) for part in parts]
            self._applied[key] = _Applied(
                self._find_cost(node) + sum(each.here for each in applied),
                self._below(groups, depth) + sum(each.members for each in applied),
                self._below(_item_groups(node), depth) + sum(each.items for each in applied),
            )
        return self._applied[key]

    def _below(self, groups: Iterable[list[object]], depth: int) -> int:
        """One schema of each group applies to a child."""
        if not depth:
            return 0
        return sum(
            max((self._find_applied(schema, depth - 1).total for schema in group), default=0)
            for group in groups
        )

    def _find_cost(self, node: JsonObject) -> int:
        if id(node) not in self._costs:
            self._costs[id(node)] = self._cost(node)
        return self._costs[id(node)]

    def _find_height(self, schema: object) -> int:
        """The levels that a schema looks down; endless if it contains itself."""
        if not isinstance(schema, dict):
            return 0
        node = cast("JsonObject", schema)
        # To find equal items, the validator reads them to the last level.
        if node.get("uniqueItems") is True:
            return _ENDLESS
        if id(node) not in self._heights:
            self._heights[id(node)] = _ENDLESS
            here = [self._find_height(part) for part in self._in_place(node)]
            groups = chain(_member_groups(node), _item_groups(node))
            below = [1 + self._find_height(each) for group in groups for each in group]
            below.append(int("required" in node))
            self._heights[id(node)] = min(max([*here, *below]), _ENDLESS)
        return self._heights[id(node)]

    def _is_unsupported(self, node: JsonObject) -> bool:
        """Whether the validator may apply a schema that is not found here."""
        reference = node.get("$ref")
        if isinstance(reference, str) and target_of(self._root, reference) is None:
            return True
        has_own_base = node is not self._root and isinstance(node.get("$id", node.get("id")), str)
        return has_own_base or "$dynamicRef" in node or "$recursiveRef" in node

    def _in_place(self, node: JsonObject) -> Iterator[object]:
        """The schemas that apply to the same value."""
        for key in ("allOf", "anyOf", "oneOf"):
            yield from as_list(node.get(key))
        for key in ("not", "if", "then", "else"):
            if key in node:
                yield node[key]
        for key in ("dependentSchemas", "dependencies"):
            yield from as_dict(node.get(key)).values()
        reference = node.get("$ref")
        if isinstance(reference, str):
            yield target_of(self._root, reference)


def _member_groups(node: JsonObject, name: str | None = None) -> Iterator[list[object]]:
    """The schemas of all members, or of the member with that name."""
    own, others = as_dict(node.get("properties")), node.get("additionalProperties")
    groups = [[*own.values(), others] if name is None else [own.get(name, others)]]
    groups += [[schema] for schema in as_dict(node.get("patternProperties")).values()]
    groups += [[node.get("unevaluatedProperties")], [node.get("propertyNames")]]
    return _drop_missing(groups)


def _item_groups(node: JsonObject) -> Iterator[list[object]]:
    items = node.get("items")
    own = as_list(items) if isinstance(items, list) else [items]
    first = [*as_list(node.get("prefixItems")), *own, node.get("additionalItems")]
    return _drop_missing([first, [node.get("contains")], [node.get("unevaluatedItems")]])


def _drop_missing(groups: list[list[object]]) -> Iterator[list[object]]:
    return ([schema for schema in group if schema is not None] for group in groups)


def value_cost(node: JsonObject) -> int:
    """The cost of a node for each value that it applies to."""
    options = as_list(node.get("enum"))
    # Texts alone, and integers alone, are looked up in a table.
    if set(map(type, options)) in ({str}, {int}):
        options = []
    if "const" in node:
        options.append(node["const"])
    return (
        1
        + sum(cost for key, cost in _COST.items() if node.get(key, False) is not False)
        + _PATTERN_COST * len(as_dict(node.get("patternProperties")))
        + _NAME_COST * _count_names(node)
        + sum(_number_cost(node.get(key)) for key in _BOUNDS)
        + sum(map(_option_cost, _walk_values(options)))
    )


def _count_options(node: JsonObject) -> int:
    """The values in the `enum` of a node: each of its errors holds a copy of them."""
    options = [*as_list(node.get("enum")), node.get("const")]
    has_parts = any(isinstance(option, (dict, list)) for option in options)
    return _MAX_SCHEMA_PARTS if has_parts else len(options)


def number_cost(node: JsonObject) -> int:
    """The cost of a node for each number that is slow to compare."""
    options = _walk_values([node.get("enum"), node.get("const")])
    numbers = sum(isinstance(each, (int, float)) and not isinstance(each, bool) for each in options)
    return sum(key in node for key in _BOUNDS) + 4 * numbers + (node.get("uniqueItems") is True)


def character_cost(node: JsonObject) -> int:
    return sum(map(count_states, _patterns_of(node)))


def _option_cost(option: object) -> int:
    is_plain = option is None or isinstance(option, (str, bool))
    return 1 if is_plain else _OPTION_COST + _number_cost(option)


def _number_cost(value: object) -> int:
    if _is_extreme(value):
        return _EXTREME_COST
    return _FRACTION_COST if isinstance(value, float) and not value.is_integer() else 0


def _is_extreme(value: object) -> bool:
    """Whether the validator compares a number slowly."""
    if isinstance(value, float):
        return bool(value) and not 1e-9 < abs(value) < 1e15
    return isinstance(value, int) and not -(1 << 63) <= value < 1 << 64


def _count_names(node: JsonObject) -> int:
    """The names that the node looks up in an object."""
    keys = ("dependentRequired", "dependentSchemas", "dependencies")
    groups = chain.from_iterable(as_dict(node.get(key)).values() for key in keys)
    return len(as_list(node.get("required"))) + sum(1 + len(as_list(group)) for group in groups)


def _patterns_of(node: JsonObject) -> Iterator[str]:
    if isinstance(pattern := node.get("pattern"), str):
        yield pattern
    yield from map(str, as_dict(node.get("patternProperties")))


def _walk_values(values: Iterable[object]) -> Iterator[object]:
    """All values in the values, and themselves."""
    todo = list(values)
    while todo:
        yield (part := todo.pop())
        todo += as_dict(part).values()
        todo += as_list(part)


# An escape, a class, a count, or any other character.
_TOKEN = lazy_pattern(
    r"\\[pP]\{[^}]*\}|\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\{\d+(?:,\d*)?\}|.", re.DOTALL
)
_MAX_STATES: Final = 1 << 30


@lru_cache(maxsize=1024)
def count_states(pattern: str) -> int:
    """The approximate number of states of a pattern, with its repetitions written out.

    The engine is linear in the text, but a hostile pattern makes it go through all its states at
    each character.
    """
    groups, last = [0], 0
    for token in _TOKEN.findall(pattern):
        if token == "(":
            groups.append(0)
        elif token == ")" and len(groups) > 1:
            last = groups.pop()
            groups[-1] += last
        elif token[0] == "{" and len(token) > 1:
            # The last number is the larger one, and may have any number of digits.
            times = min(int(re.findall(r"\d+", token)[-1][:10]), _MAX_STATES)
            more = last * (max(1, times) - 1)
            groups[-1] = min(groups[-1] + more, _MAX_STATES)
            last = min(last + more, _MAX_STATES)
        elif token not in ("*", "+", "?", "^", "$", "|"):
            last = 1
            groups[-1] += 1
    return max(1, min(sum(groups), _MAX_STATES))


class InputSize(NamedTuple):
    """The size of a value, itself included."""

    values: int
    depth: int = 0
    characters: int = 0
    """In texts and in names."""
    number_units: int = 0
    """What it takes to compare each of its numbers once, beyond that of a small integer."""


def measure(value: object, *, levels: int | None = None) -> InputSize:
    """Measure a value level by level, until it is too large or `levels` are measured."""
    deepest = MAX_JSON_DEPTH + 1 if levels is None else min(levels, MAX_JSON_DEPTH + 1)
    level, depth, values = [value], 0, 1
    characters, units = _count_characters(level), _count_number_units(level)
    while depth < deepest and values <= MAX_INPUT_VALUES:
        objects = cast("list[dict[object, object]]", _pick(level, dict))
        arrays = cast("list[list[object]]", _pick(level, list) + _pick(level, tuple))
        found = sum(map(len, objects)) + sum(map(len, arrays))
        if not found:
            break
        values, depth = values + found, depth + 1
        if values <= MAX_INPUT_VALUES:
            names = list(chain.from_iterable(objects))
            level = [*chain.from_iterable(map(dict[object, object].values, objects))]
            level += chain.from_iterable(arrays)
            characters += _count_characters(names) + _count_characters(level)
            units += _count_number_units(level)
    return InputSize(values, depth, characters, units)


def _count_characters(level: list[object]) -> int:
    return sum(map(len, cast("list[str]", _pick(level, str))))


def _count_number_units(level: list[object]) -> int:
    integers = cast("list[int]", _pick(level, int))
    fractions = cast("list[float]", _pick(level, float))
    if integers and not _is_extreme(min(integers)) and not _is_extreme(max(integers)):
        integers = []
    # Comparing an integer takes the square of its length.
    long = sum(1 + (each.bit_length() // 400) ** 2 for each in integers if _is_extreme(each))
    extreme = long + sum(map(_is_extreme, fractions))
    return _EXTREME_UNITS * extreme + _FRACTION_UNITS * len(fractions)


def _pick(level: list[object], kind: type) -> list[object]:
    """The values of a type; by sets of types, so that measuring takes less time than the check."""
    kinds = set(map(type, level))
    picked = {each for each in kinds if issubclass(each, kind)}
    if picked == kinds:
        return level
    return [value for value in level if type(value) in picked] if picked else []


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
