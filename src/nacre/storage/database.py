"""A database: its URL, transactions with retries, and errors as StorageError."""

from __future__ import annotations

import sqlite3
import time
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, TypeVar, assert_never
from urllib.parse import quote, quote_plus

import anyio
import anyio.to_thread
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from nacre.errors import StorageError
from nacre.storage.ownership import Ownership, ServerOwnership, SoleOwnership, file_ownership
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
    from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
    from contextlib import AbstractAsyncContextManager

    from sqlalchemy.engine import URL, Connection, Engine
    from sqlalchemy.schema import Table


_SQLITE_SCHEMES: Final = ("sqlite", "sqlite+aiosqlite")
_POSTGRES_SCHEMES: Final = ("postgresql", "postgres", "postgresql+asyncpg")
_ALLOWED: Final = "allowed: sqlite:///<path>, sqlite:///:memory:, postgresql://<user>@<host>/<name>"


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryLocation:
    """Nowhere: gone when the store is closed. For tests."""

    address: str = ":memory:"
    shown: str = "the database in memory"

    def blank(self, text: str) -> str:
        return text


@dataclass(frozen=True, kw_only=True, slots=True)
class FileLocation:
    """An SQLite file."""

    path: Path

    @property
    def address(self) -> str:
        return str(self.path)

    @property
    def shown(self) -> str:
        return f"the database {self.address}"

    def blank(self, text: str) -> str:
        return text


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerLocation:
    """A database of a PostgreSQL server."""

    url: URL = field(repr=False)
    """With the driver that we use, and the password."""

    @property
    def address(self) -> str:
        bare = self.url.set(drivername="postgresql", query={})
        return bare.render_as_string(hide_password=True)

    @property
    def shown(self) -> str:
        return f"the database {self.address}"

    def blank(self, text: str) -> str:
        """The text without the password, in whichever form it got there."""
        password = self.url.password
        if password:
            for form in {password, quote(password), quote(password, safe=""), quote_plus(password)}:
                text = text.replace(form, "***")
        return text


Place: TypeAlias = MemoryLocation | FileLocation | ServerLocation


def parse_storage_url(url: str) -> Place:
    """Raises StorageError for a URL that is none, or for another kind of database. Blocks."""
    scheme = url.partition(":")[0]
    if scheme in _SQLITE_SCHEMES:
        return _sqlite_place(url)
    if scheme in _POSTGRES_SCHEMES:
        return _server_place(url)
    # Only what stands before the first colon: anything behind it may be a password.
    raise StorageError(f"`storage.url` begins with {scheme[:20]!r}; {_ALLOWED}")


def _sqlite_place(url: str) -> MemoryLocation | FileLocation:
    _, separator, name = url.partition(":///")
    if name == ":memory:":
        return MemoryLocation()
    if not separator or not name or "?" in name or "\0" in name:
        raise StorageError(f"`storage.url` is {url!r}; {_ALLOWED}")
    try:
        return FileLocation(path=Path(name).expanduser().absolute())
    except RuntimeError as error:
        raise StorageError(f"`storage.url` is {url!r}: {error}") from error


def _server_place(url: str) -> ServerLocation:
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        # The parser's own words may quote a password with an unescaped `@` or `/`.
        raise StorageError(
            "`storage.url` cannot be read; `@`, `:`, `/`, `?` and `%` in a password have to be "
            f"written as %40, %3A, %2F, %3F and %25; {_ALLOWED}"
        ) from None
    return ServerLocation(url=parsed.set(drivername="postgresql+asyncpg"))


FAULTS: Final = (DBAPIError, PoolTimeoutError, OSError, OverflowError)
"""What a driver raises when the database fails; the one of PostgreSQL connects with OSErrors, and
the one of SQLite has no error of its own for a number that no column can hold."""

# Two transactions that could not both be, and a deadlock.
_CONFLICT_STATES: Final = frozenset({"40001", "40P01"})
# Locks that others hold, disks that are full, files that cannot be opened while too many are.
_TRANSIENT_CODES: Final = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_CANTOPEN,
    }
)
# Lost connections, no room for more, a server that stops or starts.
_TRANSIENT_CLASSES: Final = frozenset({"08", "53", "57"})
_LOST_CLASSES: Final = frozenset({"08", "57"})

_SQLITE_WORDS: Final = {
    sqlite3.SQLITE_BUSY: "another process has kept it locked for too long; "
    "close that process, or try again",
    sqlite3.SQLITE_LOCKED: "another process has kept it locked for too long; "
    "close that process, or try again",
    sqlite3.SQLITE_READONLY: "it may not be written; check the owner and the mode of the file, of "
    "its -wal and -shm files and of its folder",
    sqlite3.SQLITE_PERM: "it may not be read and written; check the owner and the mode of the file",
    sqlite3.SQLITE_FULL: "the disk is full; make room, nothing half-written was kept",
    sqlite3.SQLITE_IOERR: "the disk failed to read or write, or is full; "
    "nothing half-written was kept",
    sqlite3.SQLITE_CORRUPT: "the file is damaged; put a backup in its place, "
    "or move it away to begin anew",
    sqlite3.SQLITE_NOTADB: "the file is not an SQLite database; "
    "choose another file in `storage.url`, or move this one away",
    sqlite3.SQLITE_CANTOPEN: "the file, or one beside it, cannot be "
    "opened; check who may write the file and its folder",
}
_NO_RIGHTS: Final = (
    "the user may not do this there; grant it the right to create tables in the schema"
)
_POSTGRES_WORDS: Final = {
    "28": "the server refused the login; check the user and the password in `storage.url`",
    "3D": "the server has no database of this name; make it with `createdb`",
    "42501": _NO_RIGHTS,
    "3F000": _NO_RIGHTS,
    "53100": "the server's disk is full; nothing half-written was kept",
    "53": "the server has no room for more; let it accept more connections, or run fewer gateways",
    "57": "the server is shutting down or gave the query up; try again",
    "08": "the connection to the server was lost; try again",
}


@contextmanager
def faults_of(place: Place) -> Generator[None]:
    """What a driver raises within is raised as StorageError."""
    try:
        yield
    except FAULTS as error:
        raise storage_error_from(error, place) from error


def is_conflict(error: BaseException) -> bool:
    """Whether two transactions got into each other's way, and trying again is the cure."""
    return _sqlstate_of(error) in _CONFLICT_STATES


def is_transient(error: BaseException) -> bool:
    """Whether it may be over in a moment, so that trying again may help."""
    return (
        is_conflict(error)
        or is_lost(error)
        or _sqlite_code_of(error) in _TRANSIENT_CODES
        or _sqlstate_of(error)[:2] in _TRANSIENT_CLASSES
    )


def is_lost(error: BaseException) -> bool:
    """Whether a server was out of reach or gave no answer: it may have done what it was told."""
    is_cut_off = isinstance(error, DBAPIError) and error.connection_invalidated
    return is_cut_off or isinstance(error, OSError) or _sqlstate_of(error)[:2] in _LOST_CLASSES


def storage_error_from(
    error: BaseException, place: Place, *, is_uncertain: bool = False
) -> StorageError:
    """The fault in our words, with the driver's; never with a password or a row's content."""
    driver_error = error.orig if isinstance(error, DBAPIError) and error.orig else error
    said = place.blank(_words_of(driver_error))
    text = f"{place.shown} failed: {_explain(driver_error, said)}"
    return StorageError(text, is_uncertain=is_uncertain)


def _explain(error: BaseException, said: str) -> str:
    if words := _SQLITE_WORDS.get(_sqlite_code_of(error)):
        return f"{words} ({said})"
    state = _sqlstate_of(error)
    for length in (5, 2):
        if words := _POSTGRES_WORDS.get(state[:length]):
            return f"{words} ({said})"
    if isinstance(error, TimeoutError):
        return f"it did not answer in time; check that it is up and reachable ({said})"
    if isinstance(error, OSError):
        return f"it cannot be reached; check that it is up and the address is right ({said})"
    return said


def _sqlite_code_of(error: BaseException) -> int:
    """Without what SQLite adds to tell kinds of it apart; 0 if it is none of SQLite's."""
    code: object = getattr(getattr(error, "orig", None) or error, "sqlite_errorcode", None)
    return code & 0xFF if isinstance(code, int) else 0


def _sqlstate_of(error: BaseException) -> str:
    state: object = getattr(getattr(error, "orig", None) or error, "sqlstate", None)
    return state if isinstance(state, str) else ""


def _words_of(error: BaseException) -> str:
    # Drivers put hints and a row's content on further lines.
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


_Result = TypeVar("_Result")

# Between one attempt and the next.
_CONFLICT_WAITS_SECONDS: Final = (0.02, 0.04, 0.06, 0.08)
_OUTAGE_WAITS_SECONDS: Final = (0.1, 0.5, 1.0, 2.0)
# An outage that took this long to show has been waited for already.
_PATIENCE_SECONDS: Final = 5.0
_CLOSE_SECONDS: Final = 10.0


class Transactions(Protocol):
    """One kind of database. The functions block, so they are run where that harms nobody."""

    async def read(self, work: Callable[[Connection], _Result]) -> _Result:
        """What the function returns; it changes nothing."""
        ...

    async def write(self, work: Callable[[Connection], _Result]) -> _Result:
        """What the function returns, once all that it did is committed; if it raises, nothing is.

        Not to be cut off by a cancellation: a transaction is short, and whoever gave up in the
        middle of a commit could not say whether it took place.
        """
        ...


class Database:
    """Runs functions within transactions."""

    def __init__(self, transactions: Transactions, place: Place, ownership: Ownership) -> None:
        self._transactions = transactions
        self._place = place
        self.ownership = ownership

    @property
    def address(self) -> str:
        return self._place.address

    def insert(self, table: Table) -> postgresql.Insert | sqlite.Insert:
        """An INSERT that can say what to do with a row that is there already."""
        is_server = isinstance(self._place, ServerLocation)
        return postgresql.insert(table) if is_server else sqlite.insert(table)

    async def ensure_ownership(self) -> None:
        with faults_of(self._place):
            await self.ownership.ensure()

    async def read(self, work: Callable[[Connection], _Result]) -> _Result:
        """The function is called again when its connection was lost."""
        transact = self._transactions.read
        return await self._attempt(transact, work, _CONFLICT_WAITS_SECONDS, is_lost)

    async def write(self, work: Callable[[Connection], _Result]) -> _Result:
        """The function is called again when another process got in its way, and when its
        connection was lost before anything could be committed."""
        transact = self._transactions.write
        return await self._attempt(transact, work, _CONFLICT_WAITS_SECONDS, is_conflict)

    async def write_through(self, work: Callable[[Connection], _Result]) -> _Result:
        """The function is also called again after what may be over in a moment.

        It has to notice that it was committed before: of a commit, only the answer may be lost.
        """
        transact = self._transactions.write
        return await self._attempt(transact, work, _OUTAGE_WAITS_SECONDS, is_transient)

    async def _attempt(
        self,
        transact: Callable[[Callable[[Connection], _Result]], Awaitable[_Result]],
        work: Callable[[Connection], _Result],
        waits_seconds: Sequence[float],
        is_curable: Callable[[BaseException], bool],
    ) -> _Result:
        has_worked = is_uncertain = False

        def work_and_note(connection: Connection) -> _Result:
            nonlocal has_worked
            result = work(connection)
            has_worked = True
            return result

        deadline = anyio.current_time() + _PATIENCE_SECONDS
        waits = iter(waits_seconds)
        while True:
            has_worked = False
            try:
                return await transact(work_and_note)
            except FAULTS as error:
                if has_worked:
                    # The commit failed. If it did so by itself, it also settles those before it.
                    is_uncertain = is_lost(error)
                wait_seconds = next(waits, None)
                is_late = anyio.current_time() > deadline and not is_conflict(error)
                is_undone = is_lost(error) and not has_worked
                if wait_seconds is None or is_late or not (is_undone or is_curable(error)):
                    raise storage_error_from(
                        error, self._place, is_uncertain=is_uncertain
                    ) from error
            await anyio.sleep(wait_seconds)


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


def now() -> float:
    return time.time()
