"""Migrations create the tables that queries expect, in one transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio.to_thread
import pytest
from sqlalchemy import inspect

from nacre.errors import StorageError
from nacre.storage import open_store
from nacre.storage.database import FAULTS, ServerLocation, open_database, parse_storage_url
from nacre.storage.postgres import ServerTransactions, server_engine
from nacre.storage.schema import STEPS, metadata, migrate
from nacre.storage.sqlite import SqliteTransactions, file_engine

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from sqlalchemy.engine import Connection

    from nacre.storage.database import Transactions
    from tests.storage.conftest import PostgresServer


@pytest.fixture(params=["file", "postgres"])
async def database(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncGenerator[SqliteTransactions | ServerTransactions]:
    if request.param == "file":
        engine = await anyio.to_thread.run_sync(
            lambda: file_engine(tmp_path / "nacre.db", lock_seconds=5)
        )
        transactions = SqliteTransactions(engine, is_shared=False)
    else:
        server: PostgresServer = request.getfixturevalue("postgres")
        place = parse_storage_url(server.url())
        assert isinstance(place, ServerLocation)
        transactions = ServerTransactions(server_engine(place))
    yield transactions
    await transactions.close()


def version_in(connection: Connection) -> list[int]:
    return list(connection.exec_driver_sql("SELECT version FROM nacre_schema").scalars())


async def test_the_steps_make_the_tables_that_queries_expect(database: Transactions) -> None:
    def columns(connection: Connection) -> dict[str, dict[str, bool]]:
        migrate(connection, "it")
        made = inspect(connection)
        return {
            name: {it["name"]: it["nullable"] for it in made.get_columns(name)}
            for name in made.get_table_names()
            # FTS5 has tables of its own.
            if name != "nacre_schema" and not name.startswith("nacre_search_words")
        }

    assert await database.write(columns) == {
        table.name: {it.name: bool(it.nullable) for it in table.columns}
        for table in metadata.sorted_tables
    }


async def test_a_database_is_brought_from_any_version_to_the_newest_once(
    database: Transactions,
) -> None:
    more = (*STEPS, ("CREATE TABLE nacre_two (a TEXT)",), ("ALTER TABLE nacre_two ADD b TEXT",))

    await database.write(lambda it: migrate(it, "it"))
    assert await database.read(version_in) == [len(STEPS)]
    for _ in range(2):
        await database.write(lambda it: migrate(it, "it", more))

    assert await database.read(version_in) == [len(more)]
    await database.write(lambda it: it.exec_driver_sql("INSERT INTO nacre_two (b) VALUES ('x')"))


async def test_a_step_that_fails_leaves_everything_as_it_was(database: Transactions) -> None:
    await database.write(lambda it: migrate(it, "it"))
    broken = (*STEPS, ("CREATE TABLE nacre_two (a TEXT)",), ("ALTER TABLE nacre_none ADD b TEXT",))

    with pytest.raises(FAULTS, match="nacre_none"):
        await database.write(lambda it: migrate(it, "it", broken))

    assert await database.read(version_in) == [len(STEPS)]
    names = await database.read(lambda it: inspect(it).get_table_names())
    assert "nacre_two" not in names


async def test_a_database_of_a_newer_version_is_refused(shared_url: str) -> None:
    newer = tuple(("SELECT 1",) for _ in range(99))
    async with open_database(shared_url, lock_seconds=5) as database:
        await database.write(lambda it: migrate(it, "it", newer))

    with pytest.raises(StorageError, match=r"the database .* has schema version 99, but this"):
        async with open_store(shared_url):
            pass
