"""Abort, cancellation and closing at every moment of a cell: at once, and nothing is left."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import anyio
import anyio.lowlevel
import pytest

from nacre.errors import CellStateError
from nacre.json_types import JsonObject, JsonValue
from nacre.sandbox import Cell, CellResult, CellState, HostRequest, Limits, Sandbox, SandboxOptions
from nacre.sandbox.worker_protocol import Command
from tests.security.attacks import (
    BOUND_SECONDS,
    completed,
    expect_neighbour_to_work,
    heartbeat,
    shown,
    verdict,
)

ABORTED: JsonObject = {
    "status": "failed",
    "error": "enough",
    "code": "internal_error",
    "reason": "aborted",
}


def aborted_at(moment: str) -> JsonObject:
    """The result, which names a call that was running."""
    calls: JsonObject = {"abortedToolCalls": [{"id": 1, "method": "ask"}]}
    return {**ABORTED, **(calls if moment == "parked" else {})}


# Longer than any test: what ends earlier was not ended by the budget.
LONG = Limits(timeout_ms=60_000)

YIELDS = """
    globalThis.kept = new Uint32Array(1 << 18).map((_, i) => Math.imul(i, 2654435761));
    await yield_control(); return kept.length
"""


@dataclass(frozen=True)
class Moment:
    """A moment in the life of a cell: the program, and the command whose sending marks it."""

    code: str
    command: Command | None
    is_resumed: bool = False


MOMENTS = {
    "queued": Moment("return 1", None),
    "running": Moment("for (;;);", Command.START),
    "in_a_builtin_that_never_asks": Moment("new Array(2 ** 28).join('xx')", Command.START),
    "parked": Moment("return await ask(1)", None),
    "waiting_for_a_timer": Moment("await new Promise(r => setTimeout(r, 1e6))", Command.START),
    "suspending": Moment(YIELDS, Command.SUSPEND),
    "restoring": Moment(YIELDS, Command.RESTORE, is_resumed=True),
    "resumed": Moment("await yield_control(); for (;;);", Command.DELIVER, is_resumed=True),
}

Watch = Callable[[Command], anyio.Event]


@asynccontextmanager
async def at(moment: str, options: SandboxOptions, watch: Watch) -> AsyncGenerator["Scene", None]:
    """A sandbox and a cell that has just come to this moment of its leg."""
    wanted = MOMENTS[moment]
    asked = anyio.Event()

    async def hang(request: HostRequest) -> JsonValue:
        asked.set()
        await anyio.sleep_forever()

    with anyio.fail_after(BOUND_SECONDS):
        async with Sandbox(options) as sandbox:
            if moment != "queued":
                await sandbox.check()
            cell = sandbox.cell(
                wanted.code, limits=LONG, functions=("ask",), handler=hang, owner="attacker"
            )
            scene = Scene(sandbox, cell)
            leg = cell.run
            if wanted.is_resumed:
                assert type(await cell.run()).__name__ == "Waiting"
                leg = cell.resume
            async with heartbeat(), anyio.create_task_group() as tasks:
                tasks.start_soon(scene.go, leg)
                if moment == "parked":
                    await asked.wait()
                elif wanted.command is not None:
                    await watch(wanted.command).wait()
                else:
                    while cell.state is CellState.NEW:
                        await anyio.lowlevel.checkpoint()
                yield scene
            await expect_neighbour_to_work(sandbox)


class Scene:
    """A running leg, and what becomes of it."""

    def __init__(self, sandbox: Sandbox, cell: Cell) -> None:
        self.sandbox = sandbox
        self.cell = cell
        self.scope = anyio.CancelScope()
        self.result: JsonObject | None = None
        self.ended = anyio.Event()

    async def go(self, leg: Callable[[], Awaitable[CellResult]]) -> None:
        with self.scope:
            self.result = shown(await leg())
        self.ended.set()


@pytest.mark.parametrize("moment", MOMENTS)
async def test_abort_ends_the_cell_at_once_and_frees_its_worker(
    one_worker: SandboxOptions, when_sent: Watch, moment: str
) -> None:
    async with at(moment, one_worker, when_sent) as scene:
        await scene.cell.abort("enough")
        assert (scene.cell.state, scene.cell.snapshot) == (CellState.ABORTED, None)
        await scene.ended.wait()
        assert scene.result == aborted_at(moment)


@pytest.mark.parametrize("moment", MOMENTS)
async def test_a_cancelled_caller_leaves_nothing_of_its_cell_behind(
    one_worker: SandboxOptions, when_sent: Watch, moment: str
) -> None:
    async with at(moment, one_worker, when_sent) as scene:
        scene.scope.cancel()
        await scene.ended.wait()
        assert scene.result is None
        assert (scene.cell.state, scene.cell.snapshot) == (CellState.ABORTED, None)


@pytest.mark.parametrize("moment", MOMENTS)
async def test_two_aborts_at_once_are_one(
    one_worker: SandboxOptions, when_sent: Watch, moment: str
) -> None:
    async with at(moment, one_worker, when_sent) as scene:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(scene.cell.abort, "enough")
            tasks.start_soon(scene.cell.abort, "enough")
        await scene.ended.wait()
        assert scene.result == aborted_at(moment)


@pytest.mark.parametrize("moment", MOMENTS)
async def test_closing_the_sandbox_ends_every_cell(
    one_worker: SandboxOptions, when_sent: Watch, moment: str
) -> None:
    """With a budget of a minute, the end of the cell can only come from the closing."""
    wanted = MOMENTS[moment]
    asked = anyio.Event()
    scenes: list[Scene] = []

    async def hang(request: HostRequest) -> JsonValue:
        asked.set()
        await anyio.sleep_forever()

    with anyio.fail_after(BOUND_SECONDS):
        async with heartbeat(), anyio.create_task_group() as tasks:
            async with Sandbox(one_worker) as sandbox:
                if moment != "queued":
                    await sandbox.check()
                cell = sandbox.cell(wanted.code, limits=LONG, functions=("ask",), handler=hang)
                scene = Scene(sandbox, cell)
                if wanted.is_resumed:
                    assert type(await cell.run()).__name__ == "Waiting"
                tasks.start_soon(scene.go, cell.resume if wanted.is_resumed else cell.run)
                if moment == "parked":
                    await asked.wait()
                elif wanted.command is not None:
                    await when_sent(wanted.command).wait()
                else:
                    while cell.state is CellState.NEW:
                        await anyio.lowlevel.checkpoint()
                scenes.append(scene)
            await scenes[0].ended.wait()
        result = scenes[0].result
        assert result is not None
        assert (result["status"], result["code"]) == ("failed", "runtime_unavailable")


async def test_a_cell_that_waits_is_aborted_without_a_worker(one_worker: SandboxOptions) -> None:
    async with Sandbox(one_worker) as sandbox:
        cell = sandbox.cell("await yield_control(); return 1")
        assert type(await cell.run()).__name__ == "Waiting"
        await cell.abort()
        assert (cell.state, cell.snapshot) == (CellState.ABORTED, None)
        with pytest.raises(CellStateError):
            await cell.resume()
        await expect_neighbour_to_work(sandbox)


async def test_a_cell_that_never_ran_can_be_aborted_and_then_never_runs(
    one_worker: SandboxOptions,
) -> None:
    async with Sandbox(one_worker) as sandbox:
        cell = sandbox.cell("return 1")
        await cell.abort()
        with pytest.raises(CellStateError):
            await cell.run()


async def test_abort_after_the_end_changes_nothing(one_worker: SandboxOptions) -> None:
    async with Sandbox(one_worker) as sandbox:
        cell = sandbox.cell("return 1")
        assert shown(await cell.run()) == completed(1)
        await cell.abort()
        assert cell.state is CellState.COMPLETED


async def test_abort_reaches_requests_that_outlive_a_leg(one_worker: SandboxOptions) -> None:
    asked, ended = anyio.Event(), anyio.Event()

    async def hang(request: HostRequest) -> JsonValue:
        asked.set()
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()

    async with Sandbox(one_worker) as sandbox:
        cell = sandbox.cell(
            "const answer = ask(1); await yield_control(); return await answer",
            functions=("ask",),
            handler=hang,
        )
        with anyio.fail_after(BOUND_SECONDS):
            assert type(await cell.run()).__name__ == "Waiting"
            await asked.wait()
            await cell.abort()
            await ended.wait()


async def test_a_sandbox_that_is_closed_at_once_leaves_nothing(one_worker: SandboxOptions) -> None:
    for _ in range(5):
        async with Sandbox(one_worker):
            pass


async def test_a_cell_after_the_closing_fails_in_plain_words(one_worker: SandboxOptions) -> None:
    async with Sandbox(one_worker) as sandbox:
        suspended = sandbox.cell("await yield_control(); return 1")
        await suspended.run()
    assert verdict(shown(await sandbox.cell("return 1").run())) == (
        "failed",
        "runtime_unavailable",
        "runtime_unavailable",
    )
    assert verdict(shown(await suspended.resume())) == (
        "failed",
        "runtime_unavailable",
        "runtime_unavailable",
    )
