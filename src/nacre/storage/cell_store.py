"""Stores suspended cells, their nested calls, and the turns that wait for them.

Each write names the epoch that its process has last seen of the cell. If another process has taken
the cell over, the epoch has grown, and the write fails with CellTakenError. All times are those of
the database.
"""

from __future__ import annotations

import time
import zlib
from typing import TYPE_CHECKING, Any, Final

import anyio.to_thread
from sqlalchemy import (
    BigInteger,
    Double,
    bindparam,
    delete,
    func,
    insert,
    select,
    update,
)

from nacre.errors import CellTakenError, StorageError
from nacre.storage.records import CallRecord, CellRecord, TurnState
from nacre.storage.rows import (
    check_id,
    dump_json,
    is_storable,
    load_json_object,
    turn_state_from_row,
)
from nacre.storage.schema import cell_calls, cells, images, turn_states, turns

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy import Column, ColumnElement, Insert
    from sqlalchemy.engine import Connection, Row, RowMapping

    from nacre.storage.database import Database
    from nacre.storage.leases import Leases

# An image is deleted when it was not used for a day and no cell needs it. A process that suspends
# cells notes its image each hour.
_IMAGE_NOTE_SECONDS: Final = 3600.0
_UNUSED_SECONDS: Final = 86400.0
_MAX_IMAGE_BYTES: Final = 64 << 20
_EPOCH: Final = select(cells.c.epoch).where(cells.c.id == bindparam("of_cell"))
_DELETE: Final = delete(cells).where(
    cells.c.id == bindparam("of_cell"), cells.c.epoch == bindparam("of_epoch")
)
_FINISH_CALL: Final = (
    update(cell_calls)
    .where(
        cell_calls.c.cell_id == bindparam("of_cell"),
        cell_calls.c.request_id == bindparam("of_request"),
    )
    .values(state="done", result=bindparam("new_result"))
)

# Locks the row on PostgreSQL, so that the states of a turn are written one after the other.
_TURN_OWNER: Final = (
    select(turns.c.owner).where(turns.c.run_id == bindparam("of_run")).with_for_update()
)
_TURN_VERSION: Final = select(turn_states.c.version).where(
    turn_states.c.run_id == bindparam("of_run")
)


class CellStore:
    """The suspended cells in a database. Every method raises StorageError when it fails."""

    def __init__(self, database: Database, leases: Leases | None = None) -> None:
        self._database = database
        self._leases = leases
        self._is_locked_by_rows = database.dialect == "postgresql"
        self._now = database.now
        self._add = _build_add(self._now)
        self._image_noted_until = 0.0

    async def suspend(
        self,
        record: CellRecord,
        *,
        ttl_seconds: float,
        max_per_session: int,
        turn_state: TurnState | None = None,
    ) -> bool:
        """Store a cell that waits, with its calls and the state of its turn, in one transaction.

        `record.epoch` is the new epoch, one more than the stored one. Returns False, and stores
        nothing, if the session has `max_per_session` other cells. Raises CellTakenError.
        """
        row = {
            "id": check_id(record.id, "the cell id"),
            "session_id": record.session_id,
            "run_id": record.run_id,
            "call_id": record.call_id,
            "scope": record.scope,
            "owner": self._database.ownership.owner,
            "epoch": record.epoch,
            "number": record.number,
            "data": dump_json(record.data, f"the cell {record.id}"),
            "image": record.image,
        }
        open_ids = [call.request_id for call in record.calls]
        new = {f"new_{name}": value for name, value in row.items()}
        new |= {
            "new_snapshot": record.snapshot,
            "new_ttl": ttl_seconds,
            "of_cell": record.id,
            "of_session": record.session_id,
            "max_cells": max_per_session,
        }

        def work(connection: Connection) -> bool:
            if self._leases is not None:
                self._leases.check(connection, record.session_id)
            if record.epoch == 1 and connection.execute(self._add, new).rowcount:
                self._add_calls(connection, record.id, record.calls)
                if turn_state is not None:
                    self._put_turn_state(connection, turn_state)
                return True
            found = self._lock(connection, record.id)
            if found is not None and found.epoch == record.epoch:
                # An earlier attempt was committed, and only its response was lost.
                return True
            if (0 if found is None else found.epoch) != record.epoch - 1:
                raise _taken(record.id)
            if found is None:
                return False
            change = update(cells).where(cells.c.id == record.id)
            # A snapshot that has not changed is not written again.
            if found.number != record.number:
                change = change.values(snapshot=record.snapshot)
            connection.execute(change.values(**row, deadline=self._now + ttl_seconds))
            connection.execute(
                delete(cell_calls).where(
                    cell_calls.c.cell_id == record.id,
                    cell_calls.c.request_id.not_in(open_ids),
                )
            )
            self._add_calls(connection, record.id, record.calls)
            if turn_state is not None:
                self._put_turn_state(connection, turn_state)
            return True

        return await self._database.write_through(work)

    async def find(self, cell_id: str) -> CellRecord | None:
        """Return a cell with its calls, also if it has expired."""
        found = await self._find(cells.c.id, cell_id)
        return found[0] if found else None

    async def of_run(self, run_id: str) -> list[CellRecord]:
        """Return the cells of a run, oldest first."""
        return await self._find(cells.c.run_id, run_id)

    async def claim(self, record: CellRecord) -> int:
        """Take over a cell from a process that has ended; returns the new epoch.

        Raises CellTakenError if its process is alive, or if another one was faster.
        """
        owner = select(cells.c.owner).where(cells.c.id == record.id)
        change = (
            update(cells)
            .where(cells.c.id == record.id, cells.c.epoch == record.epoch)
            .values(epoch=record.epoch + 1, owner=self._database.ownership.owner)
        )

        attempts = 0

        def work(connection: Connection) -> None:
            nonlocal attempts
            attempts += 1
            ownership = self._database.ownership
            others = ownership.alive(connection) - {ownership.owner}
            held_by = connection.execute(owner).scalar()
            if held_by not in others and connection.execute(change).rowcount:
                return
            # An earlier attempt may have been committed, and only its response was lost.
            found = self._lock(connection, record.id)
            is_mine = found is not None and found.epoch == record.epoch + 1
            if attempts == 1 or held_by != ownership.owner or not is_mine:
                raise _taken(record.id)

        await self._database.write_through(work)
        return record.epoch + 1

    async def delete(self, cell_id: str, *, epoch: int) -> None:
        """Delete a cell that has ended. Raises CellTakenError."""

        def work(connection: Connection) -> None:
            deleted = connection.execute(_DELETE, {"of_cell": cell_id, "of_epoch": epoch}).rowcount
            if not deleted and self._lock(connection, cell_id) is not None:
                raise _taken(cell_id)

        await self._database.write_through(work)

    async def delete_expired(self) -> int:
        """Delete the cells whose deadline has passed for a day, and the images that no cell needs;
        returns the number of cells.

        Until then, a `wait` learns that its cell has expired.
        """
        query = delete(cells).where(cells.c.deadline < self._now - _UNUSED_SECONDS)
        unused = delete(images).where(
            images.c.used < self._now - _UNUSED_SECONDS,
            images.c.identity.not_in(select(cells.c.image)),
        )

        def work(connection: Connection) -> int:
            count = connection.execute(query).rowcount
            connection.execute(unused)
            return count

        return await self._database.write_through(work)

    # Images.

    async def keep_image(self, identity: str, read_wasm: Callable[[], bytes]) -> None:
        """Store the image of cells that are going to be suspended, if that was not done lately."""
        if time.monotonic() < self._image_noted_until:
            return
        note = update(images).where(images.c.identity == identity).values(used=self._now)
        if not await self._database.write_through(lambda it: it.execute(note).rowcount):
            packed = await anyio.to_thread.run_sync(lambda: zlib.compress(read_wasm(), 1))
            add = self._database.insert_or_ignore(images)
            row = {"identity": identity, "wasm": packed, "used": 0.0}

            def work(connection: Connection) -> None:
                connection.execute(add, row)
                connection.execute(note)

            await self._database.write_through(work)
        self._image_noted_until = time.monotonic() + _IMAGE_NOTE_SECONDS

    async def find_image(self, identity: str) -> bytes | None:
        """Return the module of an image that `keep_image` has stored."""
        if not is_storable(identity):
            return None
        query = select(images.c.wasm).where(images.c.identity == identity)
        packed = await self._database.read(lambda it: it.execute(query).scalar())
        if packed is None:
            return None
        try:
            # Limited, because the row may be forged. The sandbox checks the hash.
            return await anyio.to_thread.run_sync(
                lambda: zlib.decompressobj().decompress(packed, _MAX_IMAGE_BYTES)
            )
        except zlib.error as error:
            raise StorageError(f"the image {identity[:12]} cannot be read: {error}") from error

    # Calls.

    async def start_call(self, cell_id: str, call: CallRecord, *, epoch: int) -> None:
        """Record that a tool is about to run. Raises CellTakenError."""

        def work(connection: Connection) -> None:
            self._check_epoch(connection, cell_id, epoch)
            self._add_calls(connection, cell_id, [call])

        await self._database.write_through(work)

    async def finish_call(self, cell_id: str, request_id: int, result: str, *, epoch: int) -> None:
        """Record the answer of a call. Raises CellTakenError."""
        given = {"of_cell": cell_id, "of_request": request_id, "new_result": result}

        def work(connection: Connection) -> None:
            self._check_epoch(connection, cell_id, epoch)
            connection.execute(_FINISH_CALL, given)

        await self._database.write_through(work)

    # Turns.

    async def put_turn_state(self, state: TurnState) -> None:
        """Store what a turn needs to continue. Raises CellTakenError."""
        await self._database.write_through(lambda it: self._put_turn_state(it, state))

    async def delete_turn_state(self, run_id: str) -> None:
        """The turn cannot be continued any more from what was stored."""
        query = delete(turn_states).where(turn_states.c.run_id == run_id)

        def work(connection: Connection) -> None:
            if self._leases is not None:
                self._leases.check_run(connection, run_id)
            connection.execute(query)

        await self._database.write_through(work)

    async def adopt_turns(self) -> list[TurnState]:
        """Take over the turns that wait, and whose processes have ended; oldest first."""
        query = (
            select(turn_states, turns.c.owner, (self._now - turn_states.c.updated).label("age"))
            .join(turns, turns.c.run_id == turn_states.c.run_id)
            .where(turns.c.status == "running")
            .order_by(turns.c.started)
        )
        if self._is_locked_by_rows:
            query = query.with_for_update()

        mine: set[str] = set()

        def work(connection: Connection) -> list[TurnState]:
            found = connection.execute(query).mappings().all()
            # Now that the rows are locked: their owner may have just started.
            alive = self._database.ownership.alive(connection)
            # An earlier attempt may have been committed, and only its response was lost.
            adopted = [it for it in found if it["owner"] not in alive or it["run_id"] in mine]
            owner = self._database.ownership.owner
            mine.update(row["run_id"] for row in adopted)
            connection.execute(update(turns).where(turns.c.run_id.in_(mine)).values(owner=owner))
            return [turn_state_from_row(row) for row in adopted]

        return await self._database.write_through(work)

    # Rows.

    def _lock(self, connection: Connection, cell_id: str) -> Row[int, int] | None:
        query = select(cells.c.epoch, cells.c.number).where(cells.c.id == cell_id)
        if self._is_locked_by_rows:
            query = query.with_for_update()
        return connection.execute(query).first()

    def _check_epoch(self, connection: Connection, cell_id: str, epoch: int) -> None:
        query = _EPOCH.with_for_update() if self._is_locked_by_rows else _EPOCH
        if connection.execute(query, {"of_cell": cell_id}).scalar() != epoch:
            raise _taken(cell_id)

    def _add_calls(self, connection: Connection, cell_id: str, calls: Sequence[CallRecord]) -> None:
        if calls:
            connection.execute(
                self._database.upsert(cell_calls),
                [
                    {
                        "cell_id": cell_id,
                        "request_id": call.request_id,
                        "tool_id": call.tool_id,
                        "state": call.state,
                        "result": call.result,
                    }
                    for call in calls
                ],
            )

    def _put_turn_state(self, connection: Connection, state: TurnState) -> None:
        if self._leases is not None:
            self._leases.check(connection, state.session_id)
        owner = connection.execute(_TURN_OWNER, {"of_run": state.run_id}).scalar()
        if owner != self._database.ownership.owner:
            raise CellTakenError(f"the turn {state.run_id} was continued by another process")
        values = {
            "session_id": state.session_id,
            "version": state.version,
            "data": dump_json(state.data, f"the turn {state.run_id}"),
            "updated": self._now,
        }
        stored = connection.execute(_TURN_VERSION, {"of_run": state.run_id}).scalar()
        if stored is None:
            connection.execute(insert(turn_states).values(run_id=state.run_id, **values))
        elif stored < state.version:
            change = update(turn_states).where(turn_states.c.run_id == state.run_id)
            connection.execute(change.values(**values))

    async def _find(self, column: Column[str], value: str) -> list[CellRecord]:
        if not is_storable(value):
            return []
        query = (
            select(cells, (cells.c.deadline - self._now).label("seconds_left"))
            .where(column == value)
            .order_by(cells.c.created, cells.c.id)
        )

        def work(connection: Connection) -> list[CellRecord]:
            found = connection.execute(query).mappings().all()
            calls = select(cell_calls).where(cell_calls.c.cell_id.in_([it["id"] for it in found]))
            by_cell: dict[str, list[CallRecord]] = {}
            for row in connection.execute(calls).mappings() if found else ():
                by_cell.setdefault(row["cell_id"], []).append(_call_from_row(row))
            return [_cell_from_row(row, by_cell.get(row["id"], [])) for row in found]

        return await self._database.read(work)


def _build_add(now: ColumnElement[Any]) -> Insert:
    """One statement that adds a cell, unless it exists or its session has too many of them."""
    columns = [
        column for column in cells.columns if column.name not in ("snapshot", "created", "deadline")
    ]
    values = [bindparam(f"new_{column.name}", type_=column.type) for column in columns]
    others = (
        select(func.count())
        .where(cells.c.session_id == bindparam("of_session"), cells.c.deadline > now)
        .scalar_subquery()
    )
    same = cells.alias()
    is_new = ~select(same.c.id).where(same.c.id == bindparam("of_cell")).exists()
    row = select(
        *values,
        bindparam("new_snapshot", type_=cells.c.snapshot.type),
        now,
        now + bindparam("new_ttl", type_=Double),
    ).where(others < bindparam("max_cells", type_=BigInteger), is_new)
    names = [*(column.name for column in columns), "snapshot", "created", "deadline"]
    return insert(cells).from_select(names, row)


def _call_from_row(row: RowMapping) -> CallRecord:
    return CallRecord(
        request_id=row["request_id"],
        tool_id=row["tool_id"],
        state="done" if row["state"] == "done" else "started",
        result=row["result"],
    )


def _cell_from_row(row: RowMapping, calls: list[CallRecord]) -> CellRecord:
    return CellRecord(
        id=row["id"],
        session_id=row["session_id"],
        run_id=row["run_id"],
        call_id=row["call_id"],
        scope=row["scope"],
        epoch=row["epoch"],
        number=row["number"],
        snapshot=bytes(row["snapshot"]),
        data=load_json_object(row["data"], f"the cell {row['id']!r}"),
        calls=tuple(calls),
        image=row["image"],
        seconds_left=row["seconds_left"],
    )


def _taken(cell_id: str) -> CellTakenError:
    return CellTakenError(
        f"the cell {cell_id} was continued by another process, or has ended; nothing was stored"
    )
