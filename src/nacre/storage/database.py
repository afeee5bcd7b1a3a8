"""An open database: short transactions, tried again where that helps, faults as StorageError."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import anyio
from sqlalchemy.dialects import postgresql, sqlite

from nacre.storage.faults import FAULTS, faults_of, is_passing, storage_error_from
from nacre.storage.place import ServerPlace

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy.engine import Connection
    from sqlalchemy.schema import Table

    from nacre.storage.owners import Ownership
    from nacre.storage.place import Place

_Result = TypeVar("_Result")

_MAX_ATTEMPTS: Final = 5
_RETRY_SECONDS: Final = 0.02


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
        is_server = isinstance(self._place, ServerPlace)
        return postgresql.insert(table) if is_server else sqlite.insert(table)

    async def ensure_ownership(self) -> None:
        with faults_of(self._place):
            await self.ownership.ensure()

    async def read(self, work: Callable[[Connection], _Result]) -> _Result:
        try:
            return await self._transactions.read(work)
        except FAULTS as error:
            raise storage_error_from(error, self._place) from error

    async def write(self, work: Callable[[Connection], _Result]) -> _Result:
        """The function is called again when another process got in its way."""
        attempt = 0
        while True:
            attempt += 1
            try:
                return await self._transactions.write(work)
            except FAULTS as error:
                if attempt == _MAX_ATTEMPTS or not is_passing(error):
                    raise storage_error_from(error, self._place) from error
            await anyio.sleep(_RETRY_SECONDS * attempt)


def now() -> float:
    return time.time()
