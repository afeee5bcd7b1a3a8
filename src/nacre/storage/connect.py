"""Opens a database by its URL, creates its tables, and closes it."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, assert_never

import anyio
import anyio.to_thread

from nacre.storage.database import (
    Database,
    FileLocation,
    MemoryLocation,
    ServerLocation,
    faults_of,
    parse_storage_url,
)
from nacre.storage.ownership import ServerOwnership, SoleOwnership, file_ownership
from nacre.storage.postgres import ServerTransactions, lock_schema, server_engine
from nacre.storage.schema import migrate
from nacre.storage.sqlite import (
    SqliteTransactions,
    file_engine,
    make_private_file,
    memory_engine,
    refuse_foreign_file,
    use_wal,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from contextlib import AbstractAsyncContextManager

    from sqlalchemy.engine import Connection, Engine

    from nacre.storage.database import Place
    from nacre.storage.ownership import Ownership


_CLOSE_SECONDS: Final = 10.0


@asynccontextmanager
async def open_database(url: str, *, lock_seconds: float) -> AsyncGenerator[Database]:
    """Raises StorageError for whatever keeps it from being opened."""
    place = await anyio.to_thread.run_sync(parse_storage_url, url)
    async with _open(place, lock_seconds) as database:
        yield database


def _open(place: Place, lock_seconds: float) -> AbstractAsyncContextManager[Database]:
    match place:
        case MemoryLocation():
            return _open_memory(place)
        case FileLocation():
            return _open_file(place, lock_seconds)
        case ServerLocation():
            return _open_server(place)
        case _:
            assert_never(place)


@asynccontextmanager
async def _open_memory(place: MemoryLocation) -> AsyncGenerator[Database]:
    transactions = SqliteTransactions(memory_engine(), is_shared=True)
    async with _closing(transactions):
        await transactions.write(lambda connection: migrate(connection, place.shown))
        yield Database(transactions, place, SoleOwnership())


@asynccontextmanager
async def _open_file(place: FileLocation, lock_seconds: float) -> AsyncGenerator[Database]:
    def make_file() -> Engine:
        make_private_file(place.path)
        return file_engine(place.path, lock_seconds=lock_seconds)

    def switch_mode() -> None:
        use_wal(engine, place.path, lock_seconds=lock_seconds)

    def prepare(connection: Connection) -> None:
        refuse_foreign_file(connection, place.path)
        migrate(connection, place.shown)

    engine = await anyio.to_thread.run_sync(make_file)
    transactions = SqliteTransactions(engine, is_shared=False)
    async with _closing(transactions):
        with faults_of(place):
            await anyio.to_thread.run_sync(switch_mode)
            await transactions.write(prepare)
            ownership = await transactions.write(lambda _: file_ownership(place.path))
        async with _releasing(ownership):
            yield Database(transactions, place, ownership)


@asynccontextmanager
async def _open_server(place: ServerLocation) -> AsyncGenerator[Database]:
    def prepare(connection: Connection) -> None:
        lock_schema(connection)
        migrate(connection, place.shown)

    engine = await anyio.to_thread.run_sync(server_engine, place)
    transactions = ServerTransactions(engine)
    async with _closing(transactions):
        with faults_of(place):
            await transactions.write(prepare)
            ownership = await ServerOwnership.take(engine)
        async with _releasing(ownership):
            yield Database(transactions, place, ownership)


# A server that does not answer must not keep anybody from leaving.
@asynccontextmanager
async def _closing(transactions: SqliteTransactions | ServerTransactions) -> AsyncGenerator[None]:
    try:
        yield
    finally:
        with anyio.move_on_after(_CLOSE_SECONDS, shield=True):
            await transactions.close()


@asynccontextmanager
async def _releasing(ownership: Ownership) -> AsyncGenerator[None]:
    try:
        yield
    finally:
        with anyio.move_on_after(_CLOSE_SECONDS, shield=True):
            await ownership.release()
