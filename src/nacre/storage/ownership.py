"""Tracks which processes have the database open, to find turns whose process was killed.

Each process holds a lock. The operating system or the server releases it when the process ends.
"""

from __future__ import annotations

import glob
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol, cast

import anyio
import anyio.to_thread

if TYPE_CHECKING:
    from pathlib import Path

    from sqlalchemy.engine import Connection
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine


_OWNER_BYTES: Final = 8
# Distinguishes our advisory locks from those of other applications in the same database.
ADVISORY_CLASS: Final = 0x6E616372


class Ownership(Protocol):
    """The lock of this process on the database."""

    @property
    def owner(self) -> str:
        """The id of this process in its rows of turns."""
        ...

    def alive(self, connection: Connection) -> set[str]:
        """All owners whose process is alive, including this one.

        Call it in a write transaction. Blocks.
        """
        ...

    async def ensure(self) -> None:
        """Restore the lock if it was lost, as after a restart of the server.

        Call it before a turn starts.
        """
        ...

    async def release(self) -> None: ...


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


class _DriverConnection(Protocol):
    def is_closed(self) -> bool: ...


class ServerOwnership:
    """An advisory lock of PostgreSQL, on a connection of its own."""

    def __init__(self, engine: AsyncEngine, number: int, connection: AsyncConnection) -> None:
        self.owner = str(number)
        self._engine = engine
        self._number = number
        self._connection = connection
        self._renewal_lock = anyio.Lock()
        self._failures = 0
        self._last_failure: Exception | None = None

    @classmethod
    async def take(cls, engine: AsyncEngine) -> ServerOwnership:
        while True:
            number = int.from_bytes(os.urandom(4)) >> 1
            if (connection := await _lock(engine, number)) is not None:
                return cls(engine, number, connection)

    async def ensure(self) -> None:
        failures_before = self._failures
        async with self._renewal_lock:
            if self._last_failure is not None and self._failures > failures_before:
                # Another task failed while this one waited for the lock. If every task tried in
                # turn, the last one would wait for many timeouts.
                raise self._last_failure
            try:
                await self._renew()
            except Exception as error:
                self._failures, self._last_failure = self._failures + 1, error
                raise
            self._last_failure = None

    async def _renew(self) -> None:
        if not await _is_closed(self._connection):
            return
        # None if the server has not yet detected that the old connection is gone.
        if (connection := await _lock(self._engine, self._number)) is not None:
            lost, self._connection = self._connection, connection
            with anyio.CancelScope(shield=True):
                await lost.invalidate()
                await lost.close()

    def alive(self, connection: Connection) -> set[str]:
        rows = connection.exec_driver_sql(
            "SELECT objid FROM pg_locks JOIN pg_database ON pg_database.oid = pg_locks.database "
            f"WHERE locktype = 'advisory' AND classid = {ADVISORY_CLASS} AND objsubid = 2 "
            "AND granted AND datname = current_database()"
        )
        return {str(number) for number in rows.scalars()} | {self.owner}

    async def release(self) -> None:
        await self._connection.close()


async def _lock(engine: AsyncEngine, number: int) -> AsyncConnection | None:
    """A connection that holds the lock; None if another connection holds it."""
    connection = await engine.connect()
    is_locked = False
    try:
        await connection.execution_options(isolation_level="AUTOCOMMIT")
        query = f"SELECT pg_try_advisory_lock({ADVISORY_CLASS}, {number})"
        is_locked = bool((await connection.exec_driver_sql(query)).scalar())
    finally:
        if not is_locked:
            with anyio.CancelScope(shield=True):
                await connection.close()
    return connection if is_locked else None


async def _is_closed(connection: AsyncConnection) -> bool:
    """Whether the driver knows that the connection is closed; sends nothing."""
    raw = await connection.get_raw_connection()
    return cast("_DriverConnection", raw.driver_connection).is_closed()


if sys.platform == "win32":

    def file_ownership(database: Path) -> Ownership:
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

    def file_ownership(database: Path) -> Ownership:
        """Create and lock the owner file. Call it in a write transaction; blocks."""
        return FileOwnership(database)
