"""Approvals in the database: what was asked, and what was answered."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import select

from nacre.storage.json_columns import json_object, json_text
from nacre.storage.records import ApprovalRecord
from nacre.storage.tables import approvals
from nacre.storage.text_rules import is_storable, storable_id, storable_text
from nacre.telemetry.redaction import Redaction

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection, RowMapping

    from nacre.storage.database import Database

_REDACTION: Final = Redaction()
_JSON_COLUMNS: Final = ("input", "answer")


class ApprovalRows:
    """One row per question, written again when it is answered."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(self, record: ApprovalRecord) -> None:
        row = _row_of(record)
        statement = self._database.insert(approvals).values(row)
        statement = statement.on_conflict_do_update(index_elements=["id"], set_=row)
        await self._database.write(lambda it: it.execute(statement))

    async def newest(self, *, session_id: str | None, limit: int) -> list[ApprovalRecord]:
        if not is_storable(session_id or ""):
            return []
        query = select(approvals).order_by(approvals.c.created.desc(), approvals.c.id.desc())
        if session_id is not None:
            query = query.where(approvals.c.session_id == session_id)

        def work(connection: Connection) -> list[ApprovalRecord]:
            return [_record_from(row) for row in connection.execute(query.limit(limit)).mappings()]

        return await self._database.read(work)


def _row_of(record: ApprovalRecord) -> dict[str, object]:
    row: dict[str, object] = {}
    for column in fields(record):
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
