"""A store that fails at the end of a turn: tried again, never written twice, never left open."""

from __future__ import annotations

import resource
import sqlite3
from contextlib import ExitStack, asynccontextmanager, closing
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest
from sqlalchemy import text

from nacre.agent import AgentRun
from nacre.agent.approvals import ApprovalLog
from nacre.errors import StorageError
from nacre.messages import Usage, UserMessage, user_message
from nacre.run_context import RunContext
from nacre.storage import ApprovalRecord, CallRecord, CellRecord, Store, TurnState, open_store
from nacre.tools import ApprovalQueue, ApprovalRequest
from tests.agent.agent_setup import open_agent
from tests.agent.fake_models import HeldAnswer, say
from tests.storage.conftest import PASSWORD_IN_URL
from tests.storage.wires import open_wire

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
    from pathlib import Path

    from sqlalchemy.engine import Connection

    from nacre.storage import TurnRecord
    from nacre.storage.database import Database
    from tests.agent.agent_setup import AgentSetup
    from tests.storage.conftest import PostgresServer
    from tests.storage.wires import Wire

WAITS = "nacre.storage.database._RETRY_WAITS_SECONDS"
BEGINNING, ENDING = b"INSERT INTO nacre_turns", b"UPDATE nacre_turns"
NO_USAGE = Usage()


class Waits:
    """Tells of the first failure, and has the store try again until somebody mends it."""

    def __init__(self) -> None:
        self.failed = anyio.Event()

    def __iter__(self) -> Iterator[float]:
        self.failed.set()
        while True:
            yield 0.01


@pytest.fixture
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a test does not wait for a store that it has broken itself."""
    monkeypatch.setattr(WAITS, (0.01, 0.01))
    monkeypatch.setattr("nacre.agent.transcript._FIRST_WAIT_SECONDS", 0.01)


@asynccontextmanager
async def begun_turn(url: str, *, lock_seconds: float = 0.05) -> AsyncGenerator[Store]:
    async with open_store(url, lock_seconds=lock_seconds) as store:
        await store.add_session(id="s", agent_id="main")
        await store.begin_turn(run_id="r", session_id="s", prompt=None, model="", surface="")
        yield store


@asynccontextmanager
async def wired_world(
    postgres: PostgresServer, folder: Path
) -> AsyncGenerator[tuple[Wire, Store, AgentSetup]]:
    """Agents whose store is behind a wire that can be cut."""
    async with (
        open_wire(postgres.port) as wire,
        open_store(wire_url(wire)) as store,
        open_agent(store=store, folder=folder) as setup,
    ):
        yield wire, store, setup


async def end(store: Store) -> None:
    said = [user_message("hi")]
    await store.end_turn("r", status="completed", messages=said, usage=NO_USAGE)


async def kept(store: Store) -> tuple[str, int]:
    """The status of the turn, and how many messages the session has."""
    turn, session = await store.turn("r"), await store.session("s")
    assert turn is not None and session is not None
    assert session.message_count == len(await store.messages("s"))
    return turn.status, session.message_count


async def ended_turn(store: Store, run_id: str) -> TurnRecord:
    """The row, once it has its final state."""
    with anyio.fail_after(10):
        while True:
            turn = await store.turn(run_id)
            # None if it has not begun.
            if turn is not None and turn.status != "running":
                return turn
            await anyio.lowlevel.checkpoint()


def wire_url(wire: Wire) -> str:
    return f"postgresql://nacre:{PASSWORD_IN_URL}@127.0.0.1:{wire.port}/postgres"


def question(request_id: str) -> ApprovalRequest:
    return ApprovalRequest(
        id=request_id,
        tool_id="t",
        tool_name="t",
        input={},
        reason="",
        context=RunContext(run_id="r"),
        call_id="c",
        parent_id="",
        created=1,
        expires=4e9,
    )


# The store alone.


async def test_a_file_that_is_locked_for_a_while_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = Waits()
    monkeypatch.setattr(WAITS, waits)
    path = tmp_path / "nacre.db"
    async with begun_turn(f"sqlite:///{path}") as store:
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(end, store)
                with anyio.fail_after(5):
                    await waits.failed.wait()
                other.execute("COMMIT")

        assert await kept(store) == ("completed", 1)


async def test_a_file_that_stays_locked_is_given_up_after_a_few_attempts(
    tmp_path: Path, short_waits: None
) -> None:
    path = tmp_path / "nacre.db"
    async with begun_turn(f"sqlite:///{path}") as store:
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StorageError, match="it is locked by another process") as caught:
                await end(store)
            other.execute("COMMIT")

        assert not caught.value.is_uncertain
        assert await kept(store) == ("running", 0)
        await end(store)
        assert await kept(store) == ("completed", 1)


async def test_a_server_whose_disk_is_full_for_a_moment_is_tried_again(
    postgres: PostgresServer, short_waits: None
) -> None:
    def make_trigger() -> None:
        postgres.sql(
            "CREATE SEQUENCE tries;"
            "CREATE FUNCTION fail_once() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            "IF nextval('tries') = 1 THEN RAISE SQLSTATE '53100'; END IF; RETURN NEW; END $$;"
            "CREATE TRIGGER fail_once BEFORE UPDATE ON nacre_turns "
            "FOR EACH ROW EXECUTE FUNCTION fail_once()"
        )

    async with begun_turn(postgres.url()) as store:
        await anyio.to_thread.run_sync(make_trigger)
        await end(store)

        assert await kept(store) == ("completed", 1)
        tries = await anyio.to_thread.run_sync(postgres.sql, "SELECT last_value FROM tries")
        assert tries == "2"


@pytest.mark.parametrize("use", ["read", "begin", "add"])
async def test_reads_and_starts_of_turns_outlast_a_server_that_is_away_for_a_while(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch, use: str
) -> None:
    waits = Waits()
    monkeypatch.setattr(WAITS, waits)
    uses: dict[str, Callable[[Store], Coroutine[None, None, object]]] = {
        "read": lambda store: store.session("s"),
        "begin": lambda store: store.begin_turn(
            run_id="r2", session_id="s", prompt=None, model="", surface=""
        ),
        "add": lambda store: store.add_events("r", "s", [{"kind": "call.started"}]),
    }
    async with open_wire(postgres.port) as wire, begun_turn(wire_url(wire)) as store:
        wire.cut()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(uses[use], store)
            await waits.failed.wait()
            wire.mend()


async def test_a_start_whose_answer_was_lost_is_not_made_twice(
    postgres: PostgresServer, short_waits: None
) -> None:
    async with open_wire(postgres.port) as wire, begun_turn(wire_url(wire)) as store:
        wire.cuts_commit_of = BEGINNING
        await store.begin_turn(run_id="r2", session_id="s", prompt=None, model="", surface="")

        session = await store.session("s")
        assert session is not None and session.turn_count == 2
        assert [turn.run_id for turn in await store.turns("s")] == ["r", "r2"]


CELL: Final = CellRecord(
    id="c",
    session_id="s",
    run_id="r",
    call_id="call",
    scope="[]",
    epoch=1,
    number=1,
    snapshot=b"\0\1",
    data={"a": 1},
)
CALL: Final = CallRecord(request_id=1, tool_id="t", state="started")


@pytest.mark.parametrize("step", ["suspend", "start", "finish", "again", "claim", "delete"])
async def test_a_change_of_a_cell_whose_answer_was_lost_is_made_once(
    postgres: PostgresServer, short_waits: None, step: str
) -> None:
    async with open_wire(postgres.port) as wire, begun_turn(wire_url(wire)) as store:
        cells = store.cells

        async def cut(name: str, mark: bytes, change: Coroutine[None, None, object]) -> object:
            if name == step:
                wire.cuts_commit_of = mark
            result = await change
            assert not wire.cuts_commit_of, "nothing was cut"
            return result

        first = cells.suspend(CELL, ttl_seconds=60, max_per_session=1)
        assert await cut("suspend", b"INSERT INTO nacre_cells", first)
        await cut("start", b"INSERT INTO nacre_cell_calls", cells.start_call("c", CALL, epoch=1))
        finish = cells.finish_call("c", 1, '{"value":1}', epoch=1)
        await cut("finish", b"UPDATE nacre_cell_calls", finish)
        done = replace(CALL, state="done", result='{"value":1}')
        later = replace(CELL, epoch=2, number=2, snapshot=b"new", calls=(done,))
        again = cells.suspend(later, ttl_seconds=60, max_per_session=1)
        assert await cut("again", b"UPDATE nacre_cells", again)
        found = await cells.find("c")
        assert found is not None
        assert (found.epoch, found.snapshot, found.calls) == (2, b"new", (done,))
        assert await cut("claim", b"UPDATE nacre_cells", cells.claim(found)) == 3
        await cut("delete", b"DELETE FROM nacre_cells", cells.delete("c", epoch=3))
        assert await cells.find("c") is None


async def test_an_adoption_of_turns_whose_answer_was_lost_returns_them(
    postgres: PostgresServer, short_waits: None
) -> None:
    async with open_store(postgres.url()) as gone:
        await gone.add_session(id="s", agent_id="main")
        await gone.begin_turn(run_id="r", session_id="s", prompt=None, model="", surface="")
        state = TurnState(run_id="r", session_id="s", version=1, data={"a": 1})
        await gone.cells.put_turn_state(state)
    async with open_wire(postgres.port) as wire, open_store(wire_url(wire)) as store:
        wire.cuts_commit_of = b"UPDATE nacre_turns"
        (adopted,) = await store.cells.adopt_turns()
        assert not wire.cuts_commit_of
        assert (adopted.run_id, adopted.data) == ("r", {"a": 1})
        assert await store.cells.adopt_turns() == []


async def test_a_server_that_is_away_for_a_while_is_tried_again(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = Waits()
    monkeypatch.setattr(WAITS, waits)
    async with open_wire(postgres.port) as wire, begun_turn(wire_url(wire)) as store:
        wire.cut()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(end, store)
            with anyio.fail_after(5):
                await waits.failed.wait()
            wire.mend()

        assert await kept(store) == ("completed", 1)


async def test_an_answered_approval_outlasts_a_server_that_is_away_for_a_while(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = Waits()
    monkeypatch.setattr(WAITS, waits)
    asked = ApprovalRecord(
        id="a",
        session_id="s",
        run_id="r",
        tool_id="t",
        tool_name="t",
        input={},
        created=1,
        expires=2,
    )
    async with open_wire(postgres.port) as wire, begun_turn(wire_url(wire)) as store:
        await store.approvals.put(asked)
        wire.cut()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(store.approvals.put, replace(asked, state="allowed"))
            with anyio.fail_after(5):
                await waits.failed.wait()
            wire.mend()

        (found,) = await store.approvals.find_all()
        assert found.state == "allowed"


async def test_a_connection_that_is_lost_before_the_commit_costs_no_turn(
    postgres: PostgresServer,
) -> None:
    async with open_wire(postgres.port) as wire, open_store(wire_url(wire)) as store:
        await store.add_session(id="s", agent_id="main")
        wire.cuts_at = BEGINNING
        await store.begin_turn(run_id="r", session_id="s", prompt=None, model="", surface="")
        assert not wire.cuts_at
        wire.cuts_at = b"FROM nacre_turns"
        turn = await store.turn("r")
        assert not wire.cuts_at
        assert turn is not None and turn.status == "running"


async def test_a_commit_whose_answer_was_lost_is_not_made_twice(
    postgres: PostgresServer, short_waits: None
) -> None:
    async with open_wire(postgres.port) as wire, begun_turn(wire_url(wire)) as store:
        wire.cuts_commit_of = ENDING
        await end(store)

        assert not wire.cuts_commit_of
        assert await kept(store) == ("completed", 1)


async def test_whether_a_commit_took_place_is_not_claimed_where_it_is_not_known(
    postgres: PostgresServer, short_waits: None
) -> None:
    async with open_wire(postgres.port) as wire, begun_turn(wire_url(wire)) as store:
        wire.cuts_commit_of, wire.mends_by_itself = ENDING, False
        with pytest.raises(StorageError) as caught:
            await end(store)
        wire.mend()

        assert caught.value.is_uncertain
        assert await kept(store) == ("completed", 1)


async def test_a_server_that_is_gone_before_the_commit_has_certainly_kept_nothing(
    postgres: PostgresServer, short_waits: None
) -> None:
    async with open_wire(postgres.port) as wire, begun_turn(wire_url(wire)) as store:
        wire.cut()
        with pytest.raises(StorageError) as caught:
            await end(store)
        wire.mend()

        assert not caught.value.is_uncertain
        assert await kept(store) == ("running", 0)


async def test_turns_do_not_wait_one_after_the_other_for_a_server_that_is_silent(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nacre.storage.postgres._CONNECT_SECONDS", 0.5)
    monkeypatch.setattr(WAITS, ())
    failed: list[StorageError] = []

    async def begin(number: int) -> None:
        with pytest.raises(StorageError) as caught:
            await store.begin_turn(
                run_id=f"r{number}", session_id="s", prompt=None, model="", surface=""
            )
        failed.append(caught.value)

    async with open_wire(postgres.port) as wire, open_store(wire_url(wire)) as store:
        await store.add_session(id="s", agent_id="main")
        wire.cut()
        with pytest.raises(StorageError):
            await store.session("s")
        wire.is_silent, count_before = True, wire.connection_count
        async with anyio.create_task_group() as tasks:
            for number in range(8):
                tasks.start_soon(begin, number)

        assert len(failed) == 8
        # Who waited while another tried in vain does not try as well.
        assert wire.connection_count - count_before == 1


async def test_a_burst_of_transactions_is_no_reason_to_give_up_a_server_that_responds(
    postgres: PostgresServer, short_waits: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One after the other, they take longer than one may take.
    monkeypatch.setattr("nacre.storage.postgres._CONNECTIONS", 1)
    monkeypatch.setattr("nacre.storage.postgres._TRANSACTION_SECONDS", 2.0)
    ended = 0

    def work(connection: Connection) -> None:
        nonlocal ended
        connection.execute(text("SELECT pg_sleep(0.2)"))
        ended += 1

    async with open_store(postgres.url()) as store:
        database: Database = vars(store)["_database"]
        async with anyio.create_task_group() as tasks:
            for _ in range(15):
                tasks.start_soon(database.read, work)

    assert ended == 15


# A whole turn.


async def test_a_turn_that_cannot_be_kept_fails_and_its_session_goes_on_from_the_one_before(
    tmp_path: Path, short_waits: None
) -> None:
    path = tmp_path / "nacre.db"
    async with (
        open_store(f"sqlite:///{path}", lock_seconds=0.05) as store,
        open_agent(store=store, folder=tmp_path) as setup,
    ):
        answer = HeldAnswer(say("two"))
        setup.model.will(say("one"), answer, say("three"))
        await setup.turn("1", session_key="chat")
        run = await setup.start("2", session_key="chat")
        await answer.asked.wait()
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            answer.release.set()
            with anyio.fail_after(5):
                result = await run.wait()
            open_turn = await store.turn(run.id)
            other.execute("COMMIT")

        assert (run.state, result.text, result.error_code) == ("failed", "two", "storage_failed")
        assert result.error.startswith("the turn is not kept: ")
        told = run.events.events[-1]
        assert (told.kind, told.data["errorCode"]) == ("run.failed", "storage_failed")
        assert open_turn is not None and open_turn.status == "running"

        turn = await ended_turn(store, run.id)
        assert (turn.status, turn.error, turn.usage) == ("failed", result.error, result.usage)
        assert turn.data["errorCode"] == "storage_failed"

        await setup.turn("3", session_key="chat")
        read = [getattr(message, "text", "") for message in setup.model.requests[-1].messages]
        assert read == ["1", "one", "3"]
        assert [it.status for it in await store.turns(run.session_id)] == [
            "completed",
            "failed",
            "completed",
        ]


async def test_a_turn_that_the_disk_has_no_room_for_is_noted_as_soon_as_a_small_write_is_possible(
    tmp_path: Path, short_waits: None
) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    async with (
        open_store(f"sqlite:///{tmp_path}/nacre.db") as store,
        open_agent(store=store, folder=tmp_path) as setup,
    ):
        answer = HeldAnswer(say("x" * 4_000_000))
        setup.model.will(answer, say("fine"))
        run = await setup.start("1", session_key="chat")
        await answer.asked.wait()
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, hard))
        try:
            answer.release.set()
            with anyio.fail_after(5):
                result = await run.wait()
            turn = await ended_turn(store, run.id)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))

        assert result.error_code == "storage_failed"
        assert "full" in result.error
        assert (turn.status, turn.error) == ("failed", result.error)
        assert (await setup.turn("2", session_key="chat")).state == "completed"
        assert [getattr(it, "text", "") for it in await setup.kept(run.session_id)] == ["2", "fine"]


async def test_turns_of_a_server_that_was_away_are_noted_when_it_is_back(
    postgres: PostgresServer, tmp_path: Path, short_waits: None
) -> None:
    async with wired_world(postgres, tmp_path) as (wire, store, setup):
        answers = [HeldAnswer(say(text)) for text in ("one", "two")]
        setup.model.will(*answers, say("fine"))
        runs = [await setup.start("hi", session_key=key) for key in ("a", "b")]
        for answer in answers:
            await answer.asked.wait()
        wire.cut()
        for answer in answers:
            answer.release.set()
        with anyio.fail_after(20):
            results = [await run.wait() for run in runs]
        wire.mend()

        assert [result.error_code for result in results] == ["storage_failed", "storage_failed"]
        assert PASSWORD_IN_URL not in results[0].error
        for run in runs:
            assert (await ended_turn(store, run.id)).status == "failed"
        assert (await setup.turn("again", session_key="a")).state == "completed"
        read = [getattr(message, "text", "") for message in setup.model.requests[-1].messages]
        assert read == ["again"]


async def test_a_turn_that_was_kept_after_all_stays_as_it_is(
    postgres: PostgresServer, tmp_path: Path, short_waits: None
) -> None:
    async with wired_world(postgres, tmp_path) as (wire, store, setup):
        answer = HeldAnswer(say("one"))
        setup.model.will(answer)
        run = await setup.start("hi", session_key="a")
        await answer.asked.wait()
        wire.cuts_commit_of, wire.mends_by_itself = ENDING, False
        answer.release.set()
        with anyio.fail_after(20):
            result = await run.wait()
        wire.mend()

        assert (run.state, result.error_code) == ("failed", "storage_failed")
        assert result.error.startswith("whether the turn is kept is not known: ")
        assert (await ended_turn(store, run.id)).status == "completed"
        assert [getattr(it, "text", "") for it in await setup.kept(run.session_id)] == ["hi", "one"]


async def test_a_turn_that_was_begun_though_the_answer_was_lost_is_ended(
    postgres: PostgresServer, tmp_path: Path, short_waits: None
) -> None:
    async with wired_world(postgres, tmp_path) as (wire, store, setup):
        wire.cuts_commit_of, wire.mends_by_itself = BEGINNING, False
        run = await setup.start("hi", session_key="a")
        result = await run.wait()
        wire.mend()

        assert (run.state, result.error_code) == ("failed", "storage_failed")
        turn = await ended_turn(store, run.id)
        assert (turn.status, turn.data["errorCode"]) == ("failed", "storage_failed")


async def test_whoever_aborts_a_turn_that_could_not_be_begun_is_told_that_it_is_not_kept(
    tmp_path: Path, short_waits: None
) -> None:
    path = tmp_path / "nacre.db"
    async with (
        open_store(f"sqlite:///{path}", lock_seconds=0.05) as store,
        open_agent(store=store, folder=tmp_path) as setup,
    ):
        await store.add_session(id="s", agent_id="main")
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            run = await setup.start("hi", session_id="s")
            with anyio.fail_after(20):
                assert await run.abort("enough")
                result = await run.wait()
            other.execute("COMMIT")

        assert (run.state, result.error_code) == ("failed", "storage_failed")
        assert result.error.startswith("enough; the turn is not kept: ")
        assert await store.turn(run.id) is None


async def test_a_turn_that_breaks_inside_of_nacre_does_not_stay_open(
    tmp_path: Path, short_waits: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(*_: object, **__: object) -> None:
        raise RuntimeError("a bug")

    async with (
        open_store(f"sqlite:///{tmp_path}/nacre.db") as store,
        open_agent(store=store, folder=tmp_path) as setup,
    ):
        monkeypatch.setattr("nacre.agent.turn.repair_history", breaks)
        setup.model.will(say("one"))
        run = await setup.turn("hi")

        turn = await ended_turn(store, run.id)
        assert (turn.status, turn.error) == ("failed", "the run broke inside of Nacre")


async def test_closing_tries_a_file_that_is_locked_once_for_all_messages_that_wait(
    tmp_path: Path, short_waits: None
) -> None:
    path = tmp_path / "nacre.db"
    async with (
        open_store(f"sqlite:///{path}", lock_seconds=0.05) as store,
        open_agent(store=store, folder=tmp_path) as setup,
    ):
        running, waiting = await start_with_messages_behind(setup)
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with anyio.fail_after(20):
                await setup.service.aclose()
            other.execute("COMMIT")

        assert running.result is not None and running.result.error_code == "storage_failed"
        assert [run.state for run in waiting] == ["aborted"] * 3
        for run in waiting:
            assert run.result is not None and "the message is not kept" in run.result.error


async def test_messages_behind_a_turn_survive_closing_while_the_server_is_away(
    postgres: PostgresServer, tmp_path: Path, short_waits: None
) -> None:
    async with wired_world(postgres, tmp_path) as (wire, _, setup):
        running, waiting = await start_with_messages_behind(setup)
        wire.cut()
        with anyio.fail_after(20):
            await setup.service.aclose()
        wire.mend()
        assert running.result is not None and running.result.error_code == "storage_failed"
        assert all(run.is_detached and run.result is not None for run in waiting)

    async with (
        open_store(postgres.url()) as store,
        open_agent(store=store, folder=tmp_path) as setup,
    ):
        setup.model.will(say("zero"), say("one"), say("two"))
        assert await setup.service.continue_turns() == []
        for number, run in enumerate(waiting):
            turn = await ended_turn(store, run.id)
            prompt, _ = await store.messages_of_turns(turn.session_id, [run.id])
            assert isinstance(prompt.message, UserMessage)
            assert (turn.status, prompt.message.text) == ("completed", str(number))
        interrupted = await store.turn(running.id)
        assert interrupted is not None and interrupted.status == "interrupted"


async def start_with_messages_behind(setup: AgentSetup) -> tuple[AgentRun, list[AgentRun]]:
    """Start a turn whose model does not answer, and three messages that wait for it."""
    answer = HeldAnswer(say("one"))
    setup.model.will(answer)
    running = await setup.start("hi", session_key="a")
    await answer.asked.wait()
    waiting = [
        await setup.start(str(number), session_key="a", queue_mode="followup")
        for number in range(3)
    ]
    return running, waiting


async def test_closing_tries_a_store_that_is_away_once_for_all_approvals(
    postgres: PostgresServer, short_waits: None, caplog: pytest.LogCaptureFixture
) -> None:
    queue, run = ApprovalQueue(), AgentRun(id="r", session_id="s", agent_id="main")
    async with (
        open_wire(postgres.port) as wire,
        begun_turn(wire_url(wire)) as store,
        anyio.create_task_group() as tasks,
    ):
        log = ApprovalLog(queue, store=store, run_of=lambda _: run, tasks=tasks)
        for number in range(4):
            with queue.open_request(question(f"q{number}")):
                pass
        log.close()
        wire.cut()
        with anyio.fail_after(20):
            await log.write()
        wire.mend()

        first, *others = caplog.messages
        assert first.startswith("8 approvals cannot be stored: ")
        assert others[:2] == [
            "the approval q0 (open) is not kept",
            "the approval q0 (given_up) is not kept",
        ]
        assert len(others) == 8


async def test_an_approval_that_cannot_be_stored_does_not_take_others_with_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    queue, run = ApprovalQueue(), AgentRun(id="r", session_id="s", agent_id="main")
    async with (
        open_store(f"sqlite:///{tmp_path}/nacre.db") as store,
        anyio.create_task_group() as tasks,
    ):
        log = ApprovalLog(queue, store=store, run_of=lambda _: run, tasks=tasks)
        with ExitStack() as stack:
            for request_id in ("first", "bad\0", "last"):
                stack.enter_context(queue.open_request(question(request_id)))
            tasks.start_soon(log.write)
            with anyio.fail_after(30):
                await log.settle()
            stored = await store.approvals.find_all()
            assert {record.id for record in stored} == {"first", "last"}
        log.close()
    assert "the approval bad\0 (open) is not kept" in caplog.messages


async def test_a_service_can_be_closed_while_the_store_is_away(
    postgres: PostgresServer, tmp_path: Path, short_waits: None
) -> None:
    async with open_wire(postgres.port) as wire, open_store(wire_url(wire)) as store:
        async with open_agent(store=store, folder=tmp_path) as setup:
            answer = HeldAnswer(say("one"))
            setup.model.will(answer)
            run = await setup.start("hi", session_key="a")
            await answer.asked.wait()
            wire.cut()
            answer.release.set()
            with anyio.fail_after(20):
                await run.wait()
                await setup.service.aclose()
        wire.mend()

    async with (
        open_store(postgres.url()) as store,
        open_agent(store=store, folder=tmp_path) as setup,
    ):
        assert await setup.service.continue_turns() == []
        assert (await ended_turn(store, run.id)).status == "interrupted"


async def test_a_server_that_freezes_does_not_hold_up_closing(
    postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in ("postgres._TRANSACTION_SECONDS", "database._CLOSE_SECONDS"):
        monkeypatch.setattr(f"nacre.storage.{limit}", 0.3)
    # Without these limits, closing would wait for the time limit of a query, which is 30 seconds.
    with anyio.fail_after(25):
        async with wired_world(postgres, tmp_path) as (wire, _, setup):
            answer = HeldAnswer(say("one"))
            setup.model.will(answer)
            run = await setup.start("hi")
            await answer.asked.wait()
            wire.is_frozen = True

    assert run.result is not None and run.result.error_code == "storage_failed"
