"""What a replay did, step by step, and where it differs from its record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from nacre.json_types import JsonObject, JsonValue
    from nacre.sandbox.recording import BurstCommand

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
