"""Stores sessions, turns, trajectories, approvals and media in a database.

SQLAlchemy is large and an optional dependency, so it is imported when a store is opened.
"""

from contextlib import asynccontextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Final

import anyio.to_thread

from nacre.errors import StorageError
from nacre.lazy_exports import lazy_exports
from nacre.storage.records import (
    APPROVAL_STATES,
    TURN_STATUSES,
    ApprovalRecord,
    ApprovalState,
    BegunTurn,
    CallRecord,
    CellRecord,
    Compaction,
    GatewayRecord,
    InboxItem,
    InboxKind,
    Lease,
    LiveRunRecord,
    MediaRecord,
    RunBatch,
    SessionRecord,
    StoredEvent,
    StoredMessage,
    TakenSession,
    ThreadRecord,
    TurnRecord,
    TurnState,
    TurnStatus,
    Visibility,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from nacre.storage.cell_store import CellStore
    from nacre.storage.cluster import Cluster
    from nacre.storage.run_feed import RunFeed
    from nacre.storage.store import SessionChange, Store
    from nacre.storage.text_search import SearchHit, SearchRole

__all__ = [
    "APPROVAL_STATES",
    "TURN_STATUSES",
    "ApprovalRecord",
    "ApprovalState",
    "BegunTurn",
    "CallRecord",
    "CellRecord",
    "CellStore",
    "Cluster",
    "Compaction",
    "GatewayRecord",
    "InboxItem",
    "InboxKind",
    "Lease",
    "LiveRunRecord",
    "MediaRecord",
    "RunBatch",
    "RunFeed",
    "SearchHit",
    "SearchRole",
    "SessionChange",
    "SessionRecord",
    "Store",
    "StoredEvent",
    "StoredMessage",
    "TakenSession",
    "ThreadRecord",
    "TurnRecord",
    "TurnState",
    "TurnStatus",
    "Visibility",
    "open_store",
]

LOCK_SECONDS: Final = 10.0
"""How long a write waits while another process writes to the same SQLite file."""


@asynccontextmanager
async def open_store(url: str, *, lock_seconds: float = LOCK_SECONDS) -> "AsyncGenerator[Store]":
    """Open a store: `async with open_store("sqlite:///~/nacre.db") as store`.

    The URL may also be a `postgresql://` URL. Creates the file, its directory and the tables if
    they do not exist. Raises StorageError.
    """
    # The import takes too long for the event loop.
    await anyio.to_thread.run_sync(_import_modules)
    from nacre.storage.database import open_database
    from nacre.storage.store import Store

    async with open_database(url, lock_seconds=lock_seconds) as database:
        yield Store(database)


def _import_modules() -> None:
    try:
        for module in ("nacre.storage.database", "nacre.storage.store"):
            import_module(module)
    except ModuleNotFoundError as error:
        raise StorageError(
            f"sessions cannot be stored: the module {error.name!r} is not installed; "
            "install it with: pip install 'nacre-ai[gateway]'"
        ) from error


__getattr__ = lazy_exports(
    __name__,
    {
        "nacre.storage.cell_store": ("CellStore",),
        "nacre.storage.cluster": ("Cluster",),
        "nacre.storage.run_feed": ("RunFeed",),
        "nacre.storage.store": ("SessionChange", "Store"),
        "nacre.storage.text_search": ("SearchHit", "SearchRole"),
    },
)
