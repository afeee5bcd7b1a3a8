"""What went wrong in a database, said to people: which database, what, and what to do."""

from __future__ import annotations

import sqlite3
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from nacre.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Generator

    from nacre.storage.place import Place

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
