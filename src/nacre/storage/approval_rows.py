"""Approvals in the database: what was asked, and what was answered."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import func, select, update

from nacre.storage.columns import is_storable, json_object, json_text, storable_id, storable_text
from nacre.storage.database import now
from nacre.storage.records import ApprovalRecord
from nacre.storage.schema import approvals, sessions, turns
from nacre.telemetry.redaction import Redaction

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection, RowMapping

    from nacre.storage.database import Database

_REDACTION: Final = Redaction()
_JSON_COLUMNS: Final = ("input", "answer")
_WITHDRAWN: Final = '{"answer":"withdrawn"}'


class ApprovalRows:
    """One row per question, written again when it is answered."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(self, record: ApprovalRecord) -> None:
        row = _row_of(record)
        statement = self._database.insert(approvals).values(row)
        statement = statement.on_conflict_do_update(index_elements=["id"], set_=row)
        # Twice is as good as once, and who allowed what should not be lost to a short outage.
        await self._database.write_through(lambda it: it.execute(statement))

    async def newest(
        self, *, session_id: str | None, limit: int, is_closed: bool
    ) -> list[ApprovalRecord]:
        if not is_storable(session_id or ""):
            return []
        query = (
            select(approvals, func.coalesce(sessions.c.agent_id, "").label("agent_id"))
            .outerjoin(sessions, sessions.c.id == approvals.c.session_id)
            .order_by(approvals.c.created.desc(), approvals.c.id.desc())
        )
        if is_closed:
            query = query.where(approvals.c.state != "open")
        if session_id is not None:
            query = query.where(approvals.c.session_id == session_id)

        def work(connection: Connection) -> list[ApprovalRecord]:
            return [_record_from(row) for row in connection.execute(query.limit(limit)).mappings()]

        return await self._database.read(work)


def withdraw_orphans(connection: Connection) -> None:
    """Close the questions of turns that do not run: nobody waits for their answers any more."""
    running = select(turns.c.run_id).where(turns.c.status == "running")
    connection.execute(
        update(approvals)
        .where(approvals.c.state == "open", approvals.c.run_id.not_in(running))
        .values(state="given_up", answer=_WITHDRAWN, answered=now())
    )


def _row_of(record: ApprovalRecord) -> dict[str, object]:
    row: dict[str, object] = {}
    for column in fields(record):
        if column.name == "agent_id":
            # The session knows.
            continue
        value: object = getattr(record, column.name)
        if column.name in _JSON_COLUMNS:
            # A person may have read a secret in it; nobody has to find it here later.
            kept = _REDACTION.value(value)
            value = json_text(kept, f"the approval {record.id}")
        row[column.name] = storable_text(value) if isinstance(value, str) else value
    return row | {"id": storable_id(record.id, "the approval id")}


def _record_from(row: RowMapping) -> ApprovalRecord:
    name = f"the approval {row['id']!r}"
    columns: dict[str, Any] = dict(row)
    for column in _JSON_COLUMNS:
        columns[column] = json_object(columns[column], name)
    return ApprovalRecord(**columns)
