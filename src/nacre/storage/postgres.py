"""PostgreSQL databases, through asyncpg; URLs have the format of libpq."""

from __future__ import annotations

import importlib.util
import math
import os
from collections import deque
from typing import TYPE_CHECKING, Final, Protocol, TypeVar, cast

import anyio
from sqlalchemy.ext.asyncio import create_async_engine

from nacre.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sqlalchemy.engine import URL, Connection
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

    from nacre.storage.database import ServerLocation

_Result = TypeVar("_Result")

_CONNECTIONS: Final = 10
_CONNECT_SECONDS: Final = 10.0
_QUERY_SECONDS: Final = 30.0
_TRANSACTION_SECONDS: Final = 10.0
_SCHEMA_LOCK: Final = 0
CHANNEL: Final = "nacre"
"""The channel of all notifications."""
# Distinguishes our advisory locks from those of other applications in the same database.
_ADVISORY_CLASS: Final = 0x6E616372
# How long after its start a server may be without the locks of processes that were connected to it
# before: they wait for up to two seconds between their attempts to connect.
_RETURN_SECONDS: Final = 5.0
_ALIVE: Final = f"""
    SELECT objid::text FROM pg_locks JOIN pg_database ON pg_database.oid = pg_locks.database
    WHERE locktype = 'advisory' AND classid = {_ADVISORY_CLASS} AND objsubid = 2
    AND granted AND datname = current_database()
    UNION SELECT owner FROM nacre_gateways
    WHERE renewed < extract(epoch FROM pg_postmaster_start_time())
    AND clock_timestamp() < pg_postmaster_start_time() + interval '{_RETURN_SECONDS} seconds'
"""
# The server detects within about a minute that the machine of a gateway is gone.
_KEEP_ALIVE: Final = {
    "tcp_keepalives_idle": "30",
    "tcp_keepalives_interval": "10",
    "tcp_keepalives_count": "3",
}
_OPTIONS: Final = frozenset({"host", "port", "ssl", "sslmode", "application_name"})


class ServerTransactions:
    """Transactions on a PostgreSQL server, one per connection at a time."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._queue = _TransactionQueue(_CONNECTIONS)

    async def read(self, work: Callable[[Connection], _Result]) -> _Result:
        return await self.write(work)

    async def write(self, work: Callable[[Connection], _Result]) -> _Result:
        # Nobody can cancel it, so a server that does not respond must not hold it up for long.
        await self._queue.enter()
        try:
            with anyio.fail_after(_TRANSACTION_SECONDS, shield=True):
                async with self._engine.begin() as connection:
                    result = await connection.run_sync(work)
            self._queue.note_success()
            return result
        finally:
            self._queue.leave()

    async def close(self) -> None:
        await self._engine.dispose()


class _TransactionQueue:
    """Lets some transactions run at a time, and the others wait in order. They wait for as long as
    others succeed: a burst of work is no reason to give up a server that responds."""

    def __init__(self, free: int) -> None:
        self._free = free
        self._waiting: deque[anyio.Event] = deque()
        self._last_success = -math.inf

    async def enter(self) -> None:
        if self._free:
            self._free -= 1
            return
        turn, deadline = anyio.Event(), anyio.current_time() + _TRANSACTION_SECONDS
        self._waiting.append(turn)
        while not turn.is_set():
            with anyio.CancelScope(deadline=deadline, shield=True):
                await turn.wait()
            deadline = self._last_success + _TRANSACTION_SECONDS
            if not turn.is_set() and deadline <= anyio.current_time():
                self._waiting.remove(turn)
                raise TimeoutError

    def note_success(self) -> None:
        self._last_success = anyio.current_time()

    def leave(self) -> None:
        if self._waiting:
            self._waiting.popleft().set()
        else:
            self._free += 1


def server_engine(location: ServerLocation) -> AsyncEngine:
    """Create the engine; raises StorageError for an unknown option. Blocks: imports a driver."""
    if importlib.util.find_spec("asyncpg") is None:
        raise StorageError(
            "PostgreSQL needs a driver that is not installed; "
            "install it with: pip install 'nacre-ai[gateway,postgres]'"
        )
    query = _single_values(location.url)
    settings = {
        "application_name": query.pop("application_name", "nacre"),
        # A process that is stopped in a transaction must not keep the locks of its rows, without
        # which nobody can take over its sessions.
        "idle_in_transaction_session_timeout": str(int(_TRANSACTION_SECONDS * 1000)),
        **_KEEP_ALIVE,
    }
    if "sslmode" in query:
        # asyncpg has another name for `sslmode`, with the same values.
        query["ssl"] = query.pop("sslmode")
    return create_async_engine(
        location.url.set(query=query),
        connect_args={
            "timeout": _CONNECT_SECONDS,
            "command_timeout": _QUERY_SECONDS,
            "server_settings": settings,
        },
        hide_parameters=True,
        # With row locks this level suffices; a stricter server default would fail more often.
        isolation_level="READ COMMITTED",
        # With that of the lock, and for a moment the one that replaces it.
        pool_size=_CONNECTIONS + 1,
        max_overflow=1,
        # Detects connections that a server or a firewall has dropped.
        pool_pre_ping=True,
    )


def lock_schema(connection: Connection) -> None:
    """Lock the schema until the end of the transaction; waits for other processes."""
    connection.exec_driver_sql(
        f"SELECT pg_advisory_xact_lock({_ADVISORY_CLASS + 1}, {_SCHEMA_LOCK})"
    )


def _single_values(url: URL) -> dict[str, str]:
    query: Mapping[str, str | tuple[str, ...]] = url.query
    options = {name: value for name, value in query.items() if isinstance(value, str)}
    for name in query:
        if name not in _OPTIONS or name not in options:
            known = ", ".join(sorted(_OPTIONS))
            raise StorageError(
                f"`storage.url` has an unknown or repeated option {name!r}; allowed: {known}"
            )
    return options


class _DriverConnection(Protocol):
    def is_closed(self) -> bool: ...

    async def add_listener(self, channel: str, callback: Callable[..., None]) -> None: ...

    def add_termination_listener(self, callback: Callable[..., None]) -> None: ...


class ServerOwnership:
    """An advisory lock of PostgreSQL, on a connection of its own."""

    def __init__(self, engine: AsyncEngine, number: int, connection: AsyncConnection) -> None:
        self.owner = str(number)
        self._engine = engine
        self._number = number
        self._connection = connection
        self.restored_time = -math.inf
        """When the lock was last restored, by the clock of the event loop."""
        self._receive: Callable[[str], None] | None = None
        self._on_lost: Callable[[], None] = _do_nothing
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
            self.restored_time = anyio.current_time()
            with anyio.CancelScope(shield=True):
                await lost.invalidate()
                await lost.close()
            await self._start_listening()

    async def listen(self, receive: Callable[[str], None], *, on_lost: Callable[[], None]) -> None:
        """Call `receive` with each notification, on the connection of the lock. `on_lost` is called
        when the connection is lost; `ensure` restores it."""
        self._receive, self._on_lost = receive, on_lost
        await self._start_listening()

    async def _start_listening(self) -> None:
        if self._receive is None:
            return
        receive, on_lost = self._receive, self._on_lost
        raw = await self._connection.get_raw_connection()
        driver = cast("_DriverConnection", raw.driver_connection)

        def take(_connection: object, _pid: int, _channel: str, payload: str) -> None:
            receive(payload)

        def note_lost(_connection: object) -> None:
            on_lost()

        await driver.add_listener(CHANNEL, take)
        driver.add_termination_listener(note_lost)

    def alive(self, connection: Connection) -> set[str]:
        return {*connection.exec_driver_sql(_ALIVE).scalars(), self.owner}

    async def release(self) -> None:
        self._on_lost = _do_nothing
        await self._connection.close()


def _do_nothing() -> None:
    pass


async def _lock(engine: AsyncEngine, number: int) -> AsyncConnection | None:
    """A connection that holds the lock; None if another connection holds it."""
    connection = await engine.connect()
    is_locked = False
    try:
        await connection.execution_options(isolation_level="AUTOCOMMIT")
        query = f"SELECT pg_try_advisory_lock({_ADVISORY_CLASS}, {number})"
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
