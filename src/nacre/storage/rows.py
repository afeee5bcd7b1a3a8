"""The rows of every table of one database, each kind in its own file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from nacre.storage.approval_rows import ApprovalRows
from nacre.storage.event_rows import EventRows
from nacre.storage.message_rows import MessageRows
from nacre.storage.session_rows import SessionRows
from nacre.storage.turn_rows import TurnRows

if TYPE_CHECKING:
    from nacre.storage.database import Database


@dataclass(frozen=True, kw_only=True, slots=True)
class Rows:
    """What a store reads and writes."""

    sessions: SessionRows
    turns: TurnRows
    messages: MessageRows
    events: EventRows
    approvals: ApprovalRows


def rows_in(database: Database) -> Rows:
    return Rows(
        sessions=SessionRows(database),
        turns=TurnRows(database),
        messages=MessageRows(database),
        events=EventRows(database),
        approvals=ApprovalRows(database),
    )
