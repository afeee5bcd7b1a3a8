"""The results of a run: medians, spread, and ratios to Nacre by round."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from benchmarks.measurement import median, percentile

_HEADING: Final = (
    f"  {'':28}{'p50':>10}{'p25 to p75':>20}{'CPU':>10}{'CPU ratio':>11}{'ratio':>8}  spread"
)


@dataclass(kw_only=True, slots=True)
class Result:
    """One work of one peer, over all rounds; `note` says why there is none."""

    walls: list[float] = field(default_factory=list[float])
    by_round: list[float] = field(default_factory=list[float])
    """The median of each round."""
    cpus: list[float] = field(default_factory=list[float])
    note: str = ""

    def add(self, walls: Sequence[float], cpu_ms: float | None = None) -> None:
        self.walls.extend(walls)
        self.by_round.append(median(walls))
        if cpu_ms is not None:
            self.cpus.append(cpu_ms)


Results = dict[str, dict[str, Result]]
"""By work, then by peer."""


def ratios(theirs: Sequence[float], ours: Sequence[float]) -> list[float]:
    """Their value in each round, divided by ours in the same round."""
    return [their / our for their, our in zip(theirs, ours, strict=False) if our > 0 and their > 0]


def table(results: Results, *, base: str, titles: dict[str, str], labels: dict[str, str]) -> str:
    """A block per work: median, quartiles and CPU time, and the ratios to the base."""
    lines: list[str] = []
    for work, by_peer in results.items():
        lines += ["", titles[work]]
        lines.append(_HEADING)
        ours = by_peer[base]
        for peer, result in by_peer.items():
            label = f"  {labels[peer]:28}"
            if not result.walls:
                lines.append(f"{label}{'-':>10}  {result.note}")
                continue
            low, high = (_number(percentile(result.walls, each)) for each in (25, 75))
            cpu = _number(median(result.cpus)) if result.cpus else "-"
            row = f"{label}{_number(median(result.walls)):>10}{f'{low} to {high}':>20}{cpu:>10}"
            found = ratios(result.by_round, ours.by_round)
            if found and peer != base:
                of_cpu = ratios(result.cpus, ours.cpus)
                row += f"{f'{median(of_cpu):.2f}' if of_cpu else '':>11}{median(found):>8.2f}"
                row += f"  {min(found):.2f} to {max(found):.2f}"
            lines.append(row.rstrip())
    return "\n".join(lines).lstrip("\n")


def to_json(results: Results, *, base: str) -> dict[str, Any]:
    return {
        work: {
            peer: {
                "p50": median(result.walls) if result.walls else None,
                "p25": percentile(result.walls, 25) if result.walls else None,
                "p75": percentile(result.walls, 75) if result.walls else None,
                "cpuMs": median(result.cpus) if result.cpus else None,
                "ratios": ratios(result.by_round, by_peer[base].by_round),
                "cpuRatios": ratios(result.cpus, by_peer[base].cpus),
                "note": result.note,
            }
            for peer, result in by_peer.items()
        }
        for work, by_peer in results.items()
    }


def dump(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=1) + "\n"


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"
