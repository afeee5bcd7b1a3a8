"""Search with the extra `semantic`: its quality compared with word search, and its cost."""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from benchmarks.generated_tools import generated_tools
from benchmarks.measurement import elapsed_ms, median, percentile
from benchmarks.one import Effort
from benchmarks.report import Figure
from benchmarks.search_peers import Search, peers
from benchmarks.search_quality import Quality
from benchmarks.search_sets import (
    LabelledQuery,
    QuerySet,
    SetsMissingError,
    labelled_catalog,
    query_sets,
)
from benchmarks.targets import TARGETS
from nacre.tools import CatalogIndex, index_of
from nacre.tools.catalog import Catalog, build_catalog
from nacre.tools.catalog_search.semantic import Meanings, meaning_text

_PREFIX: Final = "search_semantic_"
_RANKED: Final = 50
_SHOWN: Final = 8
_FUSED: Final = 200
# The constant of the original paper on reciprocal rank fusion.
_RRF: Final = 60
_MOST_SECONDS: Final = 600.0
_NEW_TOOLS: Final = 300
_LARGEST: Final = "union10k"


class _NotInstalledError(Exception):
    """No model is installed."""


async def measure(effort: Effort) -> list[Figure]:
    try:
        return [_build_figure(), *_quality_figures(effort)]
    except (SetsMissingError, _NotInstalledError) as missing:
        names = [name for name in TARGETS if name.startswith(_PREFIX)]
        return [Figure(name=name, value=None, note=str(missing)) for name in names]


def _build_figure() -> Figure:
    """The time of the background thread for new tools."""
    now = time.time_ns()
    tools = [
        replace(tool, description=f"{tool.description} Revision {now}.")
        for tool in generated_tools(_NEW_TOOLS)
    ]
    # The models are loaded once per process.
    index = _ready(index_of(build_catalog(tools[:1])))
    if not index.knows_meanings:
        raise _NotInstalledError("the extra `semantic` is not installed")
    started = time.perf_counter()
    _ready(index_of(build_catalog(tools)))
    spent = elapsed_ms(started) / _NEW_TOOLS
    return Figure(name=f"{_PREFIX}build", value=spent, details={"tools": float(_NEW_TOOLS)})


def _quality_figures(effort: Effort) -> list[Figure]:
    searches: dict[str, dict[str, Search]] = {}
    figures: list[Figure] = []
    leads: dict[str, float] = {}
    own_recalls: list[float] = []
    samples: list[float] = []
    for each in query_sets():
        if each.catalog_name not in searches:
            searches[each.catalog_name] = _searches(labelled_catalog(each.catalog_name))
        queries = each.queries[:: effort.times(1, quick=10)]
        found = {
            name: _quality(search, queries) for name, search in searches[each.catalog_name].items()
        }
        if each.catalog_name == _LARGEST:
            samples += _query_ms(searches[_LARGEST]["semantic"], queries[:100])
        else:
            own_recalls.append(found["semantic"].recall_8)
        _say(effort, each, found)
        figures += _figures(each.name, found)
        leads[f"recall {each.name}"] = found["semantic"].recall_8 - found["rrf"].recall_8
        leads[f"mrr {each.name}"] = found["semantic"].mrr - found["rrf"].mrr
    details = {"queries": float(len(samples)), "p95Ms": percentile(samples, 95)}
    return [
        Figure(name=f"{_PREFIX}query_10k", value=median(samples), details=details),
        Figure(name=f"{_PREFIX}mean_recall", value=sum(own_recalls) / len(own_recalls)),
        Figure(name=f"{_PREFIX}lead", value=min(leads.values()), details=leads),
        *figures,
    ]


def _searches(catalog: Catalog) -> dict[str, Search]:
    index = _ready(index_of(catalog))
    meanings = Meanings({at: meaning_text(entry) for at, entry in enumerate(catalog.entries)})
    meanings.wait(_MOST_SECONDS)
    reference = peers(catalog.entries)["bm25f"]

    def dense(query: str, limit: int) -> list[str]:
        """Ranks by the sentence model alone, with the whole query."""
        model, rows = meanings.embedded[0].model, meanings.embedded[0].rows
        best: list[int] = (-(rows @ model.vector(query))).argsort(kind="stable")[:limit].tolist()
        return [catalog.entries[position].id for position in best]

    def rrf(query: str, limit: int) -> list[str]:
        scores: dict[str, float] = {}
        for ranked in (reference(query, _FUSED), dense(query, _FUSED)):
            for place, tool_id in enumerate(ranked, start=1):
                scores[tool_id] = scores.get(tool_id, 0.0) + 1 / (_RRF + place)
        return sorted(scores, key=lambda tool_id: -scores[tool_id])[:limit]

    def semantic(query: str, limit: int) -> list[str]:
        return [entry.id for entry in index.search(query, limit)]

    def words(query: str, limit: int) -> list[str]:
        return [entry.id for entry in index.search_words(query, limit)]

    return {"semantic": semantic, "words": words, "dense": dense, "rrf": rrf}


def _ready(index: CatalogIndex) -> CatalogIndex:
    if not index.wait_for_meanings(_MOST_SECONDS):
        raise RuntimeError(f"the vectors were not made within {_MOST_SECONDS:.0f} s")
    return index


def _quality(search: Search, queries: Sequence[LabelledQuery]) -> Quality:
    return Quality.mean([Quality.of(search(it.text, _RANKED), it.relevant) for it in queries])


def _query_ms(search: Search, queries: Sequence[LabelledQuery]) -> list[float]:
    samples: list[float] = []
    for query in queries:
        started = time.perf_counter()
        search(query.text, _SHOWN)
        samples.append(elapsed_ms(started))
    return samples


def _figures(set_name: str, found: dict[str, Quality]) -> list[Figure]:
    ours = found["semantic"]
    others = {name: quality for name, quality in found.items() if name != "semantic"}
    of_recall = {"recallAt1": ours.recall_1, "recallAt5": ours.recall_5}
    of_recall |= {name: quality.recall_8 for name, quality in others.items()}
    of_rank = {"ndcgAt8": ours.ndcg_8} | {name: quality.mrr for name, quality in others.items()}
    return [
        Figure(name=f"{_PREFIX}recall_{set_name}", value=ours.recall_8, details=of_recall),
        Figure(name=f"{_PREFIX}mrr_{set_name}", value=ours.mrr, details=of_rank),
    ]


def _say(effort: Effort, of: QuerySet, found: dict[str, Quality]) -> None:
    effort.say(f"  {of.name}: recall at 1, 5, 8; MRR; nDCG at 8")
    for name, it in found.items():
        figures = (it.recall_1, it.recall_5, it.recall_8, it.mrr, it.ndcg_8)
        effort.say(f"    {name:10}  " + "  ".join(f"{figure:.3f}" for figure in figures))
