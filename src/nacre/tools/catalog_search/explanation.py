"""Why an entry was found: what its score is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from nacre.tools.catalog_search.documents import shares_by_field
from nacre.tools.catalog_search.entry_texts import texts_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nacre.json_types import JsonObject
    from nacre.tools.catalog import CatalogEntry
    from nacre.tools.catalog_search.closer_look import Candidate
    from nacre.tools.catalog_search.documents import FieldName
    from nacre.tools.catalog_search.semantic import Fused

EXACT_SCORE: Final = 1_000.0
"""What just this id or name adds: more than any words."""

PartKind = Literal["exact", "word", "pairs", "coverage", "related", "answered", "meaning"]


@dataclass(frozen=True, kw_only=True, slots=True)
class ScorePart:
    """One reason for a score: a word in a field, or what the words do together.

    `exact`: just this id or name. `pairs`: words side by side as in the query. `coverage`: how much
    of the query is in it. `related`: words that the best results have in common. `answered`: taken
    away for words that results before it have. `meaning`: what it is about, in whichever words.
    """

    kind: PartKind
    weight: float
    term: str | None = None
    field: FieldName | None = None

    def to_json(self) -> JsonObject:
        shown: JsonObject = {"kind": self.kind, "weight": round(self.weight, 3)}
        if self.term is not None:
            shown["term"] = self.term
        if self.field is not None:
            shown["field"] = self.field
        return shown


@dataclass(frozen=True, kw_only=True, slots=True)
class Explanation:
    """An entry with its score; the parts add up to it, the heaviest first."""

    entry: CatalogEntry
    score: float
    parts: tuple[ScorePart, ...]

    def to_json(self) -> JsonObject:
        return {
            "entry": self.entry.to_json(),
            "score": round(self.score, 3),
            "parts": [part.to_json() for part in self.parts],
        }


def explained(
    entry: CatalogEntry,
    found: Fused | None,
    query_weights: Mapping[str, float],
    *,
    exact_score: float,
) -> Explanation:
    """For an entry that was found by its words, its meaning, its very name, or several of them."""
    parts = [ScorePart(kind="exact", weight=exact_score)]
    if found is not None:
        parts.append(ScorePart(kind="meaning", weight=found.meaning))
    if found is not None and (candidate := found.candidate) is not None:
        parts += _words(entry, candidate, query_weights)
        parts += [
            ScorePart(kind="pairs", weight=candidate.pairs),
            ScorePart(kind="coverage", weight=candidate.coverage),
            ScorePart(kind="related", weight=candidate.related),
            ScorePart(kind="answered", weight=-candidate.answered),
        ]
    told = sorted((part for part in parts if part.weight), key=lambda part: -part.weight)
    return Explanation(entry=entry, score=sum(part.weight for part in told), parts=tuple(told))


def _words(
    entry: CatalogEntry, candidate: Candidate, query_weights: Mapping[str, float]
) -> list[ScorePart]:
    texts = texts_of(entry)
    weights = candidate.document.weights
    return [
        ScorePart(kind="word", term=term, field=field, weight=weights[term] * weight * share)
        for term, weight in query_weights.items()
        if term in weights
        for field, share in shares_by_field(texts, term).items()
    ]
