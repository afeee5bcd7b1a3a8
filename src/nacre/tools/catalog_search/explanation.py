"""Explains search results: the parts of each score."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Literal

from nacre.lazy_dataclasses import dataclass
from nacre.tools.catalog_search.documents import shares_by_field, texts_of
from nacre.tools.catalog_search.terms import terms_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from nacre.json_types import JsonObject
    from nacre.tools.catalog import CatalogEntry
    from nacre.tools.catalog_search.documents import FieldName
    from nacre.tools.catalog_search.reranking import Candidate
    from nacre.tools.catalog_search.semantic import Fused

_WORD = re.compile(r"\w+")

EXACT_SCORE: Final = 1_000.0
"""The score of an exact id or name, higher than any score of words."""

PartKind = Literal[
    "exact",
    "word",
    "pairs",
    "coverage",
    "related",
    "answered",
    "meaning",
    "own_words",
    "catalog_order",
]


@dataclass(frozen=True, kw_only=True, slots=True)
class ScorePart:
    """One part of a score: a word in a field, or a combination of words.

    `exact`: the query is the id, the name or the words of the name. `pairs`: words that are
    adjacent, as in the query. `coverage`: the share of the query that it contains. `related`:
    words that the best results have in common. `answered`: a reduction for words that earlier
    results contain. `meaning`: the similarity of the embeddings. `own_words`: it was first
    before related and answered words were counted, and stays first. `catalog_order`: of several
    entries with this name, the first in the catalog comes first.
    """

    kind: PartKind
    weight: float
    term: str | None = None
    field: FieldName | None = None
    stands_for: str | None = None
    """The word of the query, if the term is a synonym or a spelling correction of it."""

    def to_json(self) -> JsonObject:
        part: JsonObject = {"kind": self.kind, "weight": round(self.weight, 3)}
        if self.term is not None:
            part["term"] = self.term
        if self.field is not None:
            part["field"] = self.field
        if self.stands_for is not None:
            part["standsFor"] = self.stands_for
        return part


@dataclass(frozen=True, kw_only=True, slots=True)
class Explanation:
    """An entry with its score and the parts that add up to it, largest first."""

    entry: CatalogEntry
    score: float
    parts: tuple[ScorePart, ...]

    def to_json(self) -> JsonObject:
        return {
            "entry": self.entry.to_json(),
            "score": round(self.score, 3),
            "parts": [part.to_json() for part in self.parts],
        }


def explain_entry(
    entry: CatalogEntry,
    found: Fused | None,
    query_weights: Mapping[str, float],
    *,
    stood_for: Mapping[str, str],
    exact_score: float,
) -> Explanation:
    """Explain an entry that was found by its words, its meaning, or its exact name.

    `stood_for` maps terms that are not in the query to the word of the query.
    """
    parts = [ScorePart(kind="exact", weight=exact_score)]
    if found is not None:
        parts.append(ScorePart(kind="meaning", weight=found.meaning))
    if found is not None and (candidate := found.candidate) is not None:
        parts += _words(entry, candidate, query_weights, stood_for)
        parts += [
            ScorePart(kind="pairs", weight=candidate.pairs),
            ScorePart(kind="coverage", weight=candidate.coverage),
            ScorePart(kind="related", weight=candidate.related),
            ScorePart(kind="answered", weight=-candidate.answered),
        ]
    sorted_parts = _sort_parts(parts)
    score = sum(part.weight for part in sorted_parts)
    return Explanation(entry=entry, score=score, parts=sorted_parts)


def make_scores_descend(best_first: Iterable[Explanation]) -> list[Explanation]:
    """Raise scores where needed, so that they descend; the difference becomes a part."""
    worst_first: list[Explanation] = []
    for each in reversed(list(best_first)):
        is_lower = bool(worst_first) and each.score < worst_first[-1].score
        worst_first.append(_raise_score(each, worst_first[-1].score) if is_lower else each)
    return worst_first[::-1]


def words_by_term(query: str) -> dict[str, str]:
    """The words of the query by their terms."""
    words: dict[str, str] = {}
    for word in _WORD.findall(query):
        for term in terms_of(word):
            words.setdefault(term, word)
    return words


def _raise_score(explanation: Explanation, score: float) -> Explanation:
    is_exact = any(part.kind == "exact" for part in explanation.parts)
    kind: PartKind = "catalog_order" if is_exact else "own_words"
    raised = ScorePart(kind=kind, weight=score - explanation.score)
    return replace(explanation, score=score, parts=_sort_parts((*explanation.parts, raised)))


def _sort_parts(parts: Iterable[ScorePart]) -> tuple[ScorePart, ...]:
    return tuple(sorted((part for part in parts if part.weight), key=lambda part: -part.weight))


def _words(
    entry: CatalogEntry,
    candidate: Candidate,
    query_weights: Mapping[str, float],
    stood_for: Mapping[str, str],
) -> list[ScorePart]:
    texts = texts_of(entry)
    weights = candidate.document.weights
    return [
        ScorePart(
            kind="word",
            term=term,
            field=field,
            weight=weights[term] * weight * share,
            stands_for=stood_for.get(term),
        )
        for term, weight in query_weights.items()
        if term in weights
        for field, share in shares_by_field(texts, term).items()
    ]
