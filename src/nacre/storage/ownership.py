"""Tracks which processes have the database open, to find turns whose process was killed.

Each holds a lock that the operating system, or the server, lets go of when the process is gone.
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
# Marks our advisory locks among those that others take in the same database.
ADVISORY_CLASS: Final = 0x6E616372


class Ownership(Protocol):
    """This process as one that has the database open."""

    @property
    def owner(self) -> str:
        """What the turns of this process are marked with."""
        ...

    def alive(self, connection: Connection) -> set[str]:
        """All owners that are there, this one too. For write transactions; blocks."""
        ...

    async def ensure(self) -> None:
        """Before a turn is marked: a server that was started anew has forgotten its locks."""
        ...

    async def release(self) -> None: ...


class SoleOwnership:
    """Nobody else can have the database open, or there is no way to tell."""

    def __init__(self) -> None:
        self.owner = os.urandom(_OWNER_BYTES).hex()

    def alive(self, connection: Connection) -> set[str]:
        del connection
        return {self.owner}

    async def ensure(self) -> None:
        """There is nothing that could be lost."""

    async def release(self) -> None:
        """There is nothing to let go of."""


class _DriverConnection(Protocol):
    def is_closed(self) -> bool: ...


class ServerOwnership:
    """An advisory lock of PostgreSQL, on a connection that is kept for it alone."""

    def __init__(self, engine: AsyncEngine, number: int, connection: AsyncConnection) -> None:
        self.owner = str(number)
        self._engine = engine
        self._number = number
        self._connection = connection
        self._renewing = anyio.Lock()
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
        async with self._renewing:
            if self._last_failure is not None and self._failures > failures_before:
                # Somebody tried in vain while we waited. Were all to try, one after the other, the
                # last of them would wait for a silent server as many times as there are.
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
        # None if the server has not yet noticed that the old connection is gone.
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
    """A connection that holds the lock; None if another one does."""
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
    """As far as the driver knows; nothing is sent."""
    raw = await connection.get_raw_connection()
    return cast("_DriverConnection", raw.driver_connection).is_closed()


if sys.platform == "win32":

    def file_ownership(database: Path) -> Ownership:
        del database
        return SoleOwnership()

else:
    import fcntl

    class FileOwnership:
        """A locked file beside the database. The lock counts, not the file: a killed process
        leaves the file behind."""

        def __init__(self, database: Path) -> None:
            self.owner = os.urandom(_OWNER_BYTES).hex()
            self._prefix = f"{database.name}-owner-"
            self._folder = database.parent
            self._path = self._folder / f"{self._prefix}{self.owner}"
            self._handle = os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._handle, fcntl.LOCK_EX)

        def alive(self, connection: Connection) -> set[str]:
            # Files come to be and are swept away within write transactions only, so none is seen
            # between its making and its locking.
            del connection
            paths = self._folder.glob(f"{glob.escape(self._prefix)}*")
            held = {path.name.removeprefix(self._prefix) for path in paths if _is_held(path)}
            return held | {self.owner}

        async def ensure(self) -> None:
            """A lock on a file is lost with its process only."""

        async def release(self) -> None:
            await anyio.to_thread.run_sync(self._release)

        def _release(self) -> None:
            with suppress(OSError):
                self._path.unlink()
            os.close(self._handle)

    def _is_held(path: Path) -> bool:
        """Whether a process holds the lock; the file of one that is gone is removed."""
        try:
            handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            # One that we may not open is another user's, and nobody's if it is gone by now.
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
        """To be called within a write transaction; blocks."""
        return FileOwnership(database)
