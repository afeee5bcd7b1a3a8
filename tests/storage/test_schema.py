"""Migrations create the tables that queries expect, in one transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import anyio.to_thread
import pytest
from sqlalchemy import inspect, text

from nacre.errors import StorageError
from nacre.json_types import encode_json
from nacre.messages import message_to_json, user_message
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


# In the order of their references.
_FIRST_TABLES: Final = ("sessions", "turns", "messages", "compactions", "approvals")
_TABLES: Final = {
    1: tuple(f"nacre_{name}" for name in _FIRST_TABLES),
    8: tuple(f"nacre_{name}" for name in (*_FIRST_TABLES, "media", "threads", "values", "uploads")),
}
_NUMBERS: Final = ("count", "tokens", "number", "sequence", "size")
_TIMES: Final = ("created", "updated", "started", "ended", "expires", "answered")


def _value_of(column: str, table: str) -> object:
    match column:
        case "content":
            return encode_json(message_to_json(user_message("a pearl"))).decode()
        case "id" | "session_id" if table == "nacre_sessions" or column == "session_id":
            return "s"
        case "data" if table in ("nacre_media", "nacre_uploads"):
            return b"\x00pearl"
        case _ if column.endswith(_NUMBERS):
            return 7
        case _ if column in _TIMES:
            return 1.5
        case _:
            return "r" if column == "run_id" else f"a {column}"


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


# The first version, and the last one before cells were stored.
@pytest.mark.parametrize("version", [1, 8])
async def test_the_rows_of_an_older_version_are_the_same_after_the_migration(
    database: Transactions, version: int
) -> None:
    rows: dict[str, dict[str, object]] = {}

    def fill(connection: Connection) -> None:
        migrate(connection, "it", STEPS[:version])
        made = inspect(connection)
        for name in _TABLES[version]:
            row = {it["name"]: _value_of(it["name"], name) for it in made.get_columns(name)}
            places = ", ".join(f":{column}" for column in row)
            insert = f"INSERT INTO {name} ({', '.join(row)}) VALUES ({places})"
            connection.execute(text(insert), row)
            rows[name] = row

    def read(connection: Connection) -> dict[str, dict[str, object]]:
        queries = {name: f"SELECT {', '.join(row)} FROM {name}" for name, row in rows.items()}
        return {
            name: dict(connection.execute(text(query)).mappings().one())
            for name, query in queries.items()
        }

    await database.write(fill)
    await database.write(lambda it: migrate(it, "it"))
    assert await database.read(read) == rows


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
