"""What a replay did, step by step, with the differences from its record."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Final, Literal

from nacre.sandbox.results import JsonOutput, TextOutput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nacre.cell_replay.record import RecordedBurst
    from nacre.json_types import JsonObject, JsonValue
    from nacre.sandbox import Output
    from nacre.sandbox.recording import BurstCommand, BurstRecord
    from nacre.telemetry import Redaction

StepCause = Literal["start", "answers", "timers"]
"""Why a program runs: it starts, it gets answers, or its timers are due."""
CAUSES: Final[dict[BurstCommand, StepCause]] = {
    "start": "start",
    "deliver": "answers",
    "timers": "timers",
}

_MAX_SHOWN_NAME: Final = 120


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplayCall:
    """A request of the program to the host, such as a call of a tool."""

    id: int
    name: str
    """The tool, such as `openclaw:core:read`, or the function, such as `tools.search`."""
    input: JsonValue
    is_recorded: bool = True
    """False if the record has no such call: it would really be made."""

    def to_json(self) -> JsonObject:
        return {
            "id": self.id,
            "name": self.name,
            "input": self.input,
            "isRecorded": self.is_recorded,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplayAnswer:
    """A recorded answer that the program got."""

    id: int
    name: str
    is_success: bool
    value: JsonValue
    is_exact: bool
    """False if the record has only a part of it, because it was redacted or too long."""

    def to_json(self) -> JsonObject:
        return {
            "id": self.id,
            "name": self.name,
            "isSuccess": self.is_success,
            "value": self.value,
            "isExact": self.is_exact,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplayStep:
    """One step: the program runs until it can only wait."""

    number: int
    cause: StepCause
    is_restored: bool = False
    """Whether the program was suspended before this step."""
    answers: tuple[ReplayAnswer, ...] = ()
    output: tuple[JsonObject, ...] = ()
    """The items as in `cell.output` events."""
    calls: tuple[ReplayCall, ...] = ()
    yields: tuple[str, ...] = ()
    """The reasons of `yield_control`."""

    def to_json(self) -> JsonObject:
        return {
            "number": self.number,
            "cause": self.cause,
            "isRestored": self.is_restored,
            "answers": [answer.to_json() for answer in self.answers],
            "output": [*self.output],
            "calls": [call.to_json() for call in self.calls],
            "yields": [*self.yields],
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class CellReplay:
    """The replay of one cell."""

    cell_id: str
    call_id: str
    """The call that started the cell."""
    steps: tuple[ReplayStep, ...]
    recorded_steps: int
    end: JsonObject | None
    """How the program ended in the replay; None if it still waits."""
    recorded_end: JsonObject | None
    difference: str = ""
    """The first difference from the record; empty if there is none."""
    notes: tuple[str, ...] = ()
    """What could not be compared, and why."""
    is_code_changed: bool = False

    @property
    def calls(self) -> tuple[ReplayCall, ...]:
        """All calls of the program in their order."""
        return tuple(call for step in self.steps for call in step.calls)

    def to_json(self) -> JsonObject:
        return {
            "cellId": self.cell_id,
            "toolCallId": self.call_id,
            "isCodeChanged": self.is_code_changed,
            "steps": [step.to_json() for step in self.steps],
            "recordedSteps": self.recorded_steps,
            "end": self.end,
            "recordedEnd": self.recorded_end,
            "difference": self.difference or None,
            "notes": [*self.notes],
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Replay:
    """The replay of a run, or of one of its cells."""

    cells: tuple[CellReplay, ...]

    @property
    def difference(self) -> str:
        """The first difference, with the id of its cell; empty if there is none."""
        found = (f"{cell.cell_id}: {cell.difference}" for cell in self.cells if cell.difference)
        return next(found, "")

    def to_json(self) -> JsonObject:
        return {
            "difference": self.difference or None,
            "cells": [cell.to_json() for cell in self.cells],
        }


def name_request(method: str, payload: JsonValue) -> str:
    """The tool that a request calls, or the function of the program."""
    fields = payload if isinstance(payload, dict) else {}
    path = fields.get("path")
    segments = [str(segment) for segment in path] if isinstance(path, list) else []
    match method:
        case "tools.call":
            name = str(fields.get("id", method))
        case "namespace":
            name = ".".join([str(fields.get("namespace")), *segments])
        case "mcp.call":
            name = ".".join(["MCP", str(fields.get("server")), *segments])
        case _:
            name = method
    return name[:_MAX_SHOWN_NAME]


def request_input(method: str, payload: JsonValue) -> JsonValue:
    """The part of a request that is the input of its tool or function."""
    fields = payload if isinstance(payload, dict) else {}
    match method:
        case "tools.call" if "input" in fields:
            return fields["input"]
        case "namespace" | "mcp.call" if "args" in fields:
            return fields["args"]
        case _:
            return payload


_MAX_SHOWN: Final = 300


def encode_output(items: Sequence[Output], redaction: Redaction) -> tuple[JsonObject, ...]:
    """Output as in `cell.output` events."""
    return tuple(_encode_item(item, redaction) for item in items)


def _encode_item(item: Output, redaction: Redaction) -> JsonObject:
    if isinstance(item, TextOutput):
        return {"text": redaction.text(item.text)}
    value = item.value if isinstance(item, JsonOutput) else item.to_json()
    return {"result": redaction.text(value) if isinstance(value, str) else redaction.value(value)}


def recorded_calls(burst: RecordedBurst) -> tuple[ReplayCall, ...]:
    """The calls of a recorded burst."""
    return tuple(_build_call(each.id, each.method, each.payload) for each in burst.requests)


def replayed_calls(record: BurstRecord | None, redaction: Redaction) -> tuple[ReplayCall, ...]:
    """The calls of a burst that was just run."""
    if record is None:
        return ()
    return tuple(
        _build_call(each.id, each.method, redaction.input(each.payload)) for each in record.requests
    )


def _build_call(number: int, method: str, payload: JsonValue) -> ReplayCall:
    name = name_request(method, payload)
    return ReplayCall(id=number, name=name, input=request_input(method, payload))


def call_text(call: ReplayCall) -> str:
    """A call as text. Calls with the same text are the same call."""
    return f"{call.name} {canonical_text(call.input)}"


def canonical_text(value: JsonValue) -> str:
    """A value as JSON. To Python, 1 and true are equal; their texts are not."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


def find_difference(
    what: str, recorded: Sequence[str], replayed: Sequence[str], *, first: int = 1
) -> str:
    """The first difference of two lists of texts; empty if they are the same. `first` is the number
    of their first item."""
    for number, (was, now) in enumerate(zip_longest(recorded, replayed), start=first):
        if was == now:
            continue
        if now is None:
            return f"{what} {number} is missing; the record has {_shorten(was)}"
        if was is None:
            return f"{what} {number} is {_shorten(now)}; the record has no such {what}"
        was, now = _show_change(was, now)
        return f"{what} {number} is {now}; the record has {was}"
    return ""


def end_text(end: JsonObject) -> str:
    """How a program ended, as text."""
    if end.get("status") == "completed":
        return f"completed with the value {_shorten(canonical_text(end.get('value')))}"
    return f"failed ({end.get('reason')}): {_shorten(str(end.get('error')))}"


def is_same_end(recorded: JsonObject, replayed: JsonObject) -> bool:
    return canonical_text(recorded) == canonical_text(replayed)


def _show_change(was: str, now: str) -> tuple[str, str]:
    """The parts of two texts around their first difference."""
    at = next(i for i, (one, two) in enumerate(zip_longest(was, now)) if one != two)
    start = 0 if at < _MAX_SHOWN - 50 else at - 50
    begin = "…" if start else ""
    return f"{begin}{_shorten(was[start:])}", f"{begin}{_shorten(now[start:])}"


def _shorten(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}…"
