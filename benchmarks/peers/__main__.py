"""`python -m benchmarks.peers`: installs the peers, runs the same works in turns, prints a table.

A ratio is the time of the peer divided by that of Nacre in the same round; above 1, Nacre is
faster. Works are interleaved, so that all peers meet the same load of the machine.
"""

import argparse
import os
import platform
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import anyio

from benchmarks.measurement import load_average
from benchmarks.peers import gateways
from benchmarks.peers.comparison import Result, Results, dump, table, to_json
from benchmarks.peers.driver_process import DriverProcess, WorkSkippedError
from benchmarks.peers.registry import NACRE, PEERS, PeerUnavailableError

_MANY_TOOLS: Final = 10_000
# The title, and how often a round repeats it.
_WORKS: Final = {
    "trivial": ("a fresh trivial program, ms", 5),
    "one_call": ("a program with one tool call, ms", 5),
    "sequence": ("100 tool calls in sequence, ms", 2),
    "parallel": ("16 parallel calls of a 10 ms tool, ms", 3),
    "suspend": ("suspend and resume, ms", 3),
    "loop": ("5,000,000 additions, ms", 1),
    "many": ("32 programs at once, ms for all", 1),
}
_CATALOG_WORKS: Final = {
    "open": "10,000 tools: process to ready, ms",
    "first_search": "10,000 tools: the first search, ms",
    "trivial": "10,000 tools: a trivial program, ms",
    "search": "10,000 tools: one search, ms",
    "memory": "10,000 tools: memory of all processes, MB",
}
_NO_CATALOG: Final = ("sandbox", "quickjs_rs", "langchain")


def main() -> int:
    options = _options()
    peers = _install([name for name in PEERS if name in options.only])
    labels = {name: peer.label for name, peer in PEERS.items()}
    failures: dict[str, str] = {name: each for name, each in peers.items() if each}
    names = [name for name, problem in peers.items() if not problem]
    document: dict[str, Any] = {"machine": _machine(), "peers": _describe(), "works": {}}
    parts = (
        ("programs", lambda: _measure_programs(names, failures, options.rounds)),
        ("cold", lambda: _measure_cold(names, failures, options.rounds)),
        ("catalog", lambda: _measure_catalog(names, failures, options.rounds)),
    )
    for part, measure in parts:
        if part not in options.parts:
            continue
        results, titles = measure()
        print(table(results, base=NACRE, titles=titles, labels=labels), end="\n\n")
        document["works"][part] = to_json(results, base=NACRE)
    if "gateways" in options.parts:
        results = anyio.run(gateways.measure, options.rounds, _say)
        titles, found = gateways.TITLES, gateways.LABELS
        print(table(results, base=gateways.BASE, titles=titles, labels=found))
        document["works"]["gateways"] = to_json(results, base=gateways.BASE)
    for name, problem in failures.items():
        print(f"{PEERS[name].label} ({PEERS[name].version}): {problem}")
    Path(options.json).write_text(dump(document), encoding="utf-8")
    _say(f"wrote {options.json}; load average {load_average():.1f}")
    return 1 if NACRE in failures else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("--json", metavar="FILE", default="build/peers.json")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--only", type=_names, default=list(PEERS), help=", ".join(PEERS))
    kinds = ["programs", "cold", "catalog", "gateways"]
    parser.add_argument("--parts", type=lambda text: text.split(","), default=kinds)
    options = parser.parse_args()
    Path(options.json).parent.mkdir(exist_ok=True)
    return options


def _names(text: str) -> list[str]:
    names = text.split(",")
    unknown = [name for name in names if name not in PEERS]
    if unknown:
        raise argparse.ArgumentTypeError(
            f"no peer is called {unknown[0]!r}; there are: {', '.join(PEERS)}"
        )
    # All ratios are to Nacre.
    return [NACRE, *(name for name in names if name != NACRE)]


def _install(names: list[str]) -> dict[str, str]:
    """Why each peer cannot be used; empty if it can."""
    problems: dict[str, str] = {}
    for name in names:
        problems[name] = ""
        try:
            PEERS[name].install(_say)
        except PeerUnavailableError as error:
            problems[name] = str(error)
    return problems


def _measure_programs(
    names: list[str], failures: dict[str, str], rounds: int
) -> tuple[Results, dict[str, str]]:
    drivers: dict[str, DriverProcess] = {}
    results: Results = {work: {name: Result() for name in names} for work in _WORKS}
    try:
        for name in names:
            try:
                drivers[name] = DriverProcess(PEERS[name])
                # Compiles and fills caches.
                drivers[name].run("trivial", 10)
            except PeerUnavailableError as error:
                failures[name] = str(error)
        for work, (title, times) in _WORKS.items():
            _say(title)
            for number in range(rounds):
                # Another peer is the first in each round.
                order = [*names[number % len(names) :], *names[: number % len(names)]]
                for name in order:
                    if name in drivers:
                        _run(drivers[name], work, times, results[work][name])
                    else:
                        results[work][name].note = failures[name]
    finally:
        for driver in drivers.values():
            driver.close()
    return results, {work: title for work, (title, _) in _WORKS.items()}


def _run(driver: DriverProcess, work: str, times: int, result: Result) -> None:
    if result.note:
        return
    try:
        sample = driver.run(work, times)
        result.add(sample.walls, sample.cpu_ms)
    except (WorkSkippedError, PeerUnavailableError, BrokenPipeError) as error:
        result.note = str(error).partition("\n")[0]


def _measure_cold(
    names: list[str], failures: dict[str, str], rounds: int
) -> tuple[Results, dict[str, str]]:
    title = "a cold process to its first result, ms"
    _say(title)
    results = {name: Result() for name in names}
    for _ in range(rounds):
        for name in names:
            try:
                driver = DriverProcess(PEERS[name], is_cold=True)
            except PeerUnavailableError as error:
                failures[name] = results[name].note = str(error)
                continue
            results[name].add([driver.start_ms])
            driver.close()
    return {"cold": results}, {"cold": title}


def _measure_catalog(
    names: list[str], failures: dict[str, str], rounds: int
) -> tuple[Results, dict[str, str]]:
    names = [name for name in names if name not in _NO_CATALOG]
    results: Results = {work: {name: Result() for name in names} for work in _CATALOG_WORKS}
    for name in names:
        _say(f"10,000 tools: {PEERS[name].label}")
        try:
            driver = DriverProcess(PEERS[name], tools=_MANY_TOOLS)
        except PeerUnavailableError as error:
            failures[name] = str(error)
            for by_peer in results.values():
                by_peer[name].note = str(error)
            continue
        results["open"][name].add([driver.start_ms])
        _run(driver, "search", 1, results["first_search"][name])
        for _ in range(rounds):
            for work in ("trivial", "search"):
                _run(driver, work, 1, results[work][name])
        with suppress(OSError):
            results["memory"][name].add([driver.memory_mb()])
        driver.close()
    return results, dict(_CATALOG_WORKS)


def _describe() -> dict[str, Any]:
    return {
        name: {
            "label": peer.label,
            "version": peer.version,
            "isolation": peer.isolation,
            "engine": peer.engine,
            "suspends": peer.suspends,
        }
        for name, peer in PEERS.items()
    }


def _machine() -> dict[str, Any]:
    return {
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "python": sys.version.split()[0],
        "loadAverage": load_average(),
    }


def _say(line: str) -> None:
    print(line, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
