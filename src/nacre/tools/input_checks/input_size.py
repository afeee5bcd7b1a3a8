"""How large an input is, counted as far down as its schema looks and no further than is needed."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from operator import methodcaller
from typing import TYPE_CHECKING, cast

from nacre.json_types import MAX_JSON_DEPTH
from nacre.tools.input_checks.schema_weights import number_work

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


@dataclass(frozen=True, kw_only=True, slots=True)
class InputSize:
    """What there is in a value, itself included."""

    parts: int
    depth: int
    """Levels below the value itself."""
    characters: int
    """Of texts and of names."""
    number_work: int
    """What comparing each of its numbers once takes, in looks."""


def size_of(value: object, *, most_parts: int, levels: int | None = None) -> InputSize:
    """The size, counted until there are more than `most_parts` or so many levels are counted."""
    deepest = MAX_JSON_DEPTH + 1 if levels is None else min(levels, MAX_JSON_DEPTH + 1)
    level = _Level([value])
    parts, depth = 1, 0
    characters, numbers = level.characters(), level.number_work()
    while depth < deepest and parts <= most_parts:
        objects, arrays = level.objects(), level.arrays()
        found = sum(map(len, objects)) + sum(map(len, arrays))
        if not found:
            break
        parts, depth = parts + found, depth + 1
        if parts <= most_parts:
            members = chain.from_iterable(map(methodcaller("values"), objects))
            level = _Level([*members, *chain.from_iterable(arrays)])
            characters += _Level(chain.from_iterable(objects)).characters() + level.characters()
            numbers += level.number_work()
    return InputSize(parts=parts, depth=depth, characters=characters, number_work=numbers)


class _Level:
    """Values at one depth. Picked by type, and only the types that are there: so counting costs
    less than the check that it guards."""

    def __init__(self, values: Iterable[object]) -> None:
        self._values = list(values)
        self._kinds = set(map(type, self._values))

    def objects(self) -> list[dict[object, object]]:
        return cast("list[dict[object, object]]", self._of(dict))

    def arrays(self) -> list[Sequence[object]]:
        return cast("list[Sequence[object]]", self._of(list) + self._of(tuple))

    def characters(self) -> int:
        return sum(map(len, cast("list[str]", self._of(str))))

    def number_work(self) -> int:
        integers = cast("list[int]", self._of(int))
        fractions = cast("list[float]", self._of(float))
        are_small = not integers or (number_work(min(integers)) == number_work(max(integers)) == 0)
        return sum(map(number_work, fractions if are_small else fractions + integers))

    def _of(self, kind: type) -> list[object]:
        kinds = {found for found in self._kinds if issubclass(found, kind)}
        if not kinds:
            return []
        return [value for value in self._values if type(value) in kinds]
