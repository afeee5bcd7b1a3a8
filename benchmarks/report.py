"""Reports: a table for people, and JSON for programs."""

import json
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from benchmarks.measurement import load_average
from benchmarks.targets import SOURCES, TARGETS

_HEADINGS = ("measure", "figure", "unit", "reach", "", "peers")


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    """One measured value; None if it could not be measured, with the reason in `note`."""

    name: str
    value: float | None
    note: str = ""
    details: dict[str, float] = field(default_factory=dict[str, float])

    @property
    def verdict(self) -> str:
        if self.value is None:
            return "unavailable"
        is_met = TARGETS[self.name].is_met_by(self.value)
        return "" if is_met is None else "met" if is_met else "MISSED"


def table(figures: Sequence[Figure]) -> str:
    """The table of figures with targets and peers, followed by notes and sources."""
    rows = [_HEADINGS, *(_row(figure) for figure in figures)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
    lines = [_line(row, widths) for row in rows]
    lines.insert(1, "  ".join("-" * width for width in widths))
    notes = {each.note: TARGETS[each.name].label for each in reversed(figures) if each.note}
    lines += [f"{label}: {note}" for note, label in notes.items()]
    lines += [f"{name}: {source}" for name, source in SOURCES.items()]
    return "\n".join(lines)


def _row(figure: Figure) -> tuple[str, ...]:
    target = TARGETS[figure.name]
    value = "-" if figure.value is None else _number(figure.value)
    return (target.label, value, target.unit, target.reach, figure.verdict, target.peer)


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    cells = [
        cell.rjust(width) if column == 1 else cell.ljust(width)
        for column, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]
    return "  ".join(cells).rstrip()


def _number(value: float) -> str:
    if value == int(value):
        return str(int(value))
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def to_json(figures: Sequence[Figure], *, is_quick: bool) -> str:
    """All figures and the machine as one JSON object, one figure per line."""
    head = json.dumps({"quick": is_quick, "machine": _machine(), "sources": SOURCES}, indent=2)
    lines = ",\n".join("    " + json.dumps(_to_dict(figure)) for figure in figures)
    return f'{head.removesuffix("}").rstrip()},\n  "figures": [\n{lines}\n  ]\n}}'


def _to_dict(figure: Figure) -> dict[str, Any]:
    target = TARGETS[figure.name]
    return {
        **asdict(figure),
        "unit": target.unit,
        "label": target.label,
        "atLeast": target.at_least,
        "atMost": target.at_most,
        "met": None if figure.value is None else target.is_met_by(figure.value),
        "peer": target.peer,
    }


def _machine() -> dict[str, Any]:
    return {
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "python": sys.version.split()[0],
        "node": _node_version(),
        "loadAverage": load_average(),
    }


def _node_version() -> str:
    try:
        done = subprocess.run(["node", "--version"], capture_output=True, text=True, check=False)
    except OSError:
        return "not installed"
    return done.stdout.strip()
