"""Hostile and honest cells side by side: nobody pays for somebody else."""

import anyio
import pytest

from nacre.json_types import JsonValue
from nacre.sandbox import HostRequest, Limits, Sandbox
from tests.security.attacks import BOUND_SECONDS, completed, echo, heartbeat, shown, verdict

HOSTILE = {
    "timeout": "for (;;);",
    "memory_limit_exceeded": "const all = []; for (;;) all.push(new Uint8Array(1 << 16))",
    "output_limit_exceeded": "for (;;) text('x'.repeat(1000))",
    "too_many_pending_tool_calls": "for (;;) echo(1)",
    "guest_error": "Object.prototype.marker = 1; (function f() { return f() + 1 })()",
    "module_access_denied": "await import('fs')",
    "syntax_error": "return (",
    "never_settles": "await new Promise(() => {})",
    "unhandled_rejection": "Promise.reject(new Error('x')); return 1",
}


def limits_for(reason: str) -> Limits:
    # Only the loop is to meet its time limit, however busy the machine is.
    return Limits(timeout_ms=100 if reason == "timeout" else 20_000, memory_limit_bytes=4 << 20)


@pytest.mark.parametrize(("reason", "code"), HOSTILE.items(), ids=HOSTILE.keys())
async def test_an_honest_cell_in_flight_is_not_harmed(
    sandbox: Sandbox, reason: str, code: str
) -> None:
    """The honest cell is in the middle of a request while the hostile one runs and fails."""
    asked, hostile_is_over = anyio.Event(), anyio.Event()

    async def hold(request: HostRequest) -> JsonValue:
        asked.set()
        await hostile_is_over.wait()
        return request.payload

    results: list[JsonValue] = []

    async def run_honest() -> None:
        cell = sandbox.cell(
            "const kept = [1, 2]; text('a'); kept.push(await ask(3)); text('b'); return kept",
            functions=("ask",),
            handler=hold,
            owner="honest",
        )
        results.append(shown(await cell.run()))

    with anyio.fail_after(BOUND_SECONDS):
        async with heartbeat(), anyio.create_task_group() as tasks:
            tasks.start_soon(run_honest)
            await asked.wait()
            hostile = sandbox.cell(
                code, limits=limits_for(reason), functions=("echo",), handler=echo, owner="hostile"
            )
            assert verdict(shown(await hostile.run()))[2] == reason
            hostile_is_over.set()
    assert results == [
        {
            **completed([1, 2, 3]),
            "output": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
        }
    ]


async def test_endless_loops_of_one_session_do_not_keep_another_waiting(sandbox: Sandbox) -> None:
    """Honest cells end while every loop is still running: each loop has a budget of a minute."""
    with anyio.fail_after(BOUND_SECONDS):
        async with anyio.create_task_group() as tasks:
            hostile = [
                sandbox.cell("for (;;);", limits=Limits(timeout_ms=60_000), owner="hostile")
                for _ in range(2)
            ]
            for cell in hostile:
                tasks.start_soon(cell.run)
            for number in range(10):
                honest = sandbox.cell(f"return {number}", owner="honest")
                assert shown(await honest.run()) == completed(number)
            assert {cell.state.value for cell in hostile} == {"running"}
            for cell in hostile:
                await cell.abort()


async def test_a_session_that_queues_hundreds_does_not_starve_another(sandbox: Sandbox) -> None:
    order: list[str] = []

    async def run(owner: str) -> None:
        cell = sandbox.cell("let n = 0; while (n < 20000) n++; return n", owner=owner)
        assert shown(await cell.run()) == completed(20000)
        order.append(owner)

    with anyio.fail_after(BOUND_SECONDS):
        async with anyio.create_task_group() as tasks:
            for _ in range(150):
                tasks.start_soon(run, "crowd")
            tasks.start_soon(run, "single")
    # First come, first served would put it last.
    assert order.index("single") < 20


async def test_two_hundred_cells_hostile_and_honest_all_come_to_their_own_end(
    sandbox: Sandbox,
) -> None:
    reasons = list(HOSTILE)
    expected: dict[int, JsonValue] = {}
    found: dict[int, JsonValue] = {}

    async def run(number: int) -> None:
        kind = number % 12
        if kind < len(reasons):
            expected[number] = reasons[kind]
            cell = sandbox.cell(
                HOSTILE[reasons[kind]],
                limits=limits_for(reasons[kind]),
                functions=("echo",),
                handler=echo,
                owner=f"hostile {number % 5}",
            )
            found[number] = verdict(shown(await cell.run()))[2]
            return
        expected[number] = [number, "undefined", []]
        cell = sandbox.cell(
            f"return [await echo({number}), typeof marker, Object.keys(Object.prototype)]",
            functions=("echo",),
            handler=echo,
            owner=f"honest {number % 7}",
        )
        found[number] = shown(await cell.run()).get("value")

    with anyio.fail_after(120):
        async with heartbeat() as heart, anyio.create_task_group() as tasks:
            for number in range(200):
                tasks.start_soon(run, number)
    assert found == expected
    assert heart.beats > 50
