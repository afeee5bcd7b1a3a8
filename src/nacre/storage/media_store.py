"""Stores files of replies, and uploads that users may attach to messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlalchemy import delete, func, select

from nacre.errors import MediaError
from nacre.storage.database import now
from nacre.storage.records import MediaRecord
from nacre.storage.rows import check_id, clean_text, is_storable
from nacre.storage.schema import media, uploads

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import ColumnElement
    from sqlalchemy.engine import Connection, RowMapping

    from nacre.storage.database import Database
    from nacre.storage.leases import Leases

UPLOAD_SECONDS: Final = 24 * 3600.0
"""How long an upload can be attached to a message."""
_MAX_UPLOADS_BYTES: Final = 256 * 1024 * 1024


class MediaStore:
    """The files of a store. Every method raises StorageError when the database fails."""

    def __init__(self, database: Database, leases: Leases | None = None) -> None:
        self._database = database
        self._leases = leases

    async def add(self, record: MediaRecord, data: bytes) -> None:
        """Store a file of a reply. Its session must be stored."""
        row = {
            "id": check_id(record.id, "the media id"),
            "session_id": record.session_id,
            "run_id": record.run_id,
            "name": clean_text(record.name),
            "type": record.type,
            "size": record.size,
            "created": record.created,
            "data": data,
        }
        statement = self._database.insert_or_ignore(media)

        def work(connection: Connection) -> None:
            if self._leases is not None:
                self._leases.check(connection, record.session_id)
            connection.execute(statement, row)

        await self._database.write_through(work)

    async def find(self, media_id: str) -> tuple[MediaRecord, bytes] | None:
        """Return a file and its bytes."""
        if not is_storable(media_id):
            return None
        return await self._database.read(lambda it: _read_media(it, media_id))

    async def of_runs(self, run_ids: Sequence[str]) -> list[MediaRecord]:
        """Return the files of some runs without their bytes, oldest first."""
        ids = [run_id for run_id in run_ids if is_storable(run_id)]
        if not ids:
            return []
        return await self._database.read(lambda it: find_media(it, media.c.run_id.in_(ids)))

    async def add_upload(self, record: MediaRecord, data: bytes) -> None:
        """Store a file that a user may attach to a message, and delete the expired ones.

        Raises MediaError if all uploads together would be too large.
        """
        row = {
            "id": check_id(record.id, "the upload id"),
            "name": clean_text(record.name),
            "type": record.type,
            "size": record.size,
            "created": record.created,
            "data": data,
        }

        def work(connection: Connection) -> int:
            _delete_expired_uploads(connection)
            stored = select(func.coalesce(func.sum(uploads.c.size), 0))
            total = int(connection.execute(stored.where(uploads.c.id != record.id)).scalar_one())
            if total + record.size <= _MAX_UPLOADS_BYTES:
                connection.execute(self._database.insert_or_ignore(uploads), row)
            return total

        total = await self._database.write_through(work)
        if total + record.size > _MAX_UPLOADS_BYTES:
            raise MediaError(
                f"{record.name} has {record.size} bytes, and the uploads of the last 24 hours have "
                f"{total}; together they may have {_MAX_UPLOADS_BYTES}. Try again later, or put "
                "the file into the workspace of the agent"
            )

    async def delete_expired_uploads(self) -> int:
        """Delete the uploads that can no longer be attached, and return how many there were."""
        return await self._database.write_through(_delete_expired_uploads)

    async def find_upload(self, upload_id: str) -> tuple[MediaRecord, bytes] | None:
        """Return an uploaded file that has not expired, and its bytes."""
        if not is_storable(upload_id):
            return None
        query = select(uploads).where(
            uploads.c.id == upload_id, uploads.c.created > now() - UPLOAD_SECONDS
        )

        def work(connection: Connection) -> tuple[MediaRecord, bytes] | None:
            row = connection.execute(query).mappings().first()
            return None if row is None else _upload_from_row(row)

        return await self._database.read(work)


def find_media(connection: Connection, condition: ColumnElement[bool]) -> list[MediaRecord]:
    """Return the media without their bytes, oldest first."""
    columns = [column for column in media.c if column is not media.c.data]
    query = select(*columns).where(condition).order_by(media.c.created, media.c.id)
    return [MediaRecord(**row) for row in connection.execute(query).mappings()]


def _read_media(connection: Connection, media_id: str) -> tuple[MediaRecord, bytes] | None:
    is_it = media.c.id == media_id
    found = find_media(connection, is_it)
    if not found:
        return None
    return found[0], bytes(connection.execute(select(media.c.data).where(is_it)).scalar_one())


def _upload_from_row(row: RowMapping) -> tuple[MediaRecord, bytes]:
    record = MediaRecord(
        id=row["id"],
        session_id="",
        run_id="",
        name=row["name"],
        type=row["type"],
        size=row["size"],
        created=row["created"],
    )
    return record, bytes(row["data"])


def _delete_expired_uploads(connection: Connection) -> int:
    expired = uploads.c.created <= now() - UPLOAD_SECONDS
    return connection.execute(delete(uploads).where(expired)).rowcount
