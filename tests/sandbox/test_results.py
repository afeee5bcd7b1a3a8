"""Results on the wire, and limits of cells."""

from typing import get_args

import pytest

from nacre.config.code_mode import LIMITS, CodeModeConfig
from nacre.errors import ConfigError
from nacre.json_types import JsonValue, decode_json, encode_json
from nacre.sandbox import CellId
from nacre.sandbox.results import (
    CODE_OF_REASON,
    CellResult,
    Completed,
    ErrorCode,
    Failed,
    JsonOutput,
    Limits,
    PendingRequest,
    Position,
    Reason,
    TextOutput,
    Usage,
    Waiting,
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
            Waiting(cell_id=CellId("run_1"), reason="yield"),
            {"status": "waiting", "runId": "run_1", "reason": "yield", "telemetry": NO_USAGE},
        ),
        (
            Waiting(
                cell_id=CellId("run_2"),
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
    assert result.to_json() == wire
    assert decode_json(encode_json(result.to_json())) == wire


def test_limits_without_a_config_are_those_of_the_default_config() -> None:
    assert Limits() == Limits.from_config(CodeModeConfig())


def test_limits_take_each_number_from_its_own_field_of_the_config() -> None:
    config = CodeModeConfig(
        timeout_ms=101,
        memory_limit_bytes=1048577,
        max_output_bytes=1025,
        max_snapshot_bytes=1026,
        max_pending_tool_calls=105,
    )
    assert Limits.from_config(config) == Limits(
        timeout_ms=101,
        memory_limit_bytes=1048577,
        max_output_bytes=1025,
        max_snapshot_bytes=1026,
        max_pending_tool_calls=105,
    )


@pytest.mark.parametrize("name", Limits.__dataclass_fields__)
def test_numbers_out_of_range_are_clamped_in_python_as_in_the_config(name: str) -> None:
    limit = LIMITS[name]
    assert getattr(Limits(**{name: limit.least - 1}), name) == limit.least
    assert getattr(Limits(**{name: limit.most + 1}), name) == limit.most


@pytest.mark.parametrize("value", ["soon", 1.5, None, True, float("nan")])
def test_a_limit_of_the_wrong_type_is_refused_by_name(value: object) -> None:
    with pytest.raises(ConfigError, match=r"`timeout_ms` is .*from 100 to 60000"):
        Limits(timeout_ms=value)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(("count", "method", "listed"), [(33, "call", 32), (10, "m" * 3000, 2)])
def test_a_result_lists_some_calls_and_gives_the_total(
    count: int, method: str, listed: int
) -> None:
    calls = tuple(PendingRequest(id=number, method=method) for number in range(count))
    waiting = Waiting(cell_id=CellId("run_1"), reason="pending_tools", pending=calls).to_json()
    failed = Failed(error="no", reason="guest_error", cancelled=calls).to_json()
    for wire, key in ((waiting, "pendingToolCalls"), (failed, "abortedToolCalls")):
        assert wire[key] == [call.to_json() for call in calls[:listed]]
        assert wire[f"{key}Total"] == count


def test_a_result_that_lists_all_calls_has_no_total() -> None:
    calls = (PendingRequest(id=1, method="call"),)
    wire = Waiting(cell_id=CellId("run_1"), reason="pending_tools", pending=calls).to_json()
    assert "pendingToolCallsTotal" not in wire
