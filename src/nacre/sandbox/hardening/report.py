"""What was done to a worker and what could not be done, in a form that travels as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Callable

_Kind = TypeVar("_Kind")


class NotApplied(Exception):
    """A measure does not hold; the message says why."""


@dataclass(frozen=True, kw_only=True)
class Measure:
    """One protection: whether it holds in this process, and how or why not."""

    name: str
    applied: bool
    detail: str


@dataclass(frozen=True, kw_only=True)
class HardeningReport:
    """Every measure that was tried, in the order in which it was tried."""

    measures: tuple[Measure, ...]

    @property
    def missing(self) -> tuple[Measure, ...]:
        return tuple(measure for measure in self.measures if not measure.applied)

    def to_json(self) -> dict[str, list[dict[str, str | bool]]]:
        """A JSON value, not text: it is a part of a larger message."""
        return {
            "measures": [
                {"name": measure.name, "applied": measure.applied, "detail": measure.detail}
                for measure in self.measures
            ]
        }

    @classmethod
    def from_json(cls, value: object) -> HardeningReport:
        """Raises ValueError for anything that `to_json` would not have written."""
        measures = cast("list[object]", _field(value, "measures", list))
        return cls(measures=tuple(_measure_from_json(item) for item in measures))


def attempt(name: str, step: Callable[[], str]) -> Measure:
    """Run one step; it returns a detail, or raises and becomes a measure that is not applied."""
    try:
        return Measure(name=name, applied=True, detail=step())
    except NotApplied as refusal:
        return Measure(name=name, applied=False, detail=str(refusal))
    except Exception as error:
        # A worker with one protection less still needs the others, whatever went wrong here.
        return Measure(name=name, applied=False, detail=f"{type(error).__name__}: {error}")


def _measure_from_json(value: object) -> Measure:
    return Measure(
        name=_field(value, "name", str),
        applied=_field(value, "applied", bool),
        detail=_field(value, "detail", str),
    )


def _field(value: object, key: str, kind: type[_Kind]) -> _Kind:
    content = cast("dict[str, object]", value).get(key) if isinstance(value, dict) else None
    if not isinstance(content, kind):
        raise ValueError(f"a hardening report needs {key!r} as {kind.__name__}, not {content!r}")
    return content
