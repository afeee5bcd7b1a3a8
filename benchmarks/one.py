"""Runs one benchmark in this process; writes JSON, and progress to standard error."""

import argparse
import json
import os
import sys
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from importlib import import_module

import anyio

from benchmarks.report import Figure

_SEMANTIC = "search_semantic"
BENCHMARKS = (
    "cold_start",
    "cells",
    "requests",
    "suspension",
    "durable_suspend",
    "replay",
    "throughput",
    "engine",
    "typescript",
    "noisy_neighbour",
    "loop_stalls",
    "catalogs",
    "tool_calls",
    "definitions",
    "suspended_runs",
    "mcp_serving",
    "mcp_calls",
    "mcp_bytes",
    "mcp_declarations",
    "mcp_neighbours",
    "search_quality",
    "search_cost",
    "first_search",
    _SEMANTIC,
    "gateway_start",
    "gateway_turns",
    "gateway_bytes",
    "gateway_aborts",
    "gateway_kill",
    "gateway_load",
    "gateway_cluster",
    "gateway_scaling",
    "gateway_memory",
    "ray_cells",
    "codex_relay",
    "codex_tool_calls",
    "codex_turns",
    "web_first_view",
    "web_transcript",
    "web_live_run",
    "soak",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Effort:
    """The amount of work, and a function that reports progress."""

    is_quick: bool
    say: Callable[[str], None]

    def times(self, full: int, *, quick: int) -> int:
        return quick if self.is_quick else full


Measure = Callable[[Effort], Awaitable[list[Figure]]]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.one", description=__doc__)
    parser.add_argument("name", choices=BENCHMARKS)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    effort = Effort(is_quick=options.quick, say=lambda line: print(line, file=sys.stderr))
    # Background embedding runs only in the benchmark that measures it.
    os.environ["NACRE_SEMANTIC_SEARCH"] = "on" if options.name == _SEMANTIC else "off"
    measure: Measure = import_module(f"benchmarks.{options.name}").measure
    json.dump([asdict(figure) for figure in anyio.run(measure, effort)], sys.stdout)


if __name__ == "__main__":
    main()
