"""Who gets a worker: fairness, moving out, growth beside hogs, replacement."""

import errno

import anyio
import psutil
import pytest

from nacre.json_types import JsonValue
from nacre.sandbox import Completed, Failed, HostRequest, Limits, Sandbox, SandboxOptions
from nacre.sandbox.pool import Launcher, WorkerPool
from nacre.sandbox.worker_process import WorkerProcess
from tests.sandbox.conftest import HeldHandler


def pool_of(sandbox: Sandbox) -> WorkerPool:
    return sandbox._services.runtime.pool  # pyright: ignore[reportPrivateUsage, reportOptionalMemberAccess]


async def test_many_cells_that_wait_for_slow_calls_share_few_workers(held: HeldHandler) -> None:
    async with Sandbox(SandboxOptions(workers=1)) as sandbox:
        results: list[object] = []

        async def run(number: int) -> None:
            code = f"return [{number}, await call({number})]"
            results.append(await sandbox.cell(code, functions=("call",), handler=held).run())

        async with anyio.create_task_group() as tasks:
            for number in range(12):
                tasks.start_soon(run, number)
            # All twelve are under way although there is room for few: the rest moved out.
            with anyio.fail_after(50):
                while len(held.requests) < 12:
                    await held.received(len(held.requests) + 1)
            assert len(pool_of(sandbox).workers) <= 4
            # Their calls all have the id 1 in their own cell; let them all go.
            held.answer(1, "answer")
        values = [result.value for result in results if isinstance(result, Completed)]
    assert sorted(map(str, values)) == sorted(str([n, "answer"]) for n in range(12))


async def test_hogs_of_one_owner_leave_workers_to_another() -> None:
    async with Sandbox(SandboxOptions(workers=2)) as sandbox:
        hogs = [
            sandbox.cell("for (;;);", limits=Limits(timeout_ms=60000), owner="greedy")
            for _ in range(8)
        ]
        async with anyio.create_task_group() as tasks:
            for hog in hogs:
                tasks.start_soon(hog.run)
            await anyio.wait_all_tasks_blocked()
            with anyio.fail_after(50):
                for _ in range(5):
                    result = await sandbox.cell("return 'mine'", owner="modest").run()
                    assert isinstance(result, Completed)
            for hog in hogs:
                await hog.abort()
        assert len(pool_of(sandbox).workers) <= 4


async def test_a_killed_worker_is_replaced_and_costs_its_own_cell_only() -> None:
    async with Sandbox(SandboxOptions(workers=2)) as sandbox:
        started = anyio.Event()
        victim = sandbox.cell(
            "text('in'); for (;;);",
            limits=Limits(timeout_ms=60000),
            on_output=lambda _: started.set(),
        )
        results: list[object] = []

        async def run() -> None:
            results.append(await victim.run())

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await started.wait()
            worker = victim._vm._worker  # pyright: ignore[reportPrivateUsage]
            assert worker is not None
            psutil.Process(worker.pid).kill()
        assert isinstance(results[0], Failed)
        assert (results[0].code, results[0].reason) == ("runtime_unavailable", "worker_lost")
        assert "SIGKILL" in results[0].error
        with anyio.fail_after(50):
            for _ in range(6):
                assert isinstance(await sandbox.cell("return 1").run(), Completed)
            while not pool_of(sandbox).workers:
                await anyio.wait_all_tasks_blocked()


async def test_a_cell_that_waits_in_a_worker_notices_its_death_at_once(
    held: HeldHandler,
) -> None:
    async with Sandbox(SandboxOptions(workers=1)) as sandbox:
        cell = sandbox.cell(
            "return await call()",
            limits=Limits(timeout_ms=60000),
            functions=("call",),
            handler=held,
        )
        results: list[object] = []

        async def run() -> None:
            results.append(await cell.run())

        with anyio.fail_after(50):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(run)
                await held.received(1)
                worker = cell._vm._worker  # pyright: ignore[reportPrivateUsage]
                assert worker is not None
                worker.kill()
        assert isinstance(results[0], Failed)
        assert (results[0].reason, held.cancelled) == ("worker_lost", [1])


async def test_the_pool_shrinks_to_its_size_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nacre.sandbox.pool._EXTRA_WORKER_IDLE_SECONDS", 0.01)
    async with Sandbox(SandboxOptions(workers=1)) as sandbox:
        hog = sandbox.cell("for (;;);", limits=Limits(timeout_ms=60000), owner="greedy")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(hog.run)
            await anyio.wait_all_tasks_blocked()
            assert isinstance(await sandbox.cell("return 1", owner="other").run(), Completed)
            await hog.abort()
        pool = pool_of(sandbox)
        with anyio.fail_after(50):
            while len(pool.workers) > 1:
                await anyio.wait_all_tasks_blocked()


async def test_cells_that_cannot_move_out_do_not_starve_another_owner(held: HeldHandler) -> None:
    code = "globalThis.kept = crypto.getRandomValues(new Uint8Array(60000)); return await call()"
    async with Sandbox(SandboxOptions(workers=2)) as sandbox:
        waiting = [
            sandbox.cell(
                code,
                limits=Limits(timeout_ms=60000, max_snapshot_bytes=1024),
                functions=("call",),
                handler=held,
                owner="large",
            )
            for _ in range(2)
        ]
        async with anyio.create_task_group() as tasks:
            for cell in waiting:
                tasks.start_soon(cell.run)
            await held.received(2)
            with anyio.fail_after(50):
                result = await sandbox.cell("return 5", owner="small").run()
            assert isinstance(result, Completed)
            for cell in waiting:
                await cell.abort()


async def test_cells_that_run_cells_of_the_same_owner_do_not_block_each_other() -> None:
    async with Sandbox(SandboxOptions(workers=2)) as sandbox:

        async def run_inner(request: HostRequest) -> JsonValue:
            inner = await sandbox.cell("return 'inner'").run()
            assert isinstance(inner, Completed)
            return inner.value

        async def run_outer() -> None:
            result = await sandbox.cell(
                "const end = Date.now() + 150; while (Date.now() < end); return await call()",
                functions=("call",),
                handler=run_inner,
            ).run()
            assert isinstance(result, Completed), result
            assert result.value == "inner"

        with anyio.fail_after(50):
            async with anyio.create_task_group() as tasks:
                for _ in range(6):
                    tasks.start_soon(run_outer)


async def test_a_failed_start_is_repeated_although_no_cell_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("nacre.sandbox.pool._RESTART_DELAY_SECONDS", 0.01)
    launch, failures, launched = Launcher.launch, 3, anyio.Event()

    async def fail_first(launcher: Launcher) -> WorkerProcess:
        nonlocal failures
        failures -= 1
        if failures >= 0:
            raise OSError(errno.EMFILE, "Too many open files")
        worker = await launch(launcher)
        launched.set()
        return worker

    monkeypatch.setattr(Launcher, "launch", fail_first)
    async with Sandbox(SandboxOptions(workers=1)) as sandbox:
        with anyio.fail_after(50):
            await launched.wait()
        assert isinstance(await sandbox.cell("return 1").run(), Completed)
