"""Durable cells: stored when they are suspended, and continued by another runtime."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
import zlib
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio
import pytest
from sqlalchemy import update

from nacre import RunContext, Runtime
from nacre.code_mode.cell import Completed, Failed, Waiting
from nacre.errors import CellTakenError, StorageError
from nacre.messages import ToolCallPart
from nacre.sandbox import KeyRing, new_key
from nacre.sandbox.image import load_image
from nacre.storage import CallRecord, CellRecord, open_store
from nacre.storage.schema import cell_calls, cells, images
from nacre.tools import AllowOnce, ApprovalQueue, Tool, ToolCall

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from nacre.code_mode import CodeModeRun
    from nacre.storage import CellStore, Store
    from tests.storage.conftest import PostgresServer

CONTEXT: Final = RunContext(run_id="r1", session_id="s1", agent_id="main", sender="ann")
KEYS: Final = KeyRing(new_key())
IMAGE: Final = load_image("cell")
YIELDS: Final = "text('a'); await yield_control(); text('b'); return 7"


@pytest.fixture(params=["file", "postgres"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Store]:
    url = f"sqlite:///{tmp_path}/nacre.db"
    if request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres")
        url = server.url()
    async with open_store(url) as opened:
        yield opened


async def add(given: dict[str, Any], _call: ToolCall) -> int:
    return given["a"] + given["b"]


TOOLS: Final = [
    Tool(name="add", execute=add),
    Tool(name="pay", execute=add, needs_approval="money"),
]


@asynccontextmanager
async def open_run(
    store: Store,
    *,
    keys: KeyRing = KEYS,
    context: RunContext = CONTEXT,
    approvals: ApprovalQueue | None = None,
    **settings: Any,
) -> AsyncGenerator[CodeModeRun]:
    """A run in a runtime of its own, as in a new process."""
    async with Runtime(
        {"durable": True, "timeoutMs": 1_000, **settings},
        workers=1,
        snapshot_keys=keys,
        cell_store=store.cells,
    ) as runtime:
        yield runtime.run(tools=TOOLS, context=context, approvals=approvals)


async def suspend(store: Store, code: str = YIELDS, **options: Any) -> str:
    """Suspend a program in a runtime that is closed then; returns the id of its cell."""
    async with open_run(store, **options) as run:
        result = await run.exec(code)
        assert isinstance(result, Waiting)
        return result.cell_id


async def resume(store: Store, cell_id: str, **options: Any) -> Completed | Waiting | Failed:
    async with open_run(store, **options) as run:
        return await run.wait(cell_id)


async def find(store: CellStore, cell_id: str) -> CellRecord:
    found = await store.find(cell_id)
    assert found is not None
    return found


async def change_row(store: Store, **values: Any) -> None:
    """Change the only cell, as somebody with access to the database could."""
    database = store._database  # pyright: ignore[reportPrivateUsage]
    await database.write(lambda it: it.execute(update(cells).values(**values)))


async def test_another_runtime_continues_a_cell_and_deletes_it(store: Store) -> None:
    cell_id = await suspend(store)
    result = await resume(store, cell_id)
    assert isinstance(result, Completed)
    assert result.value == 7
    assert [item.to_json() for item in result.output] == [{"type": "text", "text": "b"}]
    assert await store.cells.find(cell_id) is None


async def test_calls_before_and_after_the_restart_work(store: Store) -> None:
    code = "const a = await tools.add({a: 1, b: 2}); await yield_control(); "
    cell_id = await suspend(store, f"{code} return await tools.add({{a, b: 4}})")
    result = await resume(store, cell_id)
    assert isinstance(result, Completed)
    assert result.value == 7


async def test_without_the_setting_nothing_is_stored(store: Store) -> None:
    cell_id = await suspend(store, durable=False)
    assert await store.cells.find(cell_id) is None


async def test_an_aborted_cell_is_deleted(store: Store) -> None:
    async with open_run(store) as run:
        result = await run.exec(YIELDS)
        assert isinstance(result, Waiting)
        assert await store.cells.find(result.cell_id) is not None
        await run.abort()
        assert await store.cells.find(result.cell_id) is None


async def test_a_cell_continues_with_the_answer_to_its_approval(store: Store) -> None:
    cell_id = await suspend(
        store, "return await tools.pay({a: 20, b: 1})", approvals=ApprovalQueue()
    )
    queue = ApprovalQueue()
    async with open_run(store, approvals=queue) as run, anyio.create_task_group() as tasks:

        async def answer() -> None:
            async for request in queue:
                queue.answer(request.id, AllowOnce())
                return

        tasks.start_soon(answer)
        result = await run.wait(cell_id)
        assert isinstance(result, Completed)
        assert result.value == 21


async def test_errors_after_a_restart_have_positions_in_the_typescript_source(store: Store) -> None:
    code = "const n: number = 1;\ninterface X { a: string }\nawait yield_control();\nmissing();"
    async with open_run(store, timeoutMs=30_000) as run:
        waiting = await run.exec(code, language="typescript")
        assert isinstance(waiting, Waiting)
    result = await resume(store, waiting.cell_id, timeoutMs=30_000)
    assert isinstance(result, Failed)
    assert result.position is not None
    assert result.position.line == 4


# Refusals.


async def refused(store: Store, cell_id: str, **options: Any) -> tuple[str, str]:
    result = await resume(store, cell_id, **options)
    assert isinstance(result, Failed)
    return result.reason, result.error


async def test_a_runtime_with_another_key_refuses_the_cell(store: Store) -> None:
    cell_id = await suspend(store)
    reason, error = await refused(store, cell_id, keys=KeyRing(new_key()))
    assert reason == "snapshot_invalid"
    assert "another key" in error


async def test_after_a_rotation_of_keys_the_cell_continues(store: Store) -> None:
    cell_id = await suspend(store)
    result = await resume(store, cell_id, keys=KeyRing(new_key(), KEYS.current))
    assert isinstance(result, Completed)


async def test_a_cell_of_another_image_is_refused(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("nacre.sandbox.cell_vm.CellVm.image", "f" * 64)
        cell_id = await suspend(store)
    reason, error = await refused(store, cell_id)
    assert reason == "snapshot_invalid"
    assert "made by another version of the sandbox" in error


@pytest.fixture
def older_image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Sandboxes have an image without what newer ones export; returns its identity."""
    assets = Path(IMAGE.path).parent
    older = tmp_path / "older"
    shutil.copytree(assets, older)
    newer = (older / "cell.wasm").read_bytes()
    assert newer.count(b"nacre_deliver") == 1
    wasm = newer.replace(b"nacre_deliver", b"other_deliver")
    (older / "cell.wasm").write_bytes(wasm)
    facts = json.loads((older / "images.json").read_text("utf-8"))
    facts["images"]["cell"]["sha256"] = identity = hashlib.sha256(wasm).hexdigest()
    (older / "images.json").write_text(json.dumps(facts), "utf-8")
    monkeypatch.setattr("nacre.sandbox.pool.load_image", partial(load_image, assets=older))
    return identity


async def test_a_cell_of_an_older_image_continues_after_an_upgrade(
    store: Store, older_image: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "await yield_control(); text('b'); await yield_control(); return tools.add({a: 3, b: 4})"
    cell_id = await suspend(store, code)
    assert (await find(store.cells, cell_id)).image == older_image
    monkeypatch.setattr("nacre.sandbox.pool.load_image", load_image)
    async with open_run(store) as run:
        again = await run.wait(cell_id)
        assert isinstance(again, Waiting), again
        assert [item.to_json() for item in again.output] == [{"type": "text", "text": "b"}]
        # It is suspended with its own image again, and new programs have the new one.
        assert (await find(store.cells, cell_id)).image == older_image
        new = await run.exec(YIELDS)
        assert isinstance(new, Waiting)
        assert (await find(store.cells, new.cell_id)).image == IMAGE.identity
    result = await resume(store, cell_id)
    assert isinstance(result, Completed)
    assert result.value == 7


@pytest.mark.parametrize("change", ["missing", "forged", "facts"])
async def test_a_cell_whose_older_image_is_not_genuine_is_refused(
    store: Store, older_image: str, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    cell_id = await suspend(store)
    monkeypatch.setattr("nacre.sandbox.pool.load_image", load_image)
    database = store._database  # pyright: ignore[reportPrivateUsage]
    forged = zlib.compress(b"another module")
    match change:
        case "missing":
            await database.write(lambda it: it.execute(images.delete()))
            expected = "made by another version of the sandbox"
        case "forged":
            await database.write(lambda it: it.execute(images.update().values(wasm=forged)))
            expected = "its SHA-256 is"
        case _:
            text = await _text_of(store)
            assert '"scratch_bytes":4096' in text
            await change_row(store, data=text.replace('"scratch_bytes":4096', '"scratch_bytes":1'))
            expected = "was changed"
    reason, error = await refused(store, cell_id)
    assert reason == "snapshot_invalid"
    assert expected in error


async def test_an_image_is_deleted_when_no_cell_needs_it(store: Store) -> None:
    database = store._database  # pyright: ignore[reportPrivateUsage]

    async def age_images() -> list[str]:
        await database.write(lambda it: it.execute(images.update().values(used=0.0)))
        await store.cells.delete_expired()
        rows = await database.read(lambda it: it.execute(images.select()).mappings().all())
        return [row["identity"] for row in rows]

    cell_id = await suspend(store)
    assert await age_images() == [IMAGE.identity]
    assert isinstance(await resume(store, cell_id), Completed)
    assert await age_images() == []


async def test_an_older_snapshot_in_the_row_is_refused(store: Store) -> None:
    cell_id = await suspend(store, "await yield_control(); await yield_control(); return 1")
    older = await find(store.cells, cell_id)
    assert isinstance(await resume(store, cell_id), Waiting)
    await change_row(store, snapshot=older.snapshot)
    reason, error = await refused(store, cell_id)
    assert reason == "snapshot_invalid"
    assert "an older state of the program (number 1)" in error


@pytest.mark.parametrize("column", ["snapshot", "data", "number"])
async def test_a_row_that_was_changed_is_refused(store: Store, column: str) -> None:
    cell_id = await suspend(store, "await tools.pay({a: 1, b: 2}); ", approvals=ApprovalQueue())
    record = await find(store.cells, cell_id)
    match column:
        case "snapshot":
            changed = bytearray(record.snapshot)
            changed[len(changed) // 2] ^= 1
            await change_row(store, snapshot=bytes(changed))
        case "number":
            await change_row(store, number=record.number + 1)
        case _:
            text = await _text_of(store)
            assert '"a":1' in text
            await change_row(store, data=text.replace('"a":1', '"a":1000'))
    reason, error = await refused(store, cell_id, approvals=ApprovalQueue())
    assert reason == "snapshot_invalid"
    assert "changed" in error


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("cell", {}),
        ("seal", 5),
        ("code", 5),
        ("recordedBursts", "1"),
        ("output", [5]),
        ("output", [{"type": "text", "text": 5}]),
        ("output", [{"type": "image", "mimeType": "image/png"}]),
    ],
)
async def test_a_row_that_is_damaged_is_refused(store: Store, key: str, value: Any) -> None:
    cell_id = await suspend(store)
    await change_row(store, data=json.dumps({**json.loads(await _text_of(store)), key: value}))
    reason, error = await refused(store, cell_id)
    assert (reason, "its row is damaged" in error) == ("snapshot_invalid", True)


@pytest.mark.parametrize(
    "result",
    [
        "",
        "[]",
        "{}",
        '{"error": 5}',
        '{"error": {}}',
        '{"error": {"message": 5}}',
        '{"value": NaN}',
    ],
)
async def test_a_stored_result_that_is_damaged_is_an_unknown_outcome(
    store: Store, result: str
) -> None:
    caught = "catch (error) { return {code: error.code, message: error.message} }"
    code = f"try {{ return await tools.pay({{a: 1, b: 2}}) }} {caught}"
    cell_id = await suspend(store, code, approvals=ApprovalQueue())
    call = CallRecord(request_id=1, tool_id="openclaw:app:pay", state="done", result=result)
    await store.cells.start_call(cell_id, call, epoch=1)
    resumed = await resume(store, cell_id, approvals=ApprovalQueue())
    assert isinstance(resumed, Completed)
    error: Any = resumed.value
    assert error["code"] == "outcome_unknown"
    assert "the stored result of openclaw:app:pay is damaged" in error["message"]


async def _text_of(store: Store) -> str:
    database = store._database  # pyright: ignore[reportPrivateUsage]
    return await database.read(lambda it: it.execute(cells.select()).mappings().one()["data"])


@pytest.mark.parametrize(
    ("context", "problem"),
    [
        (replace(CONTEXT, session_id="s2"), "different session"),
        (replace(CONTEXT, agent_id="other"), "different session"),
        (replace(CONTEXT, sender="bob"), "different session"),
        (replace(CONTEXT, run_id="r2"), "different agent run"),
    ],
)
async def test_another_scope_cannot_resume_the_cell(
    store: Store, context: RunContext, problem: str
) -> None:
    cell_id = await suspend(store)
    reason, error = await refused(store, cell_id, context=context)
    assert (reason, problem in error) == ("run_scope_mismatch", True)
    # And it is still there for its own run.
    assert isinstance(await resume(store, cell_id), Completed)


async def test_a_row_that_was_moved_to_another_session_is_refused(store: Store) -> None:
    cell_id = await suspend(store)
    await change_row(store, session_id="s2", scope='["s2","","main","ann","r1"]')
    reason, error = await refused(store, cell_id, context=replace(CONTEXT, session_id="s2"))
    assert reason == "snapshot_invalid"
    assert "belongs to another one" in error


async def test_a_cell_expires_by_the_time_of_the_database(store: Store) -> None:
    cell_id = await suspend(store)
    assert 890 < (await find(store.cells, cell_id)).seconds_left <= 900
    await change_row(store, deadline=0.0)
    reason, error = await refused(store, cell_id)
    assert (reason, error) == ("snapshot_expired", "code mode run is unavailable or expired.")
    assert await store.cells.find(cell_id) is None


@pytest.mark.parametrize("jump_seconds", [-864_000.0, 864_000.0])
async def test_a_cell_continues_when_the_clock_of_the_machine_has_jumped(
    store: Store, monkeypatch: pytest.MonkeyPatch, jump_seconds: float
) -> None:
    cell_id = await suspend(store)
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + jump_seconds)
    assert isinstance(await resume(store, cell_id), Completed)


async def test_a_call_continues_only_its_own_cell(store: Store) -> None:
    cell_id = await suspend(store)
    async with open_run(store) as run:
        waits: Any = None
        # The program of another call may contain the id.
        other = ToolCallPart(call_id="c2", name="exec", arguments=f'{{"code": "// {cell_id}"}}')
        assert await run.continue_call(other, waits) is None
        waited = ToolCallPart(call_id="c3", name="wait", arguments=f'{{"runId": "{cell_id}"}}')
        result = await run.continue_call(waited, waits)
        assert result is not None
        assert '"value":7' in result.content


async def test_the_cap_counts_the_stored_cells_of_the_session(store: Store) -> None:
    options: Any = {"snapshot_keys": KEYS, "cell_store": store.cells, "max_suspended_cells": 2}
    settings = {"durable": True}
    async with Runtime(settings, workers=1, **options) as runtime:
        assert isinstance(await runtime.run(context=CONTEXT, tools=TOOLS).exec(YIELDS), Waiting)
    async with Runtime(settings, workers=1, **options) as runtime:
        result = await runtime.run(context=CONTEXT, tools=TOOLS).exec(YIELDS)
        assert isinstance(result, Failed)
        assert result.reason == "too_many_suspended_runs"
        other = replace(CONTEXT, session_id="s2", run_id="r2")
        assert isinstance(await runtime.run(context=other, tools=TOOLS).exec(YIELDS), Waiting)


async def test_a_process_at_its_cap_takes_over_the_cells_of_another_one(store: Store) -> None:
    cell_id = await suspend(store)
    options: Any = {"snapshot_keys": KEYS, "cell_store": store.cells, "max_suspended_cells": 1}
    async with Runtime({"durable": True}, workers=1, **options) as runtime:
        other = runtime.run(context=replace(CONTEXT, session_id="s2", run_id="r2"), tools=TOOLS)
        assert isinstance(await other.exec(YIELDS), Waiting)
        result = await runtime.run(context=CONTEXT, tools=TOOLS).wait(cell_id)
        assert isinstance(result, Completed), result
        refused = await other.exec(YIELDS)
        assert isinstance(refused, Failed)
        assert refused.reason == "too_many_suspended_runs"


# The store.

RECORD: Final = CellRecord(
    id="c1",
    session_id="s1",
    run_id="r1",
    call_id="call",
    scope="[]",
    epoch=1,
    number=1,
    snapshot=b"\0\1",
    data={"a": 1},
)


async def put(store: Store, record: CellRecord) -> bool:
    return await store.cells.suspend(record, ttl_seconds=60, max_per_session=10)


async def test_a_process_with_an_old_epoch_cannot_write(store: Store) -> None:
    assert await put(store, RECORD)
    assert await store.cells.claim(RECORD) == 2
    call = CallRecord(request_id=1, tool_id="t", state="started")
    with pytest.raises(CellTakenError):
        await store.cells.start_call("c1", call, epoch=1)
    with pytest.raises(CellTakenError):
        await store.cells.finish_call("c1", 1, "{}", epoch=1)
    with pytest.raises(CellTakenError):
        await put(store, replace(RECORD, epoch=4))
    with pytest.raises(CellTakenError):
        await store.cells.delete("c1", epoch=1)
    with pytest.raises(CellTakenError):
        await store.cells.claim(RECORD)
    assert (await find(store.cells, "c1")).epoch == 2


async def test_a_suspension_that_was_committed_before_is_not_stored_twice(store: Store) -> None:
    assert await put(store, RECORD)
    assert await put(store, replace(RECORD, data={"a": 2}))
    assert (await find(store.cells, "c1")).data == {"a": 1}


async def test_calls_of_answered_requests_are_deleted_with_the_next_suspension(
    store: Store,
) -> None:
    assert await put(store, RECORD)
    for number in (1, 2):
        call = CallRecord(request_id=number, tool_id="t", state="started")
        await store.cells.start_call("c1", call, epoch=1)
    await store.cells.finish_call("c1", 2, '{"value":1}', epoch=1)
    done = CallRecord(request_id=2, tool_id="t", state="done", result='{"value":1}')
    assert done in (await find(store.cells, "c1")).calls
    await put(store, replace(RECORD, epoch=2, number=2, snapshot=b"new", calls=(done,)))
    found = await find(store.cells, "c1")
    assert (found.snapshot, found.calls) == (b"new", (done,))
    await store.cells.delete("c1", epoch=2)
    database = store._database  # pyright: ignore[reportPrivateUsage]
    assert await database.read(lambda it: it.execute(cell_calls.select()).all()) == []


async def test_a_tool_does_not_run_if_its_start_cannot_be_stored(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell_id = await suspend(
        store, "await yield_control(); return await tools.add({a: 1, b: 1}).catch((e) => e.message)"
    )

    async def fail(*_: object, **__: object) -> None:
        raise StorageError("the disk is full")

    monkeypatch.setattr(type(store.cells), "start_call", fail)
    result = await resume(store, cell_id)
    assert isinstance(result, Completed)
    assert "the call was not made" in str(result.value)
