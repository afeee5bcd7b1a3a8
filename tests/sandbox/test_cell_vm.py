"""Suspending and restoring the VM of a cell, and sealed snapshots."""

import os
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import anyio
import pytest

from nacre.errors import SnapshotError, WorkerDiedError
from nacre.sandbox import (
    CellState,
    Completed,
    Failed,
    KeyRing,
    Limits,
    Sandbox,
    SnapshotKey,
    Waiting,
    cell_vm,
)
from nacre.sandbox.cell_vm import (
    CellVm,
    Snapshot,
    SnapshotBinding,
    seal,
    transfer_limit_seconds,
    unseal,
)
from nacre.sandbox.worker_protocol import Event, Frame
from tests.contract.requirements import requirement
from tests.sandbox.cell_results import failure_of

if TYPE_CHECKING:
    from nacre.sandbox.worker_process import WorkerProcess

OLD = SnapshotKey(id="old", secret=b"o" * 32)
NEW = SnapshotKey(id="new", secret=b"n" * 32)
KEYS = KeyRing(OLD)
BINDING = SnapshotBinding(scope="session 1", cell_id="cell_1", epoch=3)
SNAPSHOT = Snapshot(
    image="a" * 64,
    memory_bytes=2 << 20,
    rejections=((1, 2, 3),),
    open_requests=(4, 5),
    blocks=os.urandom(500),
)


def make_sealed(*, keys: KeyRing = KEYS, binding: SnapshotBinding = BINDING) -> bytes:
    return seal(SNAPSHOT, keys=keys, binding=binding)


def open_sealed(
    sealed: bytes,
    *,
    keys: KeyRing = KEYS,
    image: str = SNAPSHOT.image,
    binding: SnapshotBinding = BINDING,
) -> Snapshot:
    return unseal(sealed, keys=keys, image=image, binding=binding)


def test_a_sealed_snapshot_comes_back_whole() -> None:
    assert open_sealed(make_sealed()) == SNAPSHOT


@pytest.mark.parametrize("cut", [0, 1, 20, 40, 200, 499])
def test_a_snapshot_that_is_cut_off_is_refused(cut: int) -> None:
    with pytest.raises(SnapshotError, match="truncated"):
        open_sealed(make_sealed()[:cut])


def test_a_change_of_any_single_byte_is_refused() -> None:
    sealed = make_sealed()
    for at in range(len(sealed)):
        changed = bytearray(sealed)
        changed[at] ^= 1
        with pytest.raises(SnapshotError):
            open_sealed(bytes(changed))


def test_a_snapshot_made_with_another_key_is_refused() -> None:
    with pytest.raises(SnapshotError, match="another key"):
        open_sealed(make_sealed(keys=KeyRing(SnapshotKey(id="old", secret=b"x" * 32))))


def test_a_snapshot_made_with_an_unknown_key_names_it() -> None:
    with pytest.raises(SnapshotError, match=r"another key \('new'\).*sandbox.snapshotKeys"):
        open_sealed(make_sealed(keys=KeyRing(NEW)))


def test_after_a_rotation_old_snapshots_open_and_new_ones_have_the_new_key() -> None:
    rotated = KeyRing(NEW, OLD)
    assert open_sealed(make_sealed(), keys=rotated) == SNAPSHOT
    assert open_sealed(make_sealed(keys=rotated), keys=KeyRing(NEW)) == SNAPSHOT
    with pytest.raises(SnapshotError, match="another key"):
        open_sealed(make_sealed(keys=rotated), keys=KEYS)


@pytest.mark.parametrize(
    ("binding", "problem"),
    [
        (replace(BINDING, scope="session 2"), "belongs to another session, agent or sender"),
        (replace(BINDING, cell_id="cell_2"), r"belongs to another cell \(cell_1\)"),
        (replace(BINDING, epoch=4), r"an older state of the program \(number 3\)"),
        (replace(BINDING, epoch=2), r"another state of the program \(number 3\)"),
    ],
)
def test_a_snapshot_of_another_origin_says_which(binding: SnapshotBinding, problem: str) -> None:
    with pytest.raises(SnapshotError, match=problem):
        open_sealed(make_sealed(), binding=binding)


def test_a_snapshot_of_another_image_is_refused_by_name() -> None:
    with pytest.raises(
        SnapshotError,
        match=r"another version of the sandbox \(image aaaaaaaaaaaa, this one is bbbb",
    ):
        open_sealed(make_sealed(), image="b" * 64)


def test_a_snapshot_of_another_format_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nacre.sandbox.cell_vm._VERSION", 9)
    sealed = make_sealed()
    monkeypatch.undo()
    with pytest.raises(SnapshotError, match="has format 9, this version of nacre reads 3"):
        open_sealed(sealed)


@requirement("security:foreign-snapshots-refused")
async def test_a_cell_whose_snapshot_was_tampered_with_fails_before_it_runs(
    sandbox: Sandbox,
) -> None:
    cell = sandbox.cell("await yield_control(); text('ran'); return 1")
    assert isinstance(await cell.run(), Waiting)
    sealed = bytearray(cell.snapshot or b"")
    sealed[len(sealed) // 2] ^= 1
    cell._vm._sealed = bytes(sealed)  # pyright: ignore[reportPrivateUsage]
    result = await cell.resume()
    assert isinstance(result, Failed)
    assert (result.code, result.reason, result.output) == ("invalid_input", "snapshot_invalid", ())


async def test_a_snapshot_is_a_few_kilobytes_and_resumes_in_another_worker(
    sandbox: Sandbox,
) -> None:
    pool = sandbox._services.runtime.pool  # pyright: ignore[reportPrivateUsage, reportOptionalMemberAccess]
    cell = sandbox.cell("let n = 41; await yield_control(); return n + 1")
    assert isinstance(await cell.run(), Waiting)
    assert len(cell.snapshot or b"") < 64 * 1024
    # Every worker that was there is gone, so the one that resumes it is another.
    for worker in pool.workers:
        worker.kill()
        await worker.death.wait()
    result = await cell.resume()
    assert isinstance(result, Completed)
    assert result.value == 42


async def test_an_abort_in_the_moment_of_suspension_ends_the_cell(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = sandbox.cell("await yield_control(); return 1")
    suspend = CellVm.suspend

    async def suspend_and_abort(vm: CellVm, open_requests: tuple[int, ...]) -> None:
        await suspend(vm, open_requests)
        # The leg is about to return; nothing in it can be cancelled any more.
        tasks.start_soon(cell.abort)

    monkeypatch.setattr(CellVm, "suspend", suspend_and_abort)
    async with anyio.create_task_group() as tasks:
        await cell.run()
    assert (cell.state, cell.snapshot) == (CellState.ABORTED, None)


async def test_state_of_every_kind_survives_suspension(sandbox: Sandbox) -> None:
    code = """
    class Box { #secret = 5; get() { return this.#secret } }
    const box = new Box(), map = new Map([[box, 'm']]), gen = (function* () { yield 1; yield 2 })();
    gen.next();
    const weak = new WeakMap([[box, 'w']]), bytes = new Uint8Array([1, 2, 3]);
    let caught;
    const rejected = Promise.reject(new Error('later'));
    await yield_control();
    try { await rejected } catch (error) { caught = error.message }
    return [box.get(), map.get(box), gen.next().value, weak.get(box), [...bytes], caught]
    """
    cell = sandbox.cell(code)
    assert isinstance(await cell.run(), Waiting)
    result = await cell.resume()
    assert isinstance(result, Completed)
    assert result.value == [5, "m", 2, "w", [1, 2, 3], "later"]


@requirement("validation:snapshot-cap", "security:caps")
async def test_a_snapshot_over_its_limit_fails_with_its_own_code(sandbox: Sandbox) -> None:
    code = """
    const noise = crypto.getRandomValues(new Uint8Array(60000));
    await yield_control(); return noise.length"""
    result = await failure_of(sandbox, code, Limits(max_snapshot_bytes=16384))
    assert (result.code, result.reason) == (
        "snapshot_limit_exceeded",
        "snapshot_limit_exceeded",
    )
    assert "maxSnapshotBytes (16384)" in result.error


async def test_a_suspended_program_keeps_its_random_sequence(sandbox: Sandbox) -> None:
    cell = sandbox.cell(
        "const a = Math.random(); await yield_control(); return a !== Math.random()"
    )
    assert isinstance(await cell.run(), Waiting)
    result = await cell.resume()
    assert isinstance(result, Completed)
    assert result.value is True


async def test_restoring_a_large_program_is_not_charged_to_its_budget(sandbox: Sandbox) -> None:
    code = """
    const kept = new Uint32Array(10 << 20).map((_, i) => i & 255);
    await yield_control(); return kept.length"""
    limits = Limits(timeout_ms=60000, memory_limit_bytes=256 << 20)
    cell = sandbox.cell(code, limits=limits)
    assert isinstance(await cell.run(), Waiting)
    cell._limits = replace(limits, timeout_ms=100)  # pyright: ignore[reportPrivateUsage]
    result = await cell.resume()
    assert isinstance(result, Completed), result
    assert result.value == 10 << 20


async def test_a_heap_of_hundreds_of_megabytes_is_suspended_or_refused_never_lost(
    sandbox: Sandbox,
) -> None:
    code = (
        "const kept = new Uint8Array(600 << 20).fill(7); await yield_control(); return kept.at(-1)"
    )
    cell = sandbox.cell(code, limits=Limits(timeout_ms=60000, memory_limit_bytes=1 << 30))
    result = await cell.run()
    assert isinstance(result, Waiting), result
    result = await cell.resume()
    assert isinstance(result, Completed), result
    assert result.value == 7


async def test_the_limit_of_a_transfer_grows_with_the_memory_of_the_vm(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []

    def record(size_bytes: int) -> float:
        sizes.append(size_bytes)
        return transfer_limit_seconds(size_bytes)

    monkeypatch.setattr(cell_vm, "transfer_limit_seconds", record)
    # Without the time that is the same for all, a transfer has only what its size gives it.
    monkeypatch.setattr(cell_vm, "_BASE_LIMIT_SECONDS", 0.0)
    code = (
        "const kept = new Uint8Array(50 << 20).fill(7); await yield_control(); return kept.at(-1)"
    )
    limits = Limits(timeout_ms=60000, memory_limit_bytes=128 << 20)
    cell = sandbox.cell(code + "/*" + "x" * (2 << 20) + "*/", limits=limits)
    assert isinstance(await cell.run(), Waiting)
    result = await cell.resume()
    assert isinstance(result, Completed), result
    started, suspended, restored = sizes
    assert started > 2 << 20
    assert suspended == limits.memory_limit_bytes
    assert 50 << 20 < restored < limits.memory_limit_bytes * 5 / 4


def test_a_transfer_of_one_gigabyte_may_take_a_hundred_seconds_more() -> None:
    assert transfer_limit_seconds(1 << 30) - transfer_limit_seconds(0) >= 100


async def test_suspending_again_and_again_does_not_grow_the_snapshot(sandbox: Sandbox) -> None:
    cell = sandbox.cell("for (;;) await yield_control()")
    result = await cell.run()
    sizes: list[int] = []
    for _ in range(100):
        assert isinstance(result, Waiting)
        sizes.append(len(cell.snapshot or b""))
        result = await cell.resume()
    await cell.abort()
    assert max(sizes[50:]) <= max(sizes[:50]) + 256


class SlowWorker:
    """A worker that answers in a certain round, and uses this much CPU time in each."""

    def __init__(self, *, answers_in: int, cpu_per_round: float) -> None:
        self._answers_in = answers_in
        self._cpu_per_round = cpu_per_round
        self._rounds = 0

    def cpu_seconds(self) -> float:
        return self._rounds * self._cpu_per_round

    async def send(self, data: bytes) -> None:
        assert self._rounds == 0, "the command was sent twice"

    async def event(self) -> Frame:
        self._rounds += 1
        if self._rounds < self._answers_in:
            await anyio.sleep_forever()
        return Frame(Event.SUSPENDED, {}, b"")


def ten_milliseconds(_size_bytes: int) -> float:
    return 0.01


async def request_snapshot(sandbox: Sandbox, worker: SlowWorker) -> Frame:
    vm = sandbox.cell("")._vm  # pyright: ignore[reportPrivateUsage]
    return await vm._request_snapshot(cast("WorkerProcess", worker))  # pyright: ignore[reportPrivateUsage]


async def test_a_worker_of_a_slow_machine_gets_more_time_to_suspend(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cell_vm, "transfer_limit_seconds", ten_milliseconds)
    worker = SlowWorker(answers_in=20, cpu_per_round=0.0004)
    assert (await request_snapshot(sandbox, worker)).kind == Event.SUSPENDED


@pytest.mark.parametrize("cpu_per_round", [0.0, 0.02])
async def test_a_worker_that_sleeps_or_runs_for_too_long_is_given_up(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, cpu_per_round: float
) -> None:
    monkeypatch.setattr(cell_vm, "transfer_limit_seconds", ten_milliseconds)
    worker = SlowWorker(answers_in=1000, cpu_per_round=cpu_per_round)
    with pytest.raises(WorkerDiedError, match="did not suspend"):
        await request_snapshot(sandbox, worker)


@pytest.mark.skipif(sys.platform != "linux", reason="needs the CPU time of another process")
async def test_the_cpu_time_of_a_worker_is_known(sandbox: Sandbox) -> None:
    await sandbox.ensure_available()
    workers = sandbox._services.runtime.pool.workers  # pyright: ignore[reportPrivateUsage, reportOptionalMemberAccess]
    assert all(worker.cpu_seconds() > 0 for worker in workers)
