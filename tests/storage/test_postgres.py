"""PostgreSQL: URLs, logins, faults without passwords, and several gateways on one database."""

from __future__ import annotations

import logging
import socket
from typing import TYPE_CHECKING

import anyio
import pytest

from nacre.errors import StorageError
from nacre.messages import Usage, user_message
from nacre.storage import Store, open_store
from tests.storage.conftest import (
    PASSWORD,
    PASSWORD_IN_URL,
    packaged_programs,
    run_server,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.storage.conftest import PostgresServer


async def failure_of(url: str) -> str:
    with pytest.raises(StorageError) as caught:
        async with open_store(url):
            pass
    return str(caught.value)


async def test_a_password_and_the_options_of_libpq_are_understood(postgres: PostgresServer) -> None:
    url = f"{postgres.url_with_password()}?sslmode=prefer&application_name=reef"
    async with open_store(url.replace("postgresql:", "postgres:")) as store:
        await store.add_session(id="s", agent_id="main")
        assert store.address == f"postgresql://nacre:***@127.0.0.1:{postgres.port}/postgres"
        query = "SELECT count(*) > 0 FROM pg_stat_activity WHERE application_name = 'reef'"
        assert await anyio.to_thread.run_sync(postgres.sql, query) == "t"


async def test_a_refused_login_says_so_without_the_password(
    postgres: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        failure = await failure_of(postgres.url_with_password("hunter2%40reef"))

    assert "the server refused the login; check the user and the password" in failure
    assert "hunter2" not in failure + caplog.text


async def test_a_database_that_is_not_there_is_named(postgres: PostgresServer) -> None:
    failure = await failure_of(postgres.url("atlantis"))

    assert "postgresql://nacre@/atlantis failed: the server has no database with this" in failure


async def test_a_server_that_is_not_there_is_named_without_the_password() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        failure = await failure_of(f"postgresql://ada:{PASSWORD_IN_URL}@127.0.0.1:{port}/reef")

    assert f"postgresql://ada:***@127.0.0.1:{port}/reef failed: it cannot be reached" in failure
    assert PASSWORD not in failure
    assert PASSWORD_IN_URL not in failure


async def test_a_host_that_nobody_knows_is_named() -> None:
    failure = await failure_of("postgresql://ada@nowhere.invalid/reef")

    assert "postgresql://ada@nowhere.invalid/reef failed: it cannot be reached" in failure


async def test_a_user_without_rights_is_told_which(postgres: PostgresServer) -> None:
    def make_user() -> None:
        postgres.sql("DROP ROLE IF EXISTS guest; CREATE ROLE guest LOGIN")

    await anyio.to_thread.run_sync(make_user)

    failure = await failure_of(postgres.url().replace("nacre@", "guest@"))

    assert "permission denied; grant the user the right to create tables" in failure


async def test_two_gateways_number_the_messages_of_one_session_without_gaps(
    postgres: PostgresServer,
) -> None:
    url = postgres.url()
    async with open_store(url) as one, open_store(url) as other:
        await one.add_session(id="s", agent_id="main")

        async def turn(store: Store, run_id: str) -> None:
            await store.begin_turn(run_id=run_id, session_id="s", prompt=None, model="", surface="")
            said = [user_message(f"{run_id} {i}") for i in range(3)]
            await store.end_turn(run_id, status="completed", messages=said, usage=Usage())

        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                for number in range(30):
                    tasks.start_soon(turn, (one, other)[number % 2], f"r{number}")

        stored = await other.messages("s")
        assert [it.sequence for it in stored] == list(range(90))
        session = await other.session("s")
        assert session is not None
        assert (session.turn_count, session.message_count) == (30, 90)


async def test_gateways_that_open_an_empty_database_at_once_all_succeed(
    postgres: PostgresServer,
) -> None:
    opened: list[int] = []

    async def open_one(number: int) -> None:
        async with open_store(postgres.url()) as store:
            await store.add_session(id=f"s{number}", agent_id="main")
            opened.append(number)

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            for number in range(4):
                tasks.start_soon(open_one, number)

    assert sorted(opened) == [0, 1, 2, 3]


async def test_a_transaction_that_others_got_in_the_way_of_is_tried_again(
    postgres: PostgresServer,
) -> None:
    # The first insert fails as one of two in a deadlock would.
    def make_trigger() -> None:
        postgres.sql(
            "CREATE SEQUENCE tries;"
            "CREATE FUNCTION fail_once() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            "IF nextval('tries') = 1 THEN RAISE SQLSTATE '40P01'; END IF; RETURN NEW; END $$;"
            "CREATE TRIGGER fail_once BEFORE INSERT ON nacre_sessions "
            "FOR EACH ROW EXECUTE FUNCTION fail_once()"
        )

    async with open_store(postgres.url()) as store:
        await anyio.to_thread.run_sync(make_trigger)

        await store.add_session(id="s", agent_id="main")

        tries = await anyio.to_thread.run_sync(postgres.sql, "SELECT last_value FROM tries")
        assert tries == "2"


async def drop_connections(postgres: PostgresServer) -> None:
    """What a server does that is started anew."""
    ours = "FROM pg_stat_activity WHERE application_name = 'nacre'"
    # Waits until they are gone.
    dropping = f"SELECT pg_terminate_backend(pid, 5000) {ours}"
    await anyio.to_thread.run_sync(postgres.sql, dropping)


async def test_a_connection_that_the_server_dropped_is_replaced(postgres: PostgresServer) -> None:
    async with open_store(postgres.url()) as store:
        await store.add_session(id="s", agent_id="main")
        await drop_connections(postgres)

        assert await store.session("s") is not None


async def test_turns_that_begin_after_the_server_dropped_all_are_still_known_for_ours(
    postgres: PostgresServer,
) -> None:
    async with open_store(postgres.url()) as store, open_store(postgres.url()) as other:
        await store.add_session(id="s", agent_id="main")
        await drop_connections(postgres)
        await store.begin_turn(run_id="r", session_id="s", prompt=None, model="", surface="")

        assert await other.interrupt_open_turns() == 0

        turn = await store.turn("r")
        assert turn is not None and turn.status == "running"


@pytest.fixture
def packaged_server() -> Iterator[PostgresServer]:
    with run_server(packaged_programs()) as server:
        yield server


async def test_the_server_of_the_package_serves_where_none_is_installed(
    packaged_server: PostgresServer,
) -> None:
    async with open_store(packaged_server.url()) as store:
        await store.add_session(id="s", agent_id="main")
        assert await store.session("s") is not None
