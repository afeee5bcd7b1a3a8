"""SQLite databases: a private file in WAL mode, used from threads.

Each transaction runs in a thread as a whole. An async driver would switch threads for every
statement, cursor and fetch: about seventeen times per transaction.
"""

from __future__ import annotations

import glob
import os
import shutil
import sqlite3
import sys
import time
from contextlib import closing, nullcontext, suppress
from typing import TYPE_CHECKING, Final, TypeVar

import anyio
import anyio.to_thread
from sqlalchemy import URL, create_engine, event
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import StaticPool

from nacre.errors import StorageError
from nacre.private_files import create_private

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from sqlalchemy.engine import Connection, Engine
    from sqlalchemy.engine.interfaces import DBAPIConnection

_Result = TypeVar("_Result")

# One connection writes, the others read.
_CONNECTIONS: Final = 4
_OWNER_BYTES: Final = 8
_RETRY_SECONDS: Final = 0.05
# How long a check waits for a lock. A write of our own takes less.
_CHECK_SECONDS: Final = 2.0
_BEGIN_OPTION: Final = "nacre_begin"
_CONNECTION_SETTINGS: Final = (
    "PRAGMA foreign_keys = ON",
    # In WAL mode, a killed process loses no commits. For power cuts, see docs/sessions.md.
    "PRAGMA synchronous = NORMAL",
)


class SqliteTransactions:
    """Transactions on an SQLite file: one writer at a time, and several readers."""

    def __init__(self, engine: Engine, *, is_shared: bool) -> None:
        self._reader = engine
        # The write lock is taken at the start. A transaction that reads first and then writes
        # fails if another process wrote in between.
        self._writer = engine.execution_options(**{_BEGIN_OPTION: "BEGIN IMMEDIATE"})
        self._write_turn = anyio.Lock()
        # A shared connection can have only one transaction at a time.
        self._read_turn = self._write_turn if is_shared else nullcontext()
        self._threads = anyio.CapacityLimiter(_CONNECTIONS)

    async def read(self, work: Callable[[Connection], _Result]) -> _Result:
        async with self._read_turn:
            return await self._in_thread(lambda: _in_transaction(self._reader, work))

    async def write(self, work: Callable[[Connection], _Result]) -> _Result:
        async with self._write_turn:
            return await self._in_thread(lambda: _in_transaction(self._writer, work))

    async def _in_thread(self, function: Callable[[], _Result]) -> _Result:
        # Waits for the thread even if the caller is cancelled.
        return await anyio.to_thread.run_sync(function, limiter=self._threads)

    async def close(self) -> None:
        """Close all connections; closing the last one merges the WAL into the file."""
        await anyio.to_thread.run_sync(self._reader.dispose)


def memory_engine() -> Engine:
    return _add_listeners(
        create_engine(
            "sqlite:///:memory:",
            connect_args={"isolation_level": None, "check_same_thread": False},
            hide_parameters=True,
            poolclass=StaticPool,
        )
    )


def file_engine(path: Path, *, lock_seconds: float) -> Engine:
    return _add_listeners(
        create_engine(
            URL.create("sqlite", database=str(path)),
            # `_begin` starts the transactions, not the driver.
            connect_args={"isolation_level": None, "timeout": lock_seconds},
            hide_parameters=True,
            pool_size=_CONNECTIONS,
            max_overflow=0,
        )
    )


def make_private_file(path: Path) -> None:
    """Create the file and its directory, readable by their owner only, if missing. Blocks."""
    try:
        create_private(path)
    except OSError as error:
        raise StorageError(
            f"the database {path} cannot be created or opened: {error.strerror} "
            f"({error.filename}); check the path in `storage.url` and its permissions"
        ) from error


def use_wal(engine: Engine, path: Path, *, lock_seconds: float) -> None:
    """Switch the file to WAL mode: readers do not wait for the writer. Blocks.

    The mode is stored in the file. If two processes switch at once, one gets "locked" and retries.
    """
    deadline = time.monotonic() + lock_seconds
    while (mode := _wal_mode(engine, deadline)) is None:
        time.sleep(_RETRY_SECONDS)
    if mode != "wal":
        raise StorageError(
            f"the database {path} is on a file system that does not support SQLite's WAL mode, "
            "such as a network drive; put it on a local disk, or use PostgreSQL"
        )


def refuse_foreign_file(connection: Connection, path: Path) -> None:
    """Raise StorageError if the file is the database of another program."""
    names = connection.exec_driver_sql(
        r"SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'nacre\_%' "
        r"ESCAPE '\' AND name NOT LIKE 'sqlite\_%' ESCAPE '\' LIMIT 1"
    )
    if (name := names.scalar()) is not None:
        raise StorageError(
            f"the database {path} belongs to another program: it has a table {name!r}; "
            "choose another file in `storage.url`"
        )


def check_writable(path: Path, *, min_free_bytes: int) -> None:
    """Raise an error if the file is missing or locked, or its disk is almost full. Blocks."""
    free_bytes = shutil.disk_usage(path.parent).free
    if free_bytes < min_free_bytes:
        raise StorageError(
            f"the disk of the database {path} is full: {free_bytes} bytes are free, "
            f"{min_free_bytes} are needed; make room"
        )
    # A connection of its own: the others still have the old file if somebody replaced it.
    uri = f"{path.as_uri()}?mode=rw"
    with closing(sqlite3.connect(uri, uri=True, timeout=_CHECK_SECONDS)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        connection.rollback()


def _in_transaction(engine: Engine, work: Callable[[Connection], _Result]) -> _Result:
    with engine.begin() as connection:
        return work(connection)


def _wal_mode(engine: Engine, deadline: float) -> str | None:
    """The mode after the switch; None if the file is locked and the deadline has not passed."""
    try:
        with engine.connect().execution_options(**{_BEGIN_OPTION: ""}) as connection:
            return connection.exec_driver_sql("PRAGMA journal_mode = WAL").scalar_one()
    except OperationalError as error:
        is_locked = getattr(error.orig, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY
        if not is_locked or time.monotonic() > deadline:
            raise
    return None


def _add_listeners(engine: Engine) -> Engine:
    event.listen(engine, "connect", _set_up)
    event.listen(engine, "begin", _begin)
    return engine


def _set_up(connection: DBAPIConnection, record: object) -> None:
    del record
    cursor = connection.cursor()
    for setting in _CONNECTION_SETTINGS:
        cursor.execute(setting)
    cursor.close()


def _begin(connection: Connection) -> None:
    # The driver would begin the transaction at the first INSERT, after the reads.
    if statement := connection.get_execution_options().get(_BEGIN_OPTION, "BEGIN"):
        connection.exec_driver_sql(statement)


class SoleOwnership:
    """For databases that no other process can open, and for systems without file locks."""

    def __init__(self) -> None:
        self.owner = os.urandom(_OWNER_BYTES).hex()

    def alive(self, connection: Connection) -> set[str]:
        del connection
        return {self.owner}

    async def ensure(self) -> None:
        """Do nothing: there is no lock to lose."""

    async def release(self) -> None:
        """Do nothing: there is no lock to release."""


if sys.platform == "win32":

    def file_ownership(database: Path) -> SoleOwnership:
        del database
        return SoleOwnership()

else:
    import fcntl

    class FileOwnership:
        """A locked file next to the database.

        A killed process leaves the file behind, but not the lock.
        """

        def __init__(self, database: Path) -> None:
            self.owner = os.urandom(_OWNER_BYTES).hex()
            self._prefix = f"{database.name}-owner-"
            self._folder = database.parent
            self._path = self._folder / f"{self._prefix}{self.owner}"
            self._handle = os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._handle, fcntl.LOCK_EX)

        def alive(self, connection: Connection) -> set[str]:
            # Files are created and removed in write transactions only, so every file seen here
            # has been locked by its process.
            del connection
            paths = self._folder.glob(f"{glob.escape(self._prefix)}*")
            owners = {path.name.removeprefix(self._prefix) for path in paths if _is_locked(path)}
            return owners | {self.owner}

        async def ensure(self) -> None:
            """Do nothing: a file lock lasts as long as its process."""

        async def release(self) -> None:
            await anyio.to_thread.run_sync(self._release)

        def _release(self) -> None:
            with suppress(OSError):
                self._path.unlink()
            os.close(self._handle)

    def _is_locked(path: Path) -> bool:
        """Whether a process holds the lock; an unlocked file is removed."""
        try:
            handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            # A file that cannot be opened belongs to another user, unless it is gone by now.
            return path.exists()
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with suppress(OSError):
                path.unlink()
            return False
        except OSError:
            return True
        finally:
            os.close(handle)

    def file_ownership(database: Path) -> FileOwnership:
        """Create and lock the owner file. Call it in a write transaction; blocks."""
        return FileOwnership(database)
