"""Catalog entries as weighted documents for ranking.

A document depends only on the texts of its entry, so all catalogs with the entry can use it.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, cast

from nacre.lazy_dataclasses import dataclass
from nacre.tools.catalog_search.terms import is_reading_verb, terms_and_length_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from nacre.json_types import JsonObject, JsonValue
    from nacre.tools.catalog import CatalogEntry


# Descriptions may be very long; the purpose of a tool is at the beginning.
_MAX_FIELD_CHARACTERS: Final = 4_000
_MAX_SCHEMA_NODES: Final = 400
_MAX_CHOICES: Final = 20
_MIN_SUMMARY_CHARACTERS: Final = 20
_NO_WORD: Final = re.compile(r"[\W_]+")
# A full stop and a space, or the punctuation of Chinese and Japanese.
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


def join_words(name: str) -> str:
    """Letters and digits only: `listMergeRequests` has the words of "list merge requests"."""
    return _NO_WORD.sub("", name.casefold())


class _SchemaTexts:
    """The property names, descriptions and enum values anywhere in a schema."""

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
        for key in ("items", "anyOf", "oneOf", "allOf"):
            if key in node:
                self._open.append(node[key])


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
    """The weight of the terms in a field, and the penalty if it is longer than usual."""

    weight: float
    length_penalty: float
    usual_length: float


# Lengths are compared with constants instead of averages over the catalog, so that a document does
# not depend on the catalog. The values are round ones; `benchmarks/search_quality.py` hardly
# changes around them.
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
# A long text contains many words by chance.
_LENGTH_PENALTY: Final = 0.2
_USUAL_LENGTH: Final = 30
# How quickly the weight of a repeated term saturates.
_SATURATION: Final = 1.3
# Names begin with a verb, or with the name of a product and a verb.
_MAX_VERB_PLACE: Final = 2
# Adjacent words are related only in these fields; the others are lists.
_PROSE: Final[tuple[FieldName, ...]] = ("name", "label", "summary", "description")


Pair: TypeAlias = "tuple[str, str]"


@dataclass(frozen=True, kw_only=True, slots=True)
class Document:
    """The weights of the terms, and the terms of the prose fields, separated by None."""

    weights: Mapping[str, float]
    prose: tuple[str | None, ...]
    is_reading: bool = False
    """Whether the tool seems to read only, by the first words of its name and summary."""

    def count_pairs(self, pairs: Iterable[Pair]) -> dict[Pair, int]:
        """How often these pairs of different terms of the document are adjacent in its prose, in
        the order of their first places; without those that never are."""
        wanted = {pair: pair for pair in pairs}
        found = (wanted.get(cast("Pair", pair)) for pair in pairwise(self.prose))
        return dict(Counter(pair for pair in found if pair is not None))


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
    first_words = (*by_field["name"][0][:_MAX_VERB_PLACE], *by_field["summary"][0][:1])
    is_reading = any(map(is_reading_verb, first_words))
    return Document(weights=weights, prose=tuple(prose), is_reading=is_reading)


def shares_by_field(texts: Mapping[FieldName, str], term: str) -> dict[FieldName, float]:
    """The share of each field in the weight of a term; the shares add up to 1."""
    parts: dict[FieldName, float] = {}
    for name, field in FIELDS.items():
        terms, length = terms_and_length_of(texts.get(name, ""))
        if count := terms.count(term):
            parts[name] = count * _weight_of_each(field, length)
    total = sum(parts.values())
    return {name: part / total for name, part in parts.items()}


def _weight_of_each(field: Field, length: int) -> float:
    return field.weight * _scale(length, field.length_penalty, field.usual_length)


def _scale(length: int, penalty: float, usual_length: float) -> float:
    return 1 / (1 - penalty + penalty * length / usual_length)


def _saturate(frequency: float) -> float:
    return (_SATURATION + 1) * frequency / (_SATURATION + frequency)
