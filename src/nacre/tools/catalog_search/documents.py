"""Catalog entries as weighted documents for ranking.

So that a document, once made, serves every catalog that has this text.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final, Literal

from nacre.tools.catalog_search.terms import terms_and_length_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nacre.json_types import JsonObject, JsonValue
    from nacre.tools.catalog import CatalogEntry


# Who provides a tool may write without end; what it is for stands at the beginning.
_MAX_FIELD_CHARACTERS: Final = 4_000
_MAX_SCHEMA_NODES: Final = 400
_MAX_CHOICES: Final = 20
_MIN_SUMMARY_CHARACTERS: Final = 20
# After a full stop and a space, or the signs of Chinese and Japanese.
_SENTENCE_END: Final = re.compile(r"(?<=[.!?])\s|[\u3002\uff01\uff1f\n]")


def texts_of(entry: CatalogEntry) -> dict[FieldName, str]:
    description = entry.description[:_MAX_FIELD_CHARACTERS].strip()
    end = _SENTENCE_END.search(description, _MIN_SUMMARY_CHARACTERS)
    summary_length = len(description) if end is None else end.start()
    schema = _SchemaTexts(entry.tool.parameters)
    return {
        "name": entry.name,
        "label": (entry.label or "")[:_MAX_FIELD_CHARACTERS],
        "summary": description[:summary_length],
        "description": description[summary_length:],
        "parameter": " ".join(schema.names)[:_MAX_FIELD_CHARACTERS],
        "parameter description": " ".join(schema.descriptions)[:_MAX_FIELD_CHARACTERS],
        "choice": " ".join(schema.choices)[:_MAX_FIELD_CHARACTERS],
        "owner": entry.source_name or "",
    }


class _SchemaTexts:
    """The names of the properties, descriptions and choices, wherever they stand in a schema."""

    def __init__(self, schema: JsonObject) -> None:
        self.names: list[str] = []
        self.descriptions: list[str] = []
        self.choices: list[str] = []
        self._open: deque[JsonValue] = deque([schema])
        for _ in range(_MAX_SCHEMA_NODES):
            if not self._open:
                break
            node = self._open.popleft()
            if isinstance(node, list):
                self._open.extend(node[:_MAX_SCHEMA_NODES])
            elif isinstance(node, dict):
                self._read(node)

    def _read(self, node: JsonObject) -> None:
        description = node.get("description")
        if isinstance(description, str):
            self.descriptions.append(description[:_MAX_FIELD_CHARACTERS])
        choices = node.get("enum")
        if isinstance(choices, list):
            texts = (each for each in choices[:_MAX_CHOICES] if isinstance(each, str))
            self.choices.extend(each[:_MAX_FIELD_CHARACTERS] for each in texts)
        properties = node.get("properties")
        if isinstance(properties, dict):
            some = list(islice(properties.items(), _MAX_SCHEMA_NODES))
            self.names.extend(name for name, _ in some)
            self._open.extend(part for _, part in some)
        for place in ("items", "anyOf", "oneOf", "allOf"):
            if place in node:
                self._open.append(node[place])


FieldName = Literal[
    "name",
    "label",
    "summary",
    "description",
    "parameter",
    "parameter description",
    "choice",
    "owner",
]


@dataclass(frozen=True, kw_only=True, slots=True)
class Field:
    """How much a field's terms count, and how much is taken away when it is longer than usual."""

    weight: float
    length_penalty: float
    usual_length: float


# Lengths are compared with fixed ones, not with the catalog's own averages: see above. The figures
# are plain ones from a wide plateau of `benchmarks/search_quality.py`.
FIELDS: Final[Mapping[FieldName, Field]] = {
    "name": Field(weight=5.0, length_penalty=0.7, usual_length=2),
    "label": Field(weight=3.0, length_penalty=0.5, usual_length=3),
    "summary": Field(weight=1.2, length_penalty=0.1, usual_length=12),
    "description": Field(weight=0.5, length_penalty=0.2, usual_length=15),
    "parameter": Field(weight=0.5, length_penalty=0.2, usual_length=3),
    "parameter description": Field(weight=0.3, length_penalty=0.2, usual_length=12),
    "choice": Field(weight=0.3, length_penalty=0.2, usual_length=4),
    "owner": Field(weight=0.9, length_penalty=0.3, usual_length=2),
}
# A long text has many words by chance, in whichever fields.
_LENGTH_PENALTY: Final = 0.2
_USUAL_LENGTH: Final = 30
# How soon a repeated term adds no more.
_SATURATION: Final = 1.3
# Words side by side mean something here; elsewhere they are lists.
_PROSE: Final[tuple[FieldName, ...]] = ("name", "label", "summary", "description")


@dataclass(frozen=True, kw_only=True, slots=True)
class Document:
    """The terms of a text with what each counts, and its prose as terms; None between fields."""

    weights: Mapping[str, float]
    prose: tuple[str | None, ...]


def document_of(texts: Mapping[FieldName, str]) -> Document:
    by_field: dict[FieldName, tuple[list[str], int]] = {
        name: terms_and_length_of(texts.get(name, "")) for name in FIELDS
    }
    total_length = sum(length for _, length in by_field.values())
    scale = _scale(total_length, _LENGTH_PENALTY, _USUAL_LENGTH)
    frequencies: dict[str, float] = {}
    for name, (terms, length) in by_field.items():
        each = scale * _weight_of_each(FIELDS[name], length)
        for term in terms:
            frequencies[term] = frequencies.get(term, 0.0) + each
    weights = {term: _saturate(frequency) for term, frequency in frequencies.items()}
    prose = (term for name in _PROSE for term in (*by_field[name][0], None))
    return Document(weights=weights, prose=tuple(prose))


def shares_by_field(texts: Mapping[FieldName, str], term: str) -> dict[FieldName, float]:
    """Which fields a term's weight comes from; the shares add up to 1."""
    found: dict[FieldName, float] = {}
    for name, field in FIELDS.items():
        terms, length = terms_and_length_of(texts.get(name, ""))
        if count := terms.count(term):
            found[name] = count * _weight_of_each(field, length)
    total = sum(found.values())
    return {name: part / total for name, part in found.items()}


def _weight_of_each(field: Field, length: int) -> float:
    return field.weight * _scale(length, field.length_penalty, field.usual_length)


def _scale(length: int, penalty: float, usual_length: float) -> float:
    return 1 / (1 - penalty + penalty * length / usual_length)


def _saturate(frequency: float) -> float:
    return (_SATURATION + 1) * frequency / (_SATURATION + frequency)
