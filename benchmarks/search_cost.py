"""The cost of search: building the index, a query, its memory, and a changed server."""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from benchmarks.generated_tools import MANY, generated_tools, task_queries
from benchmarks.measurement import CpuTimer, elapsed_ms, median, percentile, total_memory_bytes
from benchmarks.one import Effort
from benchmarks.report import Figure
from nacre import Tool
from nacre.tools import CatalogIndex, index_of
from nacre.tools.catalog import build_catalog

_SIZES: Final = {"10": 10, "1k": 1_000, "10k": MANY}
_LIMIT: Final = 8
_MEGABYTE: Final = 1_000_000


async def measure(effort: Effort) -> list[Figure]:
    tools = generated_tools(MANY)
    queries = task_queries(effort.times(400, quick=80))
    # Warm up data that is created once per process.
    index_of(build_catalog(tools[-1:])).search(queries[0], _LIMIT)
    figures: list[Figure] = []
    for name, size in _SIZES.items():
        effort.say(f"  {size} tools")
        figures += _of_size(name, tools[:size], queries)
    effort.say("  one server of them changes")
    return [*figures, _change(tools, effort.times(10, quick=3))]


def _of_size(name: str, tools: Sequence[Tool], queries: Sequence[str]) -> list[Figure]:
    catalog = build_catalog(tools)
    _ = catalog.search_digest
    before = total_memory_bytes()
    with CpuTimer() as build:
        index = index_of(catalog)
    after = total_memory_bytes()
    samples = [_query_ms(index, query) for query in queries]
    details = {"queries": float(len(queries)), "p95Ms": percentile(samples, 95)}
    return [
        Figure(name=f"search_build_{name}", value=build.ms),
        Figure(name=f"search_query_{name}", value=median(samples), details=details),
        Figure(name=f"search_memory_{name}", value=(after - before) / _MEGABYTE),
    ]


def _query_ms(index: CatalogIndex, query: str) -> float:
    started = time.perf_counter()
    found = index.search(query, _LIMIT)
    spent = elapsed_ms(started)
    if not found:
        raise RuntimeError(f"a search for what the tools are made of found nothing: {query}")
    return spent


def _change(tools: Sequence[Tool], count: int) -> Figure:
    """Change all tools of one owner, and build the catalog and its index again."""
    owner = tools[0].owner
    samples: list[float] = []
    for number in range(count):
        changed = [
            replace(tool, description=f"{tool.description} Revision {number}.")
            if tool.owner == owner
            else tool
            for tool in tools
        ]
        catalog = build_catalog(changed)
        # Includes the digest of the changed catalog.
        started = time.perf_counter()
        index_of(catalog)
        samples.append(elapsed_ms(started))
    tool_count = sum(tool.owner == owner for tool in tools)
    details = {"changes": float(count), "tools": float(tool_count)}
    return Figure(name="search_change_10k", value=median(samples), details=details)
