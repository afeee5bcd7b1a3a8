"""Stores requests for approval and their answers."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import func, select

from nacre.storage.records import ApprovalRecord
from nacre.storage.rows import check_id, clean_text, dump_json, is_storable, load_json_object
from nacre.storage.schema import approvals, sessions
from nacre.telemetry import Redaction

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection, RowMapping

    from nacre.storage.database import Database
    from nacre.storage.leases import Leases

_REDACTION: Final = Redaction()
_JSON_COLUMNS: Final = ("input", "answer")


class ApprovalStore:
    """The approvals of a store. Every method raises StorageError when the database fails."""

    def __init__(self, database: Database, leases: Leases | None = None) -> None:
        self._database = database
        self._leases = leases

    async def put(self, *records: ApprovalRecord) -> None:
        """Store requests for approval, all or none; later, with the same ids, their answers."""
        rows = [
            {**_approval_to_row(record), "id": check_id(record.id, "the approval id")}
            for record in records
        ]
        upsert = self._database.upsert(approvals)

        def work(connection: Connection) -> None:
            if self._leases is not None:
                # In the same order everywhere, so that no two transactions wait for each other.
                for session_id in sorted({record.session_id for record in records}):
                    self._leases.check(connection, session_id)
            for row in rows:
                connection.execute(upsert, row)

        # Writing it twice is harmless, and a short outage must not lose who allowed what.
        await self._database.write_through(work)

    async def find(self, approval_id: str) -> ApprovalRecord | None:
        """Return one approval."""
        found = await self.find_all(id=approval_id)
        return found[0] if found else None

    async def find_all(
        self,
        *,
        id: str | None = None,
        session_id: str | None = None,
        limit: int = 100,
        is_closed: bool = False,
        is_open: bool = False,
    ) -> list[ApprovalRecord]:
        """List approvals, newest first; with `is_closed`, only those that are not open, and with
        `is_open` only the others."""
        if not is_storable(session_id or "") or not is_storable(id or ""):
            return []
        query = (
            select(approvals, func.coalesce(sessions.c.agent_id, "").label("agent_id"))
            .outerjoin(sessions, sessions.c.id == approvals.c.session_id)
            .order_by(approvals.c.created.desc(), approvals.c.id.desc())
        )
        if is_closed:
            query = query.where(approvals.c.state != "open")
        if is_open:
            query = query.where(approvals.c.state == "open")
        if id is not None:
            query = query.where(approvals.c.id == id)
        if session_id is not None:
            query = query.where(approvals.c.session_id == session_id)

        def work(connection: Connection) -> list[ApprovalRecord]:
            found = connection.execute(query.limit(limit)).mappings()
            return [_approval_from_row(row) for row in found]

        return await self._database.read(work)


def _approval_to_row(record: ApprovalRecord) -> dict[str, object]:
    """Return the columns of an approval, with secrets redacted."""
    row: dict[str, object] = {}
    for column in fields(record):
        # Read from the session.
        if column.name == "agent_id":
            continue
        value: object = getattr(record, column.name)
        if column.name in _JSON_COLUMNS:
            value = dump_json(_REDACTION.value(value), f"the approval {record.id}")
        row[column.name] = clean_text(value) if isinstance(value, str) else value
    return row


def _approval_from_row(row: RowMapping) -> ApprovalRecord:
    name = f"the approval {row['id']!r}"
    columns: dict[str, Any] = dict(row)
    for column in _JSON_COLUMNS:
        columns[column] = load_json_object(columns[column], name)
    return ApprovalRecord(**columns)
