"""Compares what a program did with its record. Both are redacted with the rules of the record."""

from __future__ import annotations

import json
from itertools import zip_longest
from typing import TYPE_CHECKING, Final

from nacre.cell_replay.report import ReplayCall, name_request, request_input
from nacre.sandbox.results import JsonOutput, TextOutput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nacre.cell_replay.record import RecordedBurst
    from nacre.json_types import JsonObject, JsonValue
    from nacre.sandbox import Output
    from nacre.sandbox.recording import BurstRecord
    from nacre.telemetry import Redaction

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
