"""Sealed snapshots: what is refused, and with which words."""

import os

import pytest

from nacre.errors import SnapshotError
from nacre.sandbox import Completed, Failed, Sandbox, Waiting
from nacre.sandbox.cell_vm import Snapshot, seal, unseal
from tests.contract.requirements import requirement

KEY = b"k" * 32
SNAPSHOT = Snapshot(
    image="a" * 64,
    memory_bytes=2 << 20,
    rejections=((1, 2, 3),),
    open_requests=(4, 5),
    pages=os.urandom(500),
)


def test_a_sealed_snapshot_comes_back_whole() -> None:
    assert unseal(seal(SNAPSHOT, key=KEY), key=KEY, image=SNAPSHOT.image) == SNAPSHOT


@pytest.mark.parametrize("cut", [0, 1, 20, 40, 200, 499])
def test_a_snapshot_that_is_cut_off_is_refused(cut: int) -> None:
    sealed = seal(SNAPSHOT, key=KEY)
    with pytest.raises(SnapshotError, match="cut off"):
        unseal(sealed[:cut], key=KEY, image=SNAPSHOT.image)


def test_a_change_of_any_single_byte_is_refused() -> None:
    sealed = seal(SNAPSHOT, key=KEY)
    for at in range(len(sealed)):
        changed = bytearray(sealed)
        changed[at] ^= 1
        with pytest.raises(SnapshotError):
            unseal(bytes(changed), key=KEY, image=SNAPSHOT.image)


def test_a_snapshot_made_with_another_key_is_refused() -> None:
    with pytest.raises(SnapshotError, match="another key"):
        unseal(seal(SNAPSHOT, key=b"x" * 32), key=KEY, image=SNAPSHOT.image)


def test_a_snapshot_of_another_image_is_refused_by_name() -> None:
    with pytest.raises(
        SnapshotError, match=r"another sandbox image .aaaaaaaaaaaa., this one is bbbb"
    ):
        unseal(seal(SNAPSHOT, key=KEY), key=KEY, image="b" * 64)


def test_a_snapshot_of_another_format_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nacre.sandbox.cell_vm._VERSION", 9)
    sealed = seal(SNAPSHOT, key=KEY)
    monkeypatch.undo()
    with pytest.raises(SnapshotError, match="has format 9, this version of nacre reads 1"):
        unseal(sealed, key=KEY, image=SNAPSHOT.image)


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
    pool = sandbox._services.home.pool  # pyright: ignore[reportPrivateUsage, reportOptionalMemberAccess]
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
