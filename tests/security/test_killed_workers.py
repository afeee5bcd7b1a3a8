"""Workers that die or hang at the worst moment: their own cell is lost at most, and bounded."""

import os
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import pytest

from nacre.json_types import JsonValue
from nacre.sandbox import Cell, CellResult, HostRequest, Limits, Sandbox, SandboxOptions
from tests.security.attacks import (
    AMPLE,
    BOUND_SECONDS,
    completed,
    expect_neighbour_to_work,
    heartbeat,
    shown,
    until_gone,
    verdict,
)

LOST = ("failed", "runtime_unavailable", "worker_lost")


class Run:
    """A leg of a cell in a task of its own."""

    def __init__(self, cell: Cell) -> None:
        self.cell = cell
        self.asked = anyio.Event()
        self.release = anyio.Event()
        self.result: CellResult | None = None

    async def handle(self, request: HostRequest) -> JsonValue:
        self.asked.set()
        await self.release.wait()
        return request.payload


@asynccontextmanager
async def running(
    sandbox: Sandbox, code: str, *, limits: Limits | None = None
) -> AsyncGenerator[Run, None]:
    """Start a cell, let the test interfere, and wait for its end."""
    run: Run

    async def handle(request: HostRequest) -> JsonValue:
        return await run.handle(request)

    run = Run(
        sandbox.cell(code, limits=limits, functions=("ask",), handler=handle, owner="attacker")
    )

    async def go() -> None:
        run.result = await run.cell.run()

    with anyio.fail_after(BOUND_SECONDS):
        async with heartbeat() as heart, anyio.create_task_group() as tasks:
            tasks.start_soon(go)
            yield run
        assert heart.beats > 0


async def only_worker(sandbox: Sandbox) -> int:
    """Of a sandbox that has run nothing yet: beside a cell that takes long, another is started."""
    (pid,) = (await sandbox.check()).workers
    return pid


async def signal_workers(sandbox: Sandbox, number: signal.Signals) -> list[int]:
    pids = list((await sandbox.check()).workers)
    for pid in pids:
        os.kill(pid, number)
    return pids


async def test_a_worker_killed_under_a_running_cell_fails_that_cell(
    one_worker: SandboxOptions, when_started: anyio.Event
) -> None:
    async with Sandbox(one_worker) as sandbox:
        pid = await only_worker(sandbox)
        async with running(sandbox, "text('before'); for (;;);") as run:
            await when_started.wait()
            os.kill(pid, signal.SIGKILL)
        assert run.result is not None
        result = shown(run.result)
        assert verdict(result) == LOST
        assert "worker" in str(result["error"])
        await expect_neighbour_to_work(sandbox)


async def test_a_worker_killed_in_the_middle_of_a_request_fails_its_cell_at_once(
    one_worker: SandboxOptions,
) -> None:
    """Not only when the answer comes, nor at the end of the budget."""
    async with Sandbox(one_worker) as sandbox:
        pid = await only_worker(sandbox)
        async with running(sandbox, "return await ask(1)", limits=Limits(timeout_ms=60_000)) as run:
            await run.asked.wait()
            os.kill(pid, signal.SIGKILL)
        assert run.result is not None
        assert verdict(shown(run.result)) == LOST
        await expect_neighbour_to_work(sandbox)


async def test_a_suspended_cell_survives_the_death_of_every_worker(
    one_worker: SandboxOptions,
) -> None:
    async with Sandbox(one_worker) as sandbox:
        cell = sandbox.cell("const kept = [40]; await yield_control(); return kept[0] + 2")
        assert type(await cell.run()).__name__ == "Waiting"
        pids = await signal_workers(sandbox, signal.SIGKILL)
        with anyio.fail_after(BOUND_SECONDS):
            for pid in pids:
                await until_gone(pid)
            assert shown(await cell.resume()) == completed(42)


async def test_the_next_cell_finds_a_healthy_worker_after_the_idle_ones_were_killed(
    one_worker: SandboxOptions,
) -> None:
    async with Sandbox(one_worker) as sandbox:
        for _ in range(3):
            pids = await signal_workers(sandbox, signal.SIGKILL)
            with anyio.fail_after(BOUND_SECONDS):
                for pid in pids:
                    await until_gone(pid)
                await expect_neighbour_to_work(sandbox)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGQUIT, 40], ids=["TERM", "QUIT", "40"])
async def test_a_worker_ended_by_any_signal_is_lost_in_plain_words(
    one_worker: SandboxOptions, when_started: anyio.Event, number: int
) -> None:
    async with Sandbox(one_worker) as sandbox:
        pid = await only_worker(sandbox)
        async with running(sandbox, "for (;;);", limits=Limits(timeout_ms=60_000)) as run:
            await when_started.wait()
            os.kill(pid, number)
        assert run.result is not None
        assert verdict(shown(run.result)) == LOST
        await expect_neighbour_to_work(sandbox)


async def test_all_workers_killed_at_once_cost_their_cells_and_the_others_go_on(
    one_worker: SandboxOptions,
) -> None:
    options = SandboxOptions(workers=2, cache_directory=one_worker.cache_directory)
    results: list[JsonValue] = []
    started = anyio.Event()

    async def run(sandbox: Sandbox, number: int) -> None:
        async def handle(request: HostRequest) -> JsonValue:
            started.set()
            return request.payload

        cell = sandbox.cell(
            f"return await ask({number})", functions=("ask",), handler=handle, owner=str(number)
        )
        results.append(shown(await cell.run()))

    with anyio.fail_after(BOUND_SECONDS):
        async with Sandbox(options) as sandbox:
            async with anyio.create_task_group() as tasks:
                for number in range(40):
                    tasks.start_soon(run, sandbox, number)
                await started.wait()
                for pid in (await sandbox.check()).workers:
                    os.kill(pid, signal.SIGKILL)
            await expect_neighbour_to_work(sandbox)
    values = [
        result["value"] for result in results if isinstance(result, dict) and "value" in result
    ]
    lost = [result for result in results if isinstance(result, dict) and "value" not in result]
    assert len(results) == 40
    # At most what the workers held, and what was handed to one that was already dead.
    assert len(lost) <= 8
    assert all(verdict(result) == LOST for result in lost)
    assert len(set(map(str, values))) == len(values)


@pytest.mark.parametrize("moment", ["starting", "parked", "yielding"])
async def test_a_worker_that_hangs_is_given_up_in_bounded_time(
    one_worker: SandboxOptions, moment: str
) -> None:
    """Stopped, not dead: only a clock can tell."""
    code = {
        "starting": "return 1",
        "parked": "return await ask(1)",
        "yielding": "await ask(1); await yield_control(); return 2",
    }[moment]
    async with Sandbox(one_worker) as sandbox:
        pid = await only_worker(sandbox)
        if moment == "starting":
            os.kill(pid, signal.SIGSTOP)
        # Only a program that has begun is given up at its time limit.
        limits = AMPLE if moment == "starting" else Limits(timeout_ms=300)
        async with running(sandbox, code, limits=limits) as run:
            if moment != "starting":
                await run.asked.wait()
                os.kill(pid, signal.SIGSTOP)
            if moment == "yielding":
                run.release.set()
        assert run.result is not None
        result = shown(run.result)
        if moment == "starting":
            # Nothing of the program had run, so another worker took it.
            assert result == completed(1)
        else:
            assert result["status"] == "failed"
            assert result["reason"] in ("timeout", "worker_lost")
        await expect_neighbour_to_work(sandbox)


async def test_a_worker_that_hangs_before_it_restores_a_cell_is_replaced(
    one_worker: SandboxOptions,
) -> None:
    async with Sandbox(one_worker) as sandbox:
        cell = sandbox.cell(
            "globalThis.kept = new Uint32Array(1 << 18).map((_, i) => Math.imul(i, 2654435761));"
            "await yield_control(); return 1",
            limits=Limits(timeout_ms=3000),
        )
        assert type(await cell.run()).__name__ == "Waiting"
        # More than a socket holds, so that sending it hangs as well.
        assert len(cell.snapshot or b"") > 500_000
        await signal_workers(sandbox, signal.SIGSTOP)
        with anyio.fail_after(BOUND_SECONDS):
            assert shown(await cell.resume()) == completed(1)
            await expect_neighbour_to_work(sandbox)


async def test_aborting_a_cell_in_a_hung_worker_is_bounded(
    one_worker: SandboxOptions, when_started: anyio.Event
) -> None:
    async with Sandbox(one_worker) as sandbox:
        pid = await only_worker(sandbox)
        async with running(sandbox, "for (;;);", limits=Limits(timeout_ms=60_000)) as run:
            await when_started.wait()
            os.kill(pid, signal.SIGSTOP)
            await run.cell.abort("enough")
        assert run.result is not None
        assert verdict(shown(run.result)) == ("failed", "internal_error", "aborted")
        await expect_neighbour_to_work(sandbox)


async def test_closing_a_sandbox_with_a_hung_worker_is_bounded(one_worker: SandboxOptions) -> None:
    with anyio.fail_after(BOUND_SECONDS):
        async with Sandbox(one_worker) as sandbox:
            os.kill(await only_worker(sandbox), signal.SIGSTOP)


async def test_a_worker_that_does_not_take_its_answers_is_given_up_in_bounded_time(
    one_worker: SandboxOptions,
) -> None:
    async def answer_to_a_stopped_worker(request: HostRequest) -> JsonValue:
        os.kill(pid, signal.SIGSTOP)
        # More than a socket holds.
        return "x" * 3_000_000

    async with Sandbox(one_worker) as sandbox:
        pid = await only_worker(sandbox)
        with anyio.fail_after(BOUND_SECONDS):
            result = await sandbox.cell(
                "return await ask(1)",
                limits=Limits(timeout_ms=300),
                functions=("ask",),
                handler=answer_to_a_stopped_worker,
            ).run()
        assert shown(result)["reason"] == "timeout"
        await expect_neighbour_to_work(sandbox)
