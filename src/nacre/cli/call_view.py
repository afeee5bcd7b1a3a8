"""Formats tool calls: on one line, and as a tree with their nested calls."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from nacre.cli.output import Branch, count_text, duration_text, shorten, size_text
from nacre.display import escape
from nacre.json_types import encode_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nacre.json_types import JsonObject, JsonValue
    from nacre.trajectory import CallNode, TrajectoryEvent


MARKS: Final = {"completed": "✓", "failed": "✗", "waiting": "…", "running": "…"}

_MAX_INPUT_CHARACTERS: Final = 120
_MAX_VALUE_CHARACTERS: Final = 160
_MAX_ERROR_CHARACTERS: Final = 300


def input_text(given: JsonValue) -> str:
    """The input as JSON on one line, shortened; empty for no input."""
    return "" if given in (None, {}) else value_text(given, max_characters=_MAX_INPUT_CHARACTERS)


def input_lines(given: JsonObject) -> list[str]:
    """The whole input: one or more lines per member, with invisible characters escaped. A text of
    several lines is indented behind a bar."""
    lines = [line for key, value in given.items() for line in _member_lines(key, value)]
    return lines or ["(no input)"]


def _member_lines(key: str, value: JsonValue) -> list[str]:
    name = escape(json.dumps(key, ensure_ascii=False))
    if isinstance(value, str) and "\n" in value:
        text = [f"  | {escape(line.expandtabs(4))}" for line in value.split("\n")]
        return [f"{name}:", *text]
    written = json.dumps(value, ensure_ascii=False, indent=2).split("\n")
    first, *rest = (escape(line) for line in written)
    return [f"{name}: {first}", *rest]


def value_text(value: JsonValue, *, max_characters: int = _MAX_VALUE_CHARACTERS) -> str:
    """Any value as JSON on one line, shortened."""
    text = encode_json(value).decode()
    # Escaped: characters that change the text direction would affect the rest of the line.
    shown = escape(text[:max_characters])
    return shown if len(text) <= max_characters else f"{shown}…"


def error_text(error: str, code: str = "") -> str:
    """The error on one line, its code first."""
    text = escape(shorten(error, max_characters=_MAX_ERROR_CHARACTERS))
    return f"{code}: {text}" if code and text else text or code


def program_of(given: JsonValue) -> str:
    """The program in the input of `exec` or `tool_search_code`; empty for other tools."""
    if not isinstance(given, dict):
        return ""
    code = given.get("code") or given.get("command")
    return code if isinstance(code, str) else ""


def program_status(result: JsonValue) -> str:
    """The status of a program in the result of `exec` or `wait`; empty for other results."""
    match result:
        case {"status": ("completed" | "waiting" | "failed") as status, "telemetry": _}:
            return status
        case _:
            return ""


def result_text(result: JsonValue) -> str:
    """The result of a call: for a program its value or status, else the value itself."""
    if not isinstance(result, dict) or not program_status(result):
        return "" if result is None else value_text(result)
    match program_status(result):
        case "completed":
            value = result.get("value")
            return "" if value is None else value_text(value)
        case "waiting":
            return f"waiting: {shorten(str(result.get('reason', '')))}"
        case _:
            return error_text(str(result.get("error", "")), str(result.get("code", "")))


_MAX_PROGRAM_CHARACTERS: Final = 120
_UNENDED: Final = "not ended"


def call_branch(
    node: CallNode,
    cells: Mapping[str, list[TrajectoryEvent]] | None = None,
    *,
    unended: str = _UNENDED,
) -> Branch:
    """A call as a tree. `cells` holds the events of cells by call id; `unended` describes a call
    without an end."""
    return Branch(
        text=_call_line(node, unended), branches=call_branches(node, cells, unended=unended)
    )


def _call_line(node: CallNode, unended: str) -> str:
    name = shorten((node.tool_id if node.parent_id else node.tool_name) or node.call_id)
    # If a program failed or waits, its `exec` call has still completed.
    status = program_status(node.result) or node.outcome
    program = shorten(program_of(node.input), max_characters=_MAX_PROGRAM_CHARACTERS)
    took = "" if node.duration_ms is None else duration_text(node.duration_ms)
    parts = [
        f"{MARKS[status]} {name} {program or input_text(node.input)}".rstrip(),
        took or unended,
        _sizes(node),
        error_text(node.error, node.error_code),
    ]
    return "  ".join(filter(None, parts))


def call_branches(
    node: CallNode,
    cells: Mapping[str, list[TrajectoryEvent]] | None = None,
    *,
    unended: str = _UNENDED,
) -> list[Branch]:
    """The nested calls, approvals and cell events of a call, in order."""
    timed: list[tuple[float, Branch]] = [
        (child.started or 0.0, call_branch(child, cells, unended=unended))
        for child in node.children
    ]
    timed += [(_time_of(asked), Branch(text=_approval_text(asked))) for asked in node.approvals]
    timed += [
        (event.time, Branch(text=_cell_text(event)))
        for event in (cells or {}).get(node.call_id, ())
        if event.kind != "cell.started"
    ]
    timed.sort(key=lambda it: it[0])
    branches = [branch for _, branch in timed]
    if node.updates:
        branches.append(Branch(text=count_text(node.updates, "progress report")))
    return branches


def _sizes(node: CallNode) -> str:
    """Sizes of the recorded input and result. Long texts are cut in a record."""
    taken = size_text(len(encode_json(node.input)))
    if node.outcome != "completed":
        return f"{taken} in"
    return f"{taken} in, {size_text(len(encode_json(node.result)))} out"


def _approval_text(asked: JsonObject) -> str:
    if asked.get("event") == "requested":
        return f"approval requested: {shorten(str(asked.get('reason', '')))}"
    # The error of the call says why it was denied.
    return f"allowed ({asked.get('how')})" if asked.get("answer") == "allow" else "denied"


def _time_of(asked: JsonObject) -> float:
    time = asked.get("time")
    return float(time) if isinstance(time, int | float) else 0.0


def _cell_text(event: TrajectoryEvent) -> str:
    data = event.data
    match event.kind:
        case "cell.output":
            return f"» {input_text(data.get('text', data.get('result')))}"
        case "cell.suspended":
            size = data.get("snapshotBytes")
            shown = size_text(size) if isinstance(size, int | float) else "?"
            return f"suspended: {shorten(str(data.get('reason', '')))}, snapshot of {shown}"
        case "cell.resumed":
            return "resumed by an answer" if data.get("cause") == "answer" else "resumed"
        case _:
            reason = shorten(str(data.get("reason", "")))
            parts = [f"program {data.get('status', 'ended')}", reason]
            if isinstance(aborted := data.get("abortedCalls"), list):
                parts.append(f"aborted: {shorten(', '.join(map(str, aborted)))}")
            return ", ".join(filter(None, parts))
