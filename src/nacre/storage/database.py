"""Opens a database by its URL, and runs transactions with retries; errors are StorageError."""

from __future__ import annotations

import sqlite3
import time
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias, TypeVar, assert_never
from urllib.parse import quote, quote_plus

import anyio
import anyio.to_thread
from sqlalchemy import Double, literal_column
from sqlalchemy.dialects import sqlite
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from nacre.errors import StorageError
from nacre.storage.schema import migrate
from nacre.storage.sqlite import (
    SoleOwnership,
    SqliteTransactions,
    check_writable,
    file_engine,
    file_ownership,
    make_private_file,
    memory_engine,
    refuse_foreign_file,
    use_wal,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
    from contextlib import AbstractAsyncContextManager

    from sqlalchemy import ColumnElement, Insert
    from sqlalchemy.dialects import postgresql
    from sqlalchemy.engine import URL, Connection, Engine
    from sqlalchemy.schema import Table

    from nacre.storage.postgres import ServerTransactions


_SQLITE_SCHEMES: Final = ("sqlite", "sqlite+aiosqlite")
_POSTGRES_SCHEMES: Final = ("postgresql", "postgres", "postgresql+asyncpg")
_ALLOWED: Final = "allowed: sqlite:///<path>, sqlite:///:memory:, postgresql://<user>@<host>/<name>"


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryLocation:
    """A database in memory, lost when the store is closed. For tests."""

    address: str = ":memory:"
    label: str = "the database in memory"

    def redact(self, text: str) -> str:
        return text


@dataclass(frozen=True, kw_only=True, slots=True)
class FileLocation:
    """An SQLite file."""

    path: Path

    @property
    def address(self) -> str:
        return str(self.path)

    @property
    def label(self) -> str:
        return f"the database {self.address}"

    def redact(self, text: str) -> str:
        return text


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerLocation:
    """A database of a PostgreSQL server."""

    url: URL = field(repr=False)
    """The URL with the password, and with asyncpg as the driver."""

    @property
    def address(self) -> str:
        bare = self.url.set(drivername="postgresql", query={})
        return bare.render_as_string(hide_password=True)

    @property
    def label(self) -> str:
        return f"the database {self.address}"

    def redact(self, text: str) -> str:
        """The text without the password, plain or percent-encoded."""
        password = self.url.password
        if password:
            for form in {password, quote(password), quote(password, safe=""), quote_plus(password)}:
                text = text.replace(form, "***")
        return text


Location: TypeAlias = MemoryLocation | FileLocation | ServerLocation


def parse_storage_url(url: str) -> Location:
    """Parse the URL; raises StorageError if it is invalid or has another scheme. Blocks."""
    scheme = url.partition(":")[0]
    if scheme in _SQLITE_SCHEMES:
        return _parse_sqlite_url(url)
    if scheme in _POSTGRES_SCHEMES:
        return _parse_server_url(url)
    # The message contains only the scheme, because the rest may contain a password.
    raise StorageError(f"`storage.url` begins with {scheme[:20]!r}; {_ALLOWED}")


def _parse_sqlite_url(url: str) -> MemoryLocation | FileLocation:
    _, separator, name = url.partition(":///")
    if name == ":memory:":
        return MemoryLocation()
    if not separator or not name or "?" in name or "\0" in name:
        raise StorageError(f"`storage.url` is {url!r}; {_ALLOWED}")
    try:
        return FileLocation(path=Path(name).expanduser().absolute())
    except RuntimeError as error:
        raise StorageError(f"`storage.url` is {url!r}: {error}") from error


def _parse_server_url(url: str) -> ServerLocation:
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        # The message of the parser may contain a password with an unescaped `@` or `/`.
        raise StorageError(
            "`storage.url` is invalid; `@`, `:`, `/`, `?` and `%` in a password must be "
            f"written as %40, %3A, %2F, %3F and %25; {_ALLOWED}"
        ) from None
    return ServerLocation(url=parsed.set(drivername="postgresql+asyncpg"))


FAULTS: Final = (DBAPIError, sqlite3.Error, PoolTimeoutError, OSError, OverflowError)
"""The exceptions of the drivers: asyncpg raises OSError if it cannot connect, and sqlite3 raises
OverflowError for a number that is too large for a column."""

# Serialization failure and deadlock.
_CONFLICT_STATES: Final = frozenset({"40001", "40P01"})
# Locked, disk full, or too many open files.
_TRANSIENT_CODES: Final = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_CANTOPEN,
    }
)
# Connection lost, insufficient resources, server stopping or starting.
_TRANSIENT_CLASSES: Final = frozenset({"08", "53", "57"})
_LOST_CLASSES: Final = frozenset({"08", "57"})

_LOCKED: Final = (
    "it is locked by another process for too long; stop that process, or try again later"
)
_DAMAGED: Final = (
    "the file is damaged; restore a backup, or move the file away to start with an empty database"
)
# The driver's message continues with the text of the row, and has no code.
_NOT_UTF8: Final = "Could not decode to UTF-8"
_SQLITE_MESSAGES: Final = {
    sqlite3.SQLITE_BUSY: _LOCKED,
    sqlite3.SQLITE_LOCKED: _LOCKED,
    sqlite3.SQLITE_READONLY: "it is read-only; check the owner and the mode of the file, of its "
    "-wal and -shm files and of its directory",
    sqlite3.SQLITE_PERM: "permission denied; check the owner and the mode of the file",
    sqlite3.SQLITE_FULL: "the disk is full; the transaction was rolled back",
    sqlite3.SQLITE_IOERR: "the disk has an I/O error or is full; the transaction was rolled back",
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
    # Also if only the header of a database is damaged.
    sqlite3.SQLITE_NOTADB: "the file is damaged, or is not an SQLite database; restore a backup, "
    "choose another file in `storage.url`, or move this one away",
    sqlite3.SQLITE_CANTOPEN: "the file, or its -wal or -shm file, cannot be opened; check the "
    "permissions of the file and its directory",
}
_NO_RIGHTS: Final = "permission denied; grant the user the right to create tables in the schema"
_POSTGRES_MESSAGES: Final = {
    "28": "the server refused the login; check the user and the password in `storage.url`",
    "3D": "the server has no database with this name; create it with `createdb`",
    "42501": _NO_RIGHTS,
    "3F000": _NO_RIGHTS,
    "53100": "the server's disk is full; the transaction was rolled back",
    "53": "the server is out of resources; allow more connections, or run fewer gateways",
    "57": "the server is shutting down or cancelled the query; try again",
    "08": "the connection to the server was lost; try again",
}


@contextmanager
def convert_faults(location: Location) -> Generator[None]:
    """Convert driver exceptions in the block to StorageError."""
    try:
        yield
    except FAULTS as error:
        raise storage_error_from(error, location) from error


def is_conflict(error: BaseException) -> bool:
    """Whether the transaction conflicted with another one and should be retried."""
    return _sqlstate_of(error) in _CONFLICT_STATES


def is_transient(error: BaseException) -> bool:
    """Whether the error is temporary, so that a retry may succeed."""
    return (
        is_conflict(error)
        or is_lost(error)
        or _sqlite_code_of(error) in _TRANSIENT_CODES
        or _sqlstate_of(error)[:2] in _TRANSIENT_CLASSES
    )


def is_lost(error: BaseException) -> bool:
    """Whether the server did not respond; it may have executed the statement."""
    is_invalidated = isinstance(error, DBAPIError) and error.connection_invalidated
    return is_invalidated or isinstance(error, OSError) or _sqlstate_of(error)[:2] in _LOST_CLASSES


def storage_error_from(
    error: BaseException, location: Location, *, is_uncertain: bool = False
) -> StorageError:
    """The error with an explanation and the driver's message, without passwords and row data."""
    driver_error = error.orig if isinstance(error, DBAPIError) and error.orig else error
    message = location.redact(_first_line_of(driver_error))
    text = f"{location.label} failed: {_explain(driver_error, message)}"
    return StorageError(text, is_uncertain=is_uncertain)


def _explain(error: BaseException, message: str) -> str:
    if explanation := _SQLITE_MESSAGES.get(_sqlite_code_of(error)):
        return f"{explanation} ({message})"
    state = _sqlstate_of(error)
    for length in (5, 2):
        if explanation := _POSTGRES_MESSAGES.get(state[:length]):
            return f"{explanation} ({message})"
    if isinstance(error, sqlite3.Error) and message.startswith(_NOT_UTF8):
        return f"{_DAMAGED} (a text is not UTF-8)"
    if isinstance(error, TimeoutError):
        return f"it did not respond in time; check that it is up and reachable ({message})"
    if isinstance(error, OSError):
        return f"it cannot be reached; check that it is up and the address is correct ({message})"
    return message


def _sqlite_code_of(error: BaseException) -> int:
    """The primary result code of SQLite; 0 for errors of other drivers."""
    code: object = getattr(getattr(error, "orig", None) or error, "sqlite_errorcode", None)
    return code & 0xFF if isinstance(code, int) else 0


def _sqlstate_of(error: BaseException) -> str:
    state: object = getattr(getattr(error, "orig", None) or error, "sqlstate", None)
    return state if isinstance(state, str) else ""


def _first_line_of(error: BaseException) -> str:
    # The following lines contain hints and row data.
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


_Result = TypeVar("_Result")

# The delays between attempts: short ones for conflicts, longer ones for outages.
_RETRY_WAITS_SECONDS: Final = (0.02, 0.08, 0.3, 0.6, 1.0, 2.0)
# No retry of an outage after this time.
_MAX_RETRY_SECONDS: Final = 5.0
_CLOSE_SECONDS: Final = 2.0


class Transactions(Protocol):
    """Runs blocking functions in transactions, off the event loop."""

    async def read(self, work: Callable[[Connection], _Result]) -> _Result:
        """Run a function that only reads, and return its result."""
        ...

    async def write(self, work: Callable[[Connection], _Result]) -> _Result:
        """Run a function, commit, and return its result; roll back if it raises.

        Cancellation is shielded. Transactions are short, and after a cancelled commit nobody
        knows whether it took place.
        """
        ...


class Ownership(Protocol):
    """The lock of this process on the database, to find turns whose process was killed.

    The operating system or the server releases it when the process ends.
    """

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


# In seconds since the epoch.
_NOW: Final = {
    "sqlite": "((julianday('now') - 2440587.5) * 86400.0)",
    "postgresql": "(extract(epoch from clock_timestamp())::double precision)",
}


class Database:
    """An open database, which runs functions in transactions and retries them."""

    def __init__(
        self, transactions: Transactions, location: Location, ownership: Ownership
    ) -> None:
        self._transactions = transactions
        self._location = location
        self.ownership = ownership
        self.now: ColumnElement[float] = literal_column(_NOW[self.dialect], Double)
        """The time of the database. Clocks of processes differ."""
        self._inserts: dict[Table, Insert] = {}
        self._upserts: dict[Table, Insert] = {}

    @property
    def address(self) -> str:
        return self._location.address

    @property
    def dialect(self) -> Literal["sqlite", "postgresql"]:
        return "postgresql" if isinstance(self._location, ServerLocation) else "sqlite"

    # The statements are cached, because building one takes longer than executing it.

    def insert_or_ignore(self, table: Table) -> Insert:
        """A statement that inserts a row unless there is one with its key."""
        found = self._inserts.get(table)
        if found is None:
            found = self._inserts[table] = self._insert(table).on_conflict_do_nothing()
        return found

    def upsert(self, table: Table) -> Insert:
        """A statement that inserts a row, or replaces the one with its key."""
        found = self._upserts.get(table)
        if found is None:
            statement = self._insert(table)
            keys = {column.name for column in table.primary_key}
            found = self._upserts[table] = statement.on_conflict_do_update(
                index_elements=keys,
                set_={it.name: it for it in statement.excluded if it.name not in keys},
            )
        return found

    def _insert(self, table: Table) -> postgresql.Insert | sqlite.Insert:
        if not isinstance(self._location, ServerLocation):
            return sqlite.insert(table)
        from sqlalchemy.dialects import postgresql

        return postgresql.insert(table)

    async def check_writable(self, *, min_free_bytes: int) -> None:
        """Raise StorageError if an SQLite file is missing, locked, or its disk almost full."""
        if isinstance(self._location, FileLocation):
            check = partial(check_writable, self._location.path, min_free_bytes=min_free_bytes)
            with convert_faults(self._location):
                await anyio.to_thread.run_sync(check)

    # All of these are retried after temporary errors, for about four seconds.

    async def ensure_ownership(self) -> None:
        async def ensure(_: object) -> None:
            await self.ownership.ensure()

        await self._attempt(ensure, lambda _: None, is_repeatable=True)

    async def read(self, work: Callable[[Connection], _Result]) -> _Result:
        """Run a function that only reads."""
        return await self._attempt(self._transactions.read, work, is_repeatable=True)

    async def write(self, work: Callable[[Connection], _Result]) -> _Result:
        """Run a function and commit; not retried if the response to the commit is lost."""
        return await self._attempt(self._transactions.write, work, is_repeatable=False)

    async def write_through(self, work: Callable[[Connection], _Result]) -> _Result:
        """Run a function and commit; also retried if the response to the commit is lost.

        The function must detect that an earlier attempt was committed.
        """
        return await self._attempt(self._transactions.write, work, is_repeatable=True)

    async def _attempt(
        self,
        transact: Callable[[Callable[[Connection], _Result]], Awaitable[_Result]],
        work: Callable[[Connection], _Result],
        *,
        is_repeatable: bool,
    ) -> _Result:
        has_finished = is_uncertain = False

        def finish_work(connection: Connection) -> _Result:
            nonlocal has_finished
            result = work(connection)
            has_finished = True
            return result

        deadline = anyio.current_time() + _MAX_RETRY_SECONDS
        waits = iter(_RETRY_WAITS_SECONDS)
        while True:
            has_finished = False
            try:
                return await transact(finish_work)
            except FAULTS as error:
                if has_finished:
                    # The commit failed. If the connection was not lost, the failure is certain,
                    # also for the earlier attempts.
                    is_uncertain = is_lost(error)
                wait_seconds = next(waits, None)
                is_late = anyio.current_time() > deadline and not is_conflict(error)
                may_retry = is_transient(error) and (is_repeatable or not is_uncertain)
                if wait_seconds is None or is_late or not may_retry:
                    raise storage_error_from(
                        error, self._location, is_uncertain=is_uncertain
                    ) from error
            await anyio.sleep(wait_seconds)


@asynccontextmanager
async def open_database(url: str, *, lock_seconds: float) -> AsyncGenerator[Database]:
    """Open the database and migrate its schema; raises StorageError."""
    location = await anyio.to_thread.run_sync(parse_storage_url, url)
    async with _open(location, lock_seconds) as database:
        yield database


def _open(location: Location, lock_seconds: float) -> AbstractAsyncContextManager[Database]:
    match location:
        case MemoryLocation():
            return _open_memory(location)
        case FileLocation():
            return _open_file(location, lock_seconds)
        case ServerLocation():
            return _open_server(location)
        case _:
            assert_never(location)


@asynccontextmanager
async def _open_memory(location: MemoryLocation) -> AsyncGenerator[Database]:
    transactions = SqliteTransactions(memory_engine(), is_shared=True)
    async with _closing(transactions):
        await transactions.write(lambda connection: migrate(connection, location.label))
        yield Database(transactions, location, SoleOwnership())


@asynccontextmanager
async def _open_file(location: FileLocation, lock_seconds: float) -> AsyncGenerator[Database]:
    def make_file() -> Engine:
        make_private_file(location.path)
        return file_engine(location.path, lock_seconds=lock_seconds)

    def switch_mode() -> None:
        use_wal(engine, location.path, lock_seconds=lock_seconds)

    def prepare(connection: Connection) -> None:
        refuse_foreign_file(connection, location.path)
        migrate(connection, location.label)

    engine = await anyio.to_thread.run_sync(make_file)
    transactions = SqliteTransactions(engine, is_shared=False)
    async with _closing(transactions):
        with convert_faults(location):
            await anyio.to_thread.run_sync(switch_mode)
            await transactions.write(prepare)
            ownership = await transactions.write(lambda _: file_ownership(location.path))
        async with _releasing(ownership):
            yield Database(transactions, location, ownership)


@asynccontextmanager
async def _open_server(location: ServerLocation) -> AsyncGenerator[Database]:
    # Only for a server, and not on the event loop: SQLite needs half of these modules.
    for module in ("nacre.storage.postgres", "nacre.storage.cluster"):
        await anyio.to_thread.run_sync(import_module, module)
    from nacre.storage.postgres import (
        ServerOwnership,
        ServerTransactions,
        lock_schema,
        server_engine,
    )

    def prepare(connection: Connection) -> None:
        lock_schema(connection)
        migrate(connection, location.label)

    engine = await anyio.to_thread.run_sync(server_engine, location)
    transactions = ServerTransactions(engine)
    async with _closing(transactions):
        with convert_faults(location):
            # Without the time limit of a transaction: another process may be migrating the schema.
            async with engine.begin() as connection:
                await connection.run_sync(prepare)
            ownership = await ServerOwnership.take(engine)
        async with _releasing(ownership):
            yield Database(transactions, location, ownership)


# Closing has a timeout, because the server may not respond.
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


def now() -> float:
    return time.time()
