"""The quality of search with real queries, compared with peers."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

from benchmarks.one import Effort
from benchmarks.report import Figure
from benchmarks.search_peers import Search, peers
from benchmarks.search_sets import (
    LabelledQuery,
    QuerySet,
    SetsMissingError,
    labelled_catalog,
    query_sets,
    server_catalogs,
)
from benchmarks.targets import TARGETS
from nacre.tools import index_of
from nacre.tools.catalog import Catalog

_SHOWN: Final = 8
# The first correct tool may be below the shown results.
_RANKED: Final = 50
_OURS: Final = "nacre"
_LEAD: Final = "search_lead"
_OF_SETS: Final = ("search_recall_", "search_mrr_", "search_own_name_")
_NAME_PART: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\x00-\x7f]+")


@dataclass(frozen=True, kw_only=True, slots=True)
class Quality:
    """The scores of one query, or the mean of many."""

    recall_1: float
    recall_5: float
    recall_8: float
    mrr: float
    ndcg_8: float

    @classmethod
    def of(cls, ranked: Sequence[str], relevant: frozenset[str]) -> Self:
        hits = [each in relevant for each in ranked]
        ideal = sum(_discount(place) for place in range(min(_SHOWN, len(relevant))))
        gained = sum(_discount(place) for place, hit in enumerate(hits[:_SHOWN]) if hit)
        return cls(
            recall_1=sum(hits[:1]) / len(relevant),
            recall_5=sum(hits[:5]) / len(relevant),
            recall_8=sum(hits[:_SHOWN]) / len(relevant),
            mrr=1 / (hits.index(True) + 1) if True in hits else 0.0,
            ndcg_8=gained / ideal,
        )

    @classmethod
    def mean(cls, each: Sequence[Self]) -> Self:
        count = len(each)
        return cls(
            recall_1=sum(it.recall_1 for it in each) / count,
            recall_5=sum(it.recall_5 for it in each) / count,
            recall_8=sum(it.recall_8 for it in each) / count,
            mrr=sum(it.mrr for it in each) / count,
            ndcg_8=sum(it.ndcg_8 for it in each) / count,
        )


async def measure(effort: Effort) -> list[Figure]:
    try:
        sets = list(query_sets())
    except SetsMissingError as missing:
        names = [name for name in TARGETS if name.startswith(_OF_SETS)]
        return [Figure(name=name, value=None, note=str(missing)) for name in (_LEAD, *names)]
    searches: dict[str, dict[str, Search]] = {}
    figures: list[Figure] = []
    leads: dict[str, float] = {}
    for each in sets:
        if each.catalog_name not in searches:
            searches[each.catalog_name] = _searches(labelled_catalog(each.catalog_name))
        queries = each.queries[:: effort.times(1, quick=10)]
        found = {
            name: _quality(search, queries) for name, search in searches[each.catalog_name].items()
        }
        _say(effort, each, found)
        figures += _figures(each.name, found)
        leads |= _leads(each.name, found)
    lead = Figure(name=_LEAD, value=min(leads.values()), details=leads)
    return [lead, *_own_name_figures(effort), *figures]


def _own_name_figures(effort: Effort) -> list[Figure]:
    """How often the name of an MCP tool, as words, finds the tool in the catalog of its server."""
    places: list[int] = []
    for catalog in server_catalogs()[:: effort.times(1, quick=10)]:
        index = index_of(catalog)
        for entry in catalog.entries:
            found = index.search_words(" ".join(_NAME_PART.findall(entry.name)), _SHOWN)
            places.append(found.index(entry) if entry in found else _SHOWN)
    details = {"tools": float(len(places))}
    return [
        Figure(name="search_own_name_first", value=places.count(0) / len(places), details=details),
        Figure(
            name="search_own_name_in_8",
            value=sum(place < _SHOWN for place in places) / len(places),
        ),
    ]


def _searches(catalog: Catalog) -> dict[str, Search]:
    index = index_of(catalog)

    def search(query: str, limit: int) -> list[str]:
        return [entry.id for entry in index.search_words(query, limit)]

    return {_OURS: search, **peers(catalog.entries)}


def _quality(search: Search, queries: Sequence[LabelledQuery]) -> Quality:
    return Quality.mean([Quality.of(search(it.text, _RANKED), it.relevant) for it in queries])


def _discount(place: int) -> float:
    return 1 / math.log2(place + 2)


def _figures(set_name: str, found: dict[str, Quality]) -> list[Figure]:
    ours = found[_OURS]
    recalls = {name: quality.recall_8 for name, quality in found.items() if name != _OURS}
    ranks = {name: quality.mrr for name, quality in found.items() if name != _OURS}
    of_recall = {"recallAt1": ours.recall_1, "recallAt5": ours.recall_5, **recalls}
    of_rank = {"ndcgAt8": ours.ndcg_8, **ranks}
    return [
        Figure(name=f"search_recall_{set_name}", value=ours.recall_8, details=of_recall),
        Figure(name=f"search_mrr_{set_name}", value=ours.mrr, details=of_rank),
    ]


def _leads(set_name: str, found: dict[str, Quality]) -> dict[str, float]:
    """The lead over the best available peer."""
    ours = found[_OURS]
    others = [quality for name, quality in found.items() if name != _OURS]
    return {
        f"recall {set_name}": ours.recall_8 - max(it.recall_8 for it in others),
        f"mrr {set_name}": ours.mrr - max(it.mrr for it in others),
    }


def _say(effort: Effort, of: QuerySet, found: dict[str, Quality]) -> None:
    effort.say(f"  {of.name}: recall at 1, 5, 8; MRR; nDCG at 8")
    for name, it in found.items():
        figures = (it.recall_1, it.recall_5, it.recall_8, it.mrr, it.ndcg_8)
        effort.say(f"    {name:10}  " + "  ".join(f"{figure:.3f}" for figure in figures))
