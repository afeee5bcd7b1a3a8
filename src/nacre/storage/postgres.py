"""PostgreSQL databases, through asyncpg; URLs have the format of libpq."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Final, TypeVar

import anyio
from sqlalchemy.ext.asyncio import create_async_engine

from nacre.errors import StorageError
from nacre.storage.ownership import ADVISORY_CLASS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sqlalchemy.engine import URL, Connection
    from sqlalchemy.ext.asyncio import AsyncEngine

    from nacre.storage.database import ServerLocation

_Result = TypeVar("_Result")

_CONNECTIONS: Final = 10
_CONNECT_SECONDS: Final = 10.0
_QUERY_SECONDS: Final = 30.0
_SCHEMA_LOCK: Final = 0
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

    async def read(self, work: Callable[[Connection], _Result]) -> _Result:
        return await self.write(work)

    async def write(self, work: Callable[[Connection], _Result]) -> _Result:
        with anyio.CancelScope(shield=True):
            async with self._engine.begin() as connection:
                return await connection.run_sync(work)
        raise AssertionError("unreachable: this scope is never cancelled")

    async def close(self) -> None:
        await self._engine.dispose()


def server_engine(location: ServerLocation) -> AsyncEngine:
    """Create the engine; raises StorageError for an unknown option. Blocks: imports a driver."""
    if importlib.util.find_spec("asyncpg") is None:
        raise StorageError(
            "PostgreSQL needs a driver that is not installed; "
            "install it with: pip install 'nacre-ai[gateway,postgres]'"
        )
    query = _single_values(location.url)
    settings = {"application_name": query.pop("application_name", "nacre"), **_KEEP_ALIVE}
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
        pool_size=_CONNECTIONS,
        max_overflow=_CONNECTIONS,
        # Detects connections that a server or a firewall has dropped.
        pool_pre_ping=True,
    )


def lock_schema(connection: Connection) -> None:
    """Lock the schema until the end of the transaction; waits for other processes."""
    connection.exec_driver_sql(
        f"SELECT pg_advisory_xact_lock({ADVISORY_CLASS + 1}, {_SCHEMA_LOCK})"
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
