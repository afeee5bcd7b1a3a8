"""An open database: short transactions, tried again where that helps, faults as StorageError."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import anyio
from sqlalchemy.dialects import postgresql, sqlite

from nacre.storage.faults import (
    FAULTS,
    faults_of,
    is_conflict,
    is_lost,
    is_transient,
    storage_error_from,
)
from nacre.storage.place import ServerLocation

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from sqlalchemy.engine import Connection
    from sqlalchemy.schema import Table

    from nacre.storage.owners import Ownership
    from nacre.storage.place import Place

_Result = TypeVar("_Result")

# Between one attempt and the next.
_CONFLICT_WAITS_SECONDS: Final = (0.02, 0.04, 0.06, 0.08)
_OUTAGE_WAITS_SECONDS: Final = (0.1, 0.5, 1.0, 2.0)
# An outage that took this long to show has been waited for already.
_PATIENCE_SECONDS: Final = 5.0


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


def now() -> float:
    return time.time()
