"""The events of one run as a tree, and as JSON."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from nacre.cli.call_view import call_branch
from nacre.cli.output import (
    Branch,
    cell_text,
    count_text,
    duration_text,
    size_text,
    time_text,
    tree_lines,
)
from nacre.trajectory import project

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from nacre.json_types import JsonObject
    from nacre.storage import TurnRecord
    from nacre.trajectory import TrajectoryEvent


def run_lines(
    run_id: str, events: Sequence[TrajectoryEvent], turn: TurnRecord | None = None
) -> Iterator[str]:
    """Lines without their ends, the first about the run itself. `turn` is what is stored of it: of
    a run whose process was killed, the events alone do not tell that."""
    yield _heading(run_id, events)
    if turn is None or turn.status != "interrupted":
        yield from tree_lines(_branches(events))
        return
    told = Branch(text=f"interrupted  {cell_text(turn.error)}")
    yield from tree_lines([*_branches(events, unended="interrupted"), told])


def run_to_json(
    run_id: str, events: Sequence[TrajectoryEvent], turn: TurnRecord | None = None
) -> JsonObject:
    """The same for programs: the events as they were recorded, and the calls in each other."""
    return {
        "runId": run_id,
        **({"status": turn.status} if turn is not None else {}),
        "events": [event.to_json() for event in events],
        "calls": [call.to_json() for call in project(events)],
    }


def _heading(run_id: str, events: Sequence[TrajectoryEvent]) -> str:
    if not events:
        return f"{run_id}: nothing is recorded"
    began = events[0].data if events[0].kind == "run.started" else {}
    took = duration_text((events[-1].time - events[0].time) * 1000)
    facts = [
        time_text(events[0].time),
        took,
        count_text(len(events), "event"),
        f"agent {cell_text(str(began['agentId']))}" if "agentId" in began else "",
        f"session {cell_text(str(began['sessionId']))}" if "sessionId" in began else "",
    ]
    gone = f" ({events[0].sequence} earlier events are gone)" if events[0].sequence else ""
    return f"{run_id}: {', '.join(filter(None, facts))}{gone}"


def _branches(events: Sequence[TrajectoryEvent], *, unended: str = "has not ended") -> list[Branch]:
    cells: defaultdict[str, list[TrajectoryEvent]] = defaultdict(list)
    timed: list[tuple[float, Branch]] = []
    asked_at = 0.0
    for event in events:
        if event.kind.startswith("cell."):
            cells[event.call_id].append(event)
        elif event.kind == "model.requested":
            asked_at = event.time
            timed.append((event.time, Branch(text=_request_text(event.data))))
        elif event.kind == "model.answered":
            took = duration_text((event.time - asked_at) * 1000) if asked_at else ""
            timed.append((event.time, Branch(text=_answer_text(event.data, took))))
        elif event.kind == "turn.ended":
            timed.append((event.time, Branch(text=_end_text(event.data))))
    # A call stands where it started; one whose start is not recorded stands first.
    timed += [
        (call.started or 0.0, call_branch(call, cells, unended=unended)) for call in project(events)
    ]
    timed.sort(key=lambda it: it[0])
    return [branch for _, branch in timed]


def _request_text(data: JsonObject) -> str:
    names = data.get("toolNames")
    tools = count_text(len(names) if isinstance(names, list) else 0, "tool")
    sizes = f"{tools} in {_size(data, 'toolBytes')}, {_size(data, 'payloadBytes')} in all"
    return f"asked {cell_text(str(data.get('model', '')))}  {sizes}"


def _answer_text(data: JsonObject, took: str) -> str:
    names = data.get("calledNames")
    called = ", ".join(map(str, names)) if isinstance(names, list) else ""
    said = cell_text(str(data.get("text", "")), most_characters=100)
    parts = [
        f"answered: {cell_text(str(data.get('finishReason', '')))}",
        f"calls {cell_text(called)}" if called else "",
        took,
        _tokens(data),
        said,
    ]
    return "  ".join(filter(None, parts))


def _end_text(data: JsonObject) -> str:
    error = cell_text(str(data.get("error") or ""))
    parts = [str(data.get("status", "ended")), _tokens(data), error]
    return "  ".join(filter(None, parts))


def _tokens(data: JsonObject) -> str:
    match data.get("usage"):
        case {"inputTokens": int(taken), "outputTokens": int(given)}:
            return f"{taken:,} + {given:,} tokens"
        case _:
            return ""


def _size(data: JsonObject, key: str) -> str:
    size = data.get(key)
    return size_text(size) if isinstance(size, int | float) else "?"
