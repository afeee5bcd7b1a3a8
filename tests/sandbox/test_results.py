"""Results: every reason has a code, and the wire shape is the contract's."""

from typing import get_args

import pytest

from nacre.ids import CellId
from nacre.json_types import JsonValue, decode_json, encode_json
from nacre.sandbox.results import (
    CODE_OF_REASON,
    CellResult,
    Completed,
    ErrorCode,
    Failed,
    JsonOutput,
    PendingRequest,
    Position,
    Reason,
    TextOutput,
    Usage,
    Waiting,
    to_wire,
)

NO_USAGE: JsonValue = {
    "guestBursts": 0,
    "requests": 0,
    "unfinishedRequests": 0,
    "outputBytes": 0,
    "snapshotBytes": 0,
    "wallMs": 0.0,
    "workerMs": 0.0,
}


def test_every_reason_has_a_code_and_every_code_has_a_reason_of_its_name() -> None:
    assert set(CODE_OF_REASON) == set(get_args(Reason))
    assert {code: CODE_OF_REASON[code] for code in get_args(ErrorCode)} == {
        code: code for code in get_args(ErrorCode)
    }


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        # What the contract says in words about its codes.
        ("unsupported_language", "invalid_input"),
        ("module_access_denied", "invalid_input"),
        ("typescript_transform_failed", "invalid_input"),
        ("run_unavailable", "invalid_input"),
        ("run_scope_mismatch", "invalid_input"),
        ("run_already_resuming", "invalid_input"),
        ("snapshot_expired", "invalid_input"),
        ("too_many_suspended_runs", "invalid_input"),
        ("worker_lost", "runtime_unavailable"),
        ("memory_limit_exceeded", "internal_error"),
        ("guest_error", "internal_error"),
    ],
)
def test_a_failure_carries_the_code_that_the_contract_gives_its_reason(
    reason: Reason, code: ErrorCode
) -> None:
    assert Failed(error="no", reason=reason).code == code


@pytest.mark.parametrize(
    ("result", "wire"),
    [
        (
            Completed(value=None),
            {"status": "completed", "value": None, "telemetry": NO_USAGE},
        ),
        (
            Completed(
                value={"n": [1]},
                output=(TextOutput(text="hi"), JsonOutput(value=None), TextOutput(text="")),
                usage=Usage(
                    guest_bursts=1,
                    requests=2,
                    output_bytes=3,
                    snapshot_bytes=4,
                    wall_ms=5.00049,
                    worker_ms=6.25,
                ),
            ),
            {
                "status": "completed",
                "value": {"n": [1]},
                "output": [
                    {"type": "text", "text": "hi"},
                    {"type": "json", "value": None},
                    {"type": "text", "text": ""},
                ],
                "telemetry": {
                    "guestBursts": 1,
                    "requests": 2,
                    "unfinishedRequests": 0,
                    "outputBytes": 3,
                    "snapshotBytes": 4,
                    "wallMs": 5.0,
                    "workerMs": 6.25,
                },
            },
        ),
        (
            Waiting(run_id=CellId("run_1"), reason="yield"),
            {"status": "waiting", "runId": "run_1", "reason": "yield", "telemetry": NO_USAGE},
        ),
        (
            Waiting(
                run_id=CellId("run_2"),
                reason="pending_tools",
                pending=(
                    PendingRequest(id=7, method="call"),
                    PendingRequest(id=9, method="search"),
                ),
                output=(TextOutput(text="so far"),),
            ),
            {
                "status": "waiting",
                "runId": "run_2",
                "reason": "pending_tools",
                "pendingToolCalls": [
                    {"id": 7, "method": "call"},
                    {"id": 9, "method": "search"},
                ],
                "output": [{"type": "text", "text": "so far"}],
                "telemetry": NO_USAGE,
            },
        ),
        (
            Failed(error="too slow", reason="timeout"),
            {
                "status": "failed",
                "error": "too slow",
                "code": "timeout",
                "reason": "timeout",
                "telemetry": NO_USAGE,
            },
        ),
        (
            Failed(
                error="x is not defined",
                reason="guest_error",
                position=Position(line=3, column=14),
                output=(JsonOutput(value=[1]),),
            ),
            {
                "status": "failed",
                "error": "x is not defined",
                "code": "internal_error",
                "reason": "guest_error",
                "line": 3,
                "column": 14,
                "output": [{"type": "json", "value": [1]}],
                "telemetry": NO_USAGE,
            },
        ),
    ],
)
def test_a_result_on_the_wire_has_the_shape_of_the_contract(
    result: CellResult, wire: JsonValue
) -> None:
    assert to_wire(result) == wire
    assert decode_json(encode_json(to_wire(result))) == wire
