"""What it costs to check an input against one schema: upper bounds, in looks of some 6 ns.

The validator holds the interpreter's lock while it works, so a thread would not help: a check that
would take long is not made.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal

from nacre.tools.input_checks.input_size import size_of
from nacre.tools.input_checks.pattern_size import states_in
from nacre.tools.input_checks.schema_weights import (
    parts_of,
    weight_per_character,
    weight_per_error,
    weight_per_number,
)
from nacre.tools.input_checks.schema_work import SchemaWork

if TYPE_CHECKING:
    from nacre.json_types import JsonObject
    from nacre.tools.input_checks.input_size import InputSize

MAX_LOOKS: Final = 8_000_000
MAX_PARTS: Final = 250_000
"""Values in one input, as far down as its schema looks: counting them takes time as well."""

# An error holds a copy of the value that it is about: some 500 ns for every part of it.
_MAX_COPIES: Final = 150_000
_COPIES_PER_ERROR: Final = 10
_CHARACTERS_PER_COPY: Final = 1_000
_MIN_COPIES_OF_ONE_ERROR: Final = 4
_MAX_SCHEMA_PARTS: Final = 20_000
_MAX_PATTERN_STATES: Final = 50_000
_MAX_LOOKUPS_BY_MEMBER: Final = 5_000
# A schema with which less than this cannot be checked is at fault, not the input.
_MIN_PARTS: Final = 1_000

Verdict = Literal["cheap", "input_too_large", "schema_too_costly"]


class CheckCost:
    """The bounds for one schema."""

    def __init__(self, schema: JsonObject) -> None:
        self._schema = schema

    def problem(self) -> str:
        """Why no input can be checked against the schema; empty if there is no reason."""
        # First, so that nothing else is done with a schema that is too large.
        if self.schema_parts > _MAX_SCHEMA_PARTS:
            return f"it has more than {_MAX_SCHEMA_PARTS:,} parts"
        if self._pattern_states > _MAX_PATTERN_STATES:
            return "its patterns are too large or too many"
        if self._per_value.looks(1) > MAX_LOOKS:
            return (
                "a `$ref` does not exist, is not of the form `#/...` or leads to itself; "
                "or there are too many alternatives or values to compare"
            )
        return ""

    def verdict(self, given: JsonObject) -> Verdict:
        """Whether the check may be made; if not, who should do something about it."""
        size = size_of(given, most_parts=MAX_PARTS, levels=self._per_value.levels)
        if size.parts > MAX_PARTS:
            return "input_too_large"
        looks = self._looks(size)
        # A large text beside a costly pattern is harmless if the pattern is for another member.
        lookups = len(given) * self._per_value.breadth
        if looks > MAX_LOOKS and lookups <= _MAX_LOOKUPS_BY_MEMBER:
            looks = self._looks_by_member(given)
        if looks <= MAX_LOOKS:
            return "cheap"
        is_large = looks * _MIN_PARTS <= MAX_LOOKS * (size.parts + size.characters)
        return "input_too_large" if is_large else "schema_too_costly"

    def can_list_errors(self, given: JsonObject) -> bool:
        """Whether the errors may be asked for: they cannot be had one by one."""
        size = size_of(given, most_parts=_MAX_COPIES // _COPIES_PER_ERROR)
        # A part is copied with each of the parts that it is in.
        copies = _COPIES_PER_ERROR * size.parts + (size.depth + 1) * _copies(size)
        return self._per_error.looks(size.depth) * copies <= _MAX_COPIES

    def can_find_first_error(self, given: JsonObject) -> bool:
        """Whether one error may be asked for. With alternatives, it holds all of their errors."""
        if self._per_error.has_deep_alternatives:
            return False
        size = size_of(given, most_parts=_MAX_COPIES // _MIN_COPIES_OF_ONE_ERROR)
        copies = max(_MIN_COPIES_OF_ONE_ERROR, self._per_error.most_alternatives)
        return copies * _copies(size) <= _MAX_COPIES

    @cached_property
    def schema_parts(self) -> int:
        """How many values the schema is made of, counted as far as it matters."""
        return parts_of(self._schema, most=_MAX_SCHEMA_PARTS)

    @cached_property
    def _pattern_states(self) -> int:
        return states_in(self._schema)

    @cached_property
    def _per_value(self) -> SchemaWork:
        return SchemaWork(self._schema)

    @cached_property
    def _per_character(self) -> SchemaWork:
        return SchemaWork(self._schema, weight_per_character)

    @cached_property
    def _per_number(self) -> SchemaWork:
        return SchemaWork(self._schema, weight_per_number)

    @cached_property
    def _per_error(self) -> SchemaWork:
        return SchemaWork(self._schema, weight_per_error)

    def _amounts(self, size: InputSize) -> list[tuple[SchemaWork, int]]:
        amounts = [(self._per_value, size.parts)]
        if size.characters and self._pattern_states:
            amounts.append((self._per_character, size.characters))
        if size.number_work:
            amounts.append((self._per_number, size.number_work))
        return amounts

    def _looks(self, size: InputSize) -> int:
        return sum(amount * work.looks(size.depth) for work, amount in self._amounts(size))

    def _looks_by_member(self, given: JsonObject) -> int:
        root = size_of(given, most_parts=MAX_PARTS, levels=0)
        names = sum(len(str(name)) for name in given)
        total = sum(
            amount * work.looks_at_root
            for work, amount in self._amounts(replace(root, characters=names))
        )
        for name, value in given.items():
            levels = self._per_value.levels
            below = None if levels is None else max(0, levels - 1)
            size = size_of(value, most_parts=MAX_PARTS, levels=below)
            size = replace(size, characters=size.characters + len(str(name)))
            total += sum(
                amount * work.looks_in_member(name, size.depth)
                for work, amount in self._amounts(size)
            )
        return total


def _copies(size: InputSize) -> int:
    return size.parts + size.characters // _CHARACTERS_PER_COPY
