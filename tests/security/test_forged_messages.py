"""Forged ids and messages: no program settles requests, no worker fools the supervisor."""

import struct
from collections.abc import Sequence

import anyio
import pytest

from nacre.json_types import JsonValue
from nacre.sandbox import HostRequest, Limits, Sandbox, SandboxOptions
from nacre.sandbox.worker_protocol import HEADER_BYTES, Event, encode_frame
from tests.security.attacks import (
    AMPLE,
    BOUND_SECONDS,
    attack,
    completed,
    expect_neighbour_to_work,
    heartbeat,
    shown,
    verdict,
)
from tests.security.forged_worker import forge_first_worker

HASTY = Limits(timeout_ms=300)
PARKED: dict[str, object] = {"requests": [], "yields": [], "timerMs": None, "busyMs": 1}


async def test_no_global_settles_a_request(sandbox: Sandbox) -> None:
    """Whatever function a program can reach and whatever it passes, its request stays open."""
    code = """
        let settled = 'nothing';
        const asked = echo('real').then(value => { settled = value });
        const forged = ['[[1,true,"forged"]]', [[1, true, 'forged']], 1];
        const seen = new Set();
        const busy = /^(eval|Function|yield_control|setTimeout|setInterval|echo)$/;
        for (const name of Object.getOwnPropertyNames(globalThis)) {
            const found = globalThis[name];
            if (typeof found !== 'function' || seen.has(found) || busy.test(name)) continue;
            seen.add(found);
            for (const value of forged) try { found(value) } catch {}
        }
        await null; await null;
        const before = settled;
        await asked;
        return [before, settled]
    """
    result = await attack(sandbox, code, limits=Limits(timeout_ms=5000))
    assert result["value"] == ["nothing", "real"]


async def test_an_answer_settles_only_the_request_of_its_own_id(sandbox: Sandbox) -> None:
    release: dict[JsonValue, anyio.Event] = {name: anyio.Event() for name in "abc"}

    async def answer(request: HostRequest) -> JsonValue:
        await release[request.payload].wait()
        for later, event in release.items():
            if not event.is_set():
                release[later].set()
                break
        return [request.payload, request.id]

    release["c"].set()
    code = "return await Promise.all(['a', 'b', 'c'].map(echo))"
    assert await attack(sandbox, code, handler=answer, limits=Limits(timeout_ms=5000)) == completed(
        [["a", 1], ["b", 2], ["c", 3]]
    )


def ended(value: bytes) -> bytes:
    """The end of a program with this value."""
    return encode_frame(Event.COMPLETED, {"valueBytes": len(value)}, value)


def parked(fields: bytes) -> bytes:
    """What only a worker that writes its own JSON can say."""
    return struct.pack("<BII", Event.PARKED, len(fields), 0) + fields


UNSOUND = {
    "unknown_kind": encode_frame(200, {}),
    "kind_of_another_moment": encode_frame(Event.SUSPENDED, {"memoryBytes": 1, "rejections": []}),
    "ready_again": encode_frame(Event.READY, {}),
    "fields_that_are_not_json": parked(b"{"),
    "fields_that_are_no_object": parked(b"[]"),
    "fields_nested_too_deep": parked(b'{"a":' + b"[" * 50_000),
    "fields_with_an_endless_number": parked(b'{"busyMs":' + b"9" * 5000 + b"}"),
    "frame_of_gigabytes": b"\x43" + b"\xff" * (HEADER_BYTES - 1),
    "value_that_is_not_json": ended(b"forged"),
    "value_nested_too_deep": ended(b"[" * 9000 + b"]" * 9000),
    "value_that_is_not_text": ended(b"\xff\xfe"),
    "value_that_is_too_large": ended(b'"' + b"x" * 70_000 + b'"'),
    "output_that_is_too_large": encode_frame(Event.OUTPUT, {"kind": "text"}, b"x" * 70_000),
    "output_that_is_not_json": encode_frame(Event.OUTPUT, {"kind": "json"}, b"forged"),
    "requests_of_no_shape": encode_frame(Event.PARKED, {**PARKED, "requests": 5}),
    "request_of_no_shape": encode_frame(Event.PARKED, {**PARKED, "requests": [[1]]}),
    "request_id_that_is_no_number": parked(b'{"requests":[["x","echo",0]]}'),
    "request_id_without_end": parked(b'{"requests":[[1e999,"echo",0]]}'),
    "same_request_twice": encode_frame(
        Event.PARKED, {**PARKED, "requests": [[1, "echo", 1], [1, "echo", 1]]}, b"12"
    ),
    "method_that_was_not_given": encode_frame(
        Event.PARKED, {**PARKED, "requests": [[1, "secret", 1]]}, b"1"
    ),
    "payload_that_is_not_json": encode_frame(
        Event.PARKED, {**PARKED, "requests": [[1, "echo", 1]]}, b"]"
    ),
    "payload_longer_than_the_frame": encode_frame(
        Event.PARKED, {**PARKED, "requests": [[1, "echo", 9]]}, b"1"
    ),
    "more_than_was_announced": encode_frame(Event.PARKED, {**PARKED, "timerMs": 1}, b"1"),
    "too_many_requests": encode_frame(
        Event.PARKED, {**PARKED, "requests": [[i, "echo", 1] for i in range(1, 5001)]}, b"1" * 5000
    ),
    "yields_of_no_shape": encode_frame(Event.PARKED, {**PARKED, "yields": 7}),
    "yield_without_end": parked(b'{"requests":[],"yields":[[1e999,""]]}'),
    "timer_without_end": parked(b'{"requests":[],"timerMs":NaN}'),
    "timer_too_large": parked(b'{"timerMs":1' + b"0" * 4000 + b"}"),
    "timer_for_ever_due": encode_frame(Event.PARKED, {**PARKED, "timerMs": -1}),
    "costs_too_large": parked(b'{"busyMs":1' + b"0" * 4000 + b"}"),
    "yield_reason_of_no_shape": encode_frame(Event.PARKED, {**PARKED, "yields": [[1, 2]]}),
    "a_reason_that_no_worker_knows": encode_frame(
        Event.FAILED, {"reason": "run_scope_mismatch", "message": "x"}
    ),
    "talk_behind_the_end_of_a_burst": encode_frame(Event.PARKED, {**PARKED, "timerMs": 200})
    + encode_frame(Event.OUTPUT, {"kind": "text"}, b"more"),
    "flood_behind_the_end_of_a_burst": encode_frame(Event.PARKED, {**PARKED, "timerMs": 200})
    + encode_frame(Event.OUTPUT, {"kind": "text"}, b"x" * 10_000) * 1000,
    "fields_of_megabytes": encode_frame(Event.PARKED, {**PARKED, "more": "x" * (2 << 20)}),
    "unknown_reason": encode_frame(Event.FAILED, {"reason": "because", "message": "x"}),
    "reason_of_no_shape": encode_frame(Event.FAILED, {"reason": [], "message": "x"}),
    "half_a_frame_and_nothing_more": ended(b"1")[:-1],
    "waits_for_nothing": encode_frame(Event.PARKED, PARKED),
}  # fmt: skip


async def run_in_forged_worker(
    monkeypatch: pytest.MonkeyPatch,
    options: SandboxOptions,
    answers: Sequence[bytes],
    limits: Limits = HASTY,
) -> tuple[JsonValue, list[str]]:
    """What a cell comes to in a forged worker, and what its host was asked."""
    asked: list[str] = []

    async def answer(request: HostRequest) -> JsonValue:
        asked.append(request.method)
        return 1

    forge_first_worker(monkeypatch, answers)
    with anyio.fail_after(BOUND_SECONDS):
        async with Sandbox(options) as sandbox, heartbeat():
            cell = sandbox.cell(
                "return 1",
                limits=limits,
                functions=("echo",),
                handler=answer,
                owner="attacker",
            )
            result = await cell.run()
            await cell.abort()
            # The worker that lied gets nobody else's cell.
            await expect_neighbour_to_work(sandbox)
            await expect_neighbour_to_work(sandbox)
    return shown(result), asked


@pytest.mark.parametrize("answer", UNSOUND.values(), ids=UNSOUND.keys())
async def test_a_worker_that_talks_nonsense_costs_its_own_cell_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, one_worker: SandboxOptions, answer: bytes
) -> None:
    result, asked = await run_in_forged_worker(monkeypatch, one_worker, [answer])
    assert isinstance(result, dict)
    # Told apart or stopped at the budget: never a value, never an exception of ours.
    assert result["status"] == "failed"
    assert result["reason"] in ("worker_lost", "timeout")
    assert "secret" not in asked


async def test_a_value_that_was_not_asked_for_does_not_reach_the_next_cell(
    monkeypatch: pytest.MonkeyPatch, one_worker: SandboxOptions
) -> None:
    """A second COMPLETED behind the first must not answer somebody else's START."""
    twice = encode_frame(Event.COMPLETED, {}, b'"first"') + encode_frame(
        Event.COMPLETED, {}, b'"for the neighbour"'
    )
    result, _ = await run_in_forged_worker(monkeypatch, one_worker, [twice])
    assert isinstance(result, dict)
    assert result.get("value", "first") == "first"


async def test_images_cannot_fill_the_supervisors_memory(
    monkeypatch: pytest.MonkeyPatch, one_worker: SandboxOptions
) -> None:
    flood = encode_frame(Event.OUTPUT, {"kind": "image"}, bytes(1 << 20)) * 9
    result, _ = await run_in_forged_worker(monkeypatch, one_worker, [flood], AMPLE)
    assert isinstance(result, dict)
    assert verdict(result) == ("failed", "runtime_unavailable", "worker_lost")


async def test_output_that_says_nothing_cannot_fill_the_supervisors_memory(
    monkeypatch: pytest.MonkeyPatch, one_worker: SandboxOptions
) -> None:
    flood = encode_frame(Event.OUTPUT, {"kind": "text"}) * 100_000
    result, _ = await run_in_forged_worker(monkeypatch, one_worker, [flood], AMPLE)
    assert isinstance(result, dict)
    assert verdict(result) == ("failed", "runtime_unavailable", "worker_lost")
