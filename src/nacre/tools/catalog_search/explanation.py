"""Why an entry was found: what its score is made of."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal

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
"""What just this id or name adds: more than any words."""

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
    """One reason for a score: a word in a field, or what the words do together.

    `exact`: just this id or name. `pairs`: words side by side as in the query. `coverage`: how much
    of the query is in it. `related`: words that the best results have in common. `answered`: taken
    away for words that results before it have. `meaning`: what it is about, in whichever words.
    `own_words`: it was ahead before related and answered words were counted, and stays there.
    `catalog_order`: of several with just this name, the first in the catalog leads.
    """

    kind: PartKind
    weight: float
    term: str | None = None
    field: FieldName | None = None
    stands_for: str | None = None
    """The word of the query, where the term is another one: a synonym, or a guess at a spelling."""

    def to_json(self) -> JsonObject:
        shown: JsonObject = {"kind": self.kind, "weight": round(self.weight, 3)}
        if self.term is not None:
            shown["term"] = self.term
        if self.field is not None:
            shown["field"] = self.field
        if self.stands_for is not None:
            shown["standsFor"] = self.stands_for
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


def explain_entry(
    entry: CatalogEntry,
    found: Fused | None,
    query_weights: Mapping[str, float],
    *,
    stood_for: Mapping[str, str],
    exact_score: float,
) -> Explanation:
    """For an entry that was found by its words, its meaning, its very name, or several of them.

    `stood_for` has the word of the query by each term that it does not have itself.
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
    told = _heaviest_first(parts)
    return Explanation(entry=entry, score=sum(part.weight for part in told), parts=told)


def in_order(best_first: Iterable[Explanation]) -> list[Explanation]:
    """The same with scores that go down: what else the order goes by becomes a part of them."""
    told: list[Explanation] = []
    for each in reversed(list(best_first)):
        is_behind = bool(told) and each.score < told[-1].score
        told.append(_raise_score(each, told[-1].score) if is_behind else each)
    return told[::-1]


def words_by_term(query: str) -> dict[str, str]:
    """The words as the query has them, by what a search makes of each."""
    words: dict[str, str] = {}
    for word in _WORD.findall(query):
        for term in terms_of(word):
            words.setdefault(term, word)
    return words


def _raise_score(explanation: Explanation, score: float) -> Explanation:
    is_exact = any(part.kind == "exact" for part in explanation.parts)
    kind: PartKind = "catalog_order" if is_exact else "own_words"
    place = ScorePart(kind=kind, weight=score - explanation.score)
    return replace(explanation, score=score, parts=_heaviest_first((*explanation.parts, place)))


def _heaviest_first(parts: Iterable[ScorePart]) -> tuple[ScorePart, ...]:
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
