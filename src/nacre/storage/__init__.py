"""Sessions, turns, trajectories and approvals in a database; knows nothing of agents and models."""

from nacre.storage.records import (
    APPROVAL_STATES,
    TURN_STATUSES,
    ApprovalRecord,
    ApprovalState,
    Compaction,
    SessionRecord,
    StoredEvent,
    StoredMessage,
    TurnRecord,
    TurnStatus,
)
from nacre.storage.store import Store

__all__ = [
    "APPROVAL_STATES",
    "TURN_STATUSES",
    "ApprovalRecord",
    "ApprovalState",
    "Compaction",
    "SessionRecord",
    "Store",
    "StoredEvent",
    "StoredMessage",
    "TurnRecord",
    "TurnStatus",
]
