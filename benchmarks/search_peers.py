"""Reimplementations of how other systems rank tools, for the same queries.

The figures of systems that cannot run here are quoted in `targets.py`.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, cast

from snowballstemmer.english_stemmer import (  # pyright: ignore[reportMissingTypeStubs]
    EnglishStemmer,
)

from nacre.tools.catalog import CatalogEntry
from nacre.tools.catalog_search.terms import terms_of

Terms = Callable[[str], list[str]]
Search = Callable[[str, int], list[str]]
"""Returns the ids of the best tools for a query."""

_K1: Final = 1.2
_B: Final = 0.75
_PLAIN_WORD: Final = re.compile(r"[a-z0-9]+")
# Unicode word boundaries: underscores and dots between letters are part of a word.
_WHOLE_WORD: Final = re.compile(r"[^\W_]+(?:[_.'][^\W_]+)*")
_STOP_WORD_LIST: Final = """
a an and are as at be but by for from have i if in into is it me my no not of on or our so that the
their then there these they this to was what which will with you your
"""
_STOP_WORDS: Final = frozenset(_STOP_WORD_LIST.split())


class _Stemmer(Protocol):
    def stemWord(self, word: str) -> str: ...


_STEMMER: Final = cast("_Stemmer", EnglishStemmer())


@dataclass(frozen=True, kw_only=True, slots=True)
class _WeightedText:
    weight: float
    terms: Sequence[str]


def peers(entries: Sequence[CatalogEntry]) -> dict[str, Search]:
    """All available peers over these tools."""
    return {
        "naive": _overlap(entries, _content_words),
        "pydanticAi": _overlap(entries, _PLAIN_WORD.findall),
        "bm25": _bm25(entries, lambda entry: [(1.0, _name_and_description(entry))], _plain_words),
        "codex": _bm25(entries, lambda entry: [(1.0, _codex_text(entry))], _whole_stems),
        "fastMcp": _bm25(entries, lambda entry: [(1.0, _fast_mcp_text(entry))], _longer_words),
        "openClaw": _bm25(entries, lambda entry: [(1.0, _open_claw_text(entry))], terms_of),
        "bm25f": _bm25(entries, _fields, terms_of),
    }


def _overlap(entries: Sequence[CatalogEntry], words: Callable[[str], Iterable[str]]) -> Search:
    """Ranks by the number of words of the query in the name or description."""
    texts = [(entry.id, set(words(_name_and_description(entry).lower()))) for entry in entries]

    def search(query: str, limit: int) -> list[str]:
        wanted = set(words(query.lower()))
        scored = [(len(wanted & text), tool_id) for tool_id, text in texts]
        best = sorted((each for each in scored if each[0]), key=lambda each: -each[0])
        return [tool_id for _, tool_id in best[:limit]]

    return search


def _bm25(
    entries: Sequence[CatalogEntry],
    texts: Callable[[CatalogEntry], list[tuple[float, str]]],
    terms: Terms,
) -> Search:
    """BM25, or BM25F with several weighted texts per tool."""
    fields = [[_WeightedText(weight=w, terms=terms(t)) for w, t in texts(it)] for it in entries]
    gains = _gains_by_term(fields)

    def search(query: str, limit: int) -> list[str]:
        scores: dict[int, float] = {}
        for term in terms(query):
            for position, gain in gains.get(term, {}).items():
                scores[position] = scores.get(position, 0.0) + gain
        best = sorted(scores, key=lambda position: (-scores[position], position))
        return [entries[position].id for position in best[:limit]]

    return search


def _gains_by_term(documents: Sequence[Sequence[_WeightedText]]) -> dict[str, dict[int, float]]:
    count = len(documents)
    averages = [
        max(1.0, sum(len(document[place].terms) for document in documents) / count)
        for place in range(len(documents[0]))
    ]
    frequencies: dict[str, dict[int, float]] = {}
    for position, document in enumerate(documents):
        for text, average in zip(document, averages, strict=True):
            each = text.weight / (1 - _B + _B * len(text.terms) / average)
            for term, times in Counter(text.terms).items():
                of_term = frequencies.setdefault(term, {})
                of_term[position] = of_term.get(position, 0.0) + each * times
    return {
        term: {
            position: _rarity(count, len(found)) * (_K1 + 1) * frequency / (_K1 + frequency)
            for position, frequency in found.items()
        }
        for term, found in frequencies.items()
    }


def _rarity(document_count: int, count: int) -> float:
    return math.log(1 + (document_count - count + 0.5) / (count + 0.5))


def _name_and_description(entry: CatalogEntry) -> str:
    return f"{entry.name} {entry.description}"


def _codex_text(entry: CatalogEntry) -> str:
    """The name, with and without separators, description, server and parameter names."""
    parameters = _properties(entry.tool.parameters)
    spaced = entry.name.replace("_", " ")
    owner = entry.source_name or ""
    return " ".join([entry.name, spaced, entry.description, owner, *parameters])


def _fast_mcp_text(entry: CatalogEntry) -> str:
    parameters = _properties(entry.tool.parameters)
    return " ".join([_name_and_description(entry), *parameters, *_described(parameters)])


def _open_claw_text(entry: CatalogEntry) -> str:
    """No parameters, as for MCP tools; its ten hand-written expansions of queries are left out."""
    return f"{entry.name} {entry.description} {entry.source_name or ''}"


def _fields(entry: CatalogEntry) -> list[tuple[float, str]]:
    parameters = _properties(entry.tool.parameters)
    return [
        (3.0, entry.name),
        (1.0, entry.description),
        (0.5, " ".join(parameters)),
        (0.5, " ".join(_described(parameters))),
        (0.5, entry.source_name or ""),
    ]


def _described(parameters: Mapping[str, Any]) -> list[str]:
    return [
        str(cast("Mapping[str, Any]", each).get("description", ""))
        for each in parameters.values()
        if isinstance(each, dict)
    ]


def _properties(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    properties = schema.get("properties")
    return cast("Mapping[str, Any]", properties) if isinstance(properties, dict) else {}


def _content_words(text: str) -> list[str]:
    return [word for word in _PLAIN_WORD.findall(text) if word not in _STOP_WORDS]


def _plain_words(text: str) -> list[str]:
    return _PLAIN_WORD.findall(text.lower())


def _longer_words(text: str) -> list[str]:
    return [word for word in _plain_words(text) if len(word) > 1]


def _whole_stems(text: str) -> list[str]:
    words = _WHOLE_WORD.findall(text.lower())
    return [_STEMMER.stemWord(word) for word in words if word not in _STOP_WORDS]
