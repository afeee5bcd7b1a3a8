"""The events of live runs in the database, for readers at other gateways.

One row holds a batch of events of one run. Rows of runs that ended an hour ago are deleted; their
trajectories stay.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from sqlalchemy import and_, or_, select, text

from nacre.json_types import encode_json
from nacre.storage.leases import notify
from nacre.storage.records import LiveRunRecord, RunBatch
from nacre.storage.rows import dump_json, is_storable, load_json_object
from nacre.storage.schema import run_events, runs

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sqlalchemy import Select
    from sqlalchemy.engine import Connection, RowMapping

    from nacre.json_types import JsonObject
    from nacre.storage.database import Database
    from nacre.storage.leases import Leases

_KEEP_SECONDS: Final = 3600.0
# PostgreSQL allows 8,000 bytes in a notification.
_MAX_NOTIFIED: Final = 60
_MAX_BATCHES: Final = 200
_NOW: Final = "extract(epoch from clock_timestamp())"
_LIVE: Final = ("queued", "running", "waiting")
_PUT_RUN: Final = text(
    f"""
    INSERT INTO nacre_runs (run_id, session_id, owner, state, data, updated)
    VALUES (:run_id, :session_id, :owner, :state, :data, {_NOW})
    ON CONFLICT (run_id) DO UPDATE SET owner = :owner, state = :state, updated = {_NOW}
    """
)
_ADD_EVENTS: Final = text(
    f"""
    INSERT INTO nacre_run_events (run_id, sequence, events, created)
    VALUES (:run_id, :sequence, :events, {_NOW}) ON CONFLICT DO NOTHING
    """
)
# A run that is accepted, and whose first events are not written yet.
_FIND_NEW: Final = text(
    """
    SELECT nacre_sessions.id AS session_id, nacre_sessions.agent_id, nacre_sessions.key,
        nacre_leases.owner
    FROM (
        SELECT session_id FROM nacre_turns WHERE run_id = :run_id AND status = 'running'
        UNION SELECT session_id FROM nacre_inbox
        WHERE run_id = :run_id AND kind = 'message' AND state <> 'done'
    ) AS found
    JOIN nacre_leases USING (session_id)
    JOIN nacre_sessions ON nacre_sessions.id = found.session_id
    """
)
_DELETE_OLD: Final = text(
    f"DELETE FROM nacre_runs WHERE updated < {_NOW} - :seconds "
    "AND state NOT IN ('queued', 'running', 'waiting')"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class FedRun:
    """What a reader gets: a run, and its events after those that the reader has."""

    record: LiveRunRecord
    events: Sequence[JsonObject]


class RunFeed:
    """The runs of all gateways. Every method raises StorageError when the database fails."""

    def __init__(self, database: Database, leases: Leases) -> None:
        self._database = database
        self._leases = leases

    async def write(
        self, batches: Sequence[RunBatch], changed_sessions: Sequence[tuple[str, str]] = ()
    ) -> None:
        """Store batches of events and notify all gateways once. `changed_sessions` are ids and
        changes, which are only in the notification.

        Batches of sessions whose lease is lost are left out: their run goes on elsewhere.
        """
        rows = {batch.run_id: _encode_events(batch) for batch in batches}

        def work(connection: Connection) -> None:
            connection.execute(text("SET LOCAL synchronous_commit = off"))
            valid = self._find_valid(connection, batches)
            self._write_runs(connection, valid)
            added = [rows[batch.run_id] for batch in valid if batch.events]
            if added:
                connection.execute(_ADD_EVENTS, added)
            run_ids = [batch.run_id for batch in valid]
            _notify_all(connection, run_ids, changed_sessions, owner=self._leases.owner)

        await self._database.write_through(work)

    def _find_valid(
        self, connection: Connection, batches: Sequence[RunBatch]
    ) -> Sequence[RunBatch]:
        lost = self._leases.find_lost(connection, {batch.session_id for batch in batches})
        return [batch for batch in batches if batch.session_id not in lost]

    def _write_runs(self, connection: Connection, batches: Sequence[RunBatch]) -> None:
        changed = [
            {
                "run_id": batch.run_id,
                "session_id": batch.session_id,
                "owner": self._leases.owner,
                "state": batch.state,
                "data": dump_json(batch.data, f"the run {batch.run_id}"),
            }
            for batch in batches
            if batch.is_changed
        ]
        if changed:
            connection.execute(_PUT_RUN, changed)

    async def find(self, run_id: str) -> LiveRunRecord | None:
        """Return a run that has not ended, or ended within the last hour; `queued` if its events
        are not written yet."""
        if not is_storable(run_id):
            return None
        query = select(runs).where(runs.c.run_id == run_id)

        def work(connection: Connection) -> LiveRunRecord | None:
            row = connection.execute(query).mappings().first()
            if row is not None:
                return _run_from_row(row)
            new = connection.execute(_FIND_NEW, {"run_id": run_id}).mappings().first()
            return None if new is None else _new_run_from_row(run_id, new)

        return await self._database.read(work)

    async def live_runs(self, session_id: str = "") -> list[LiveRunRecord]:
        """Return the runs of other gateways that have not ended; of one session, if given."""
        query = select(runs).where(runs.c.state.in_(_LIVE), runs.c.owner != self._leases.owner)
        if session_id:
            query = query.where(runs.c.session_id == session_id)

        def work(connection: Connection) -> list[LiveRunRecord]:
            found = connection.execute(query.order_by(runs.c.updated)).mappings()
            return [_run_from_row(row) for row in found]

        return await self._database.read(work)

    async def read(self, after: Mapping[str, int]) -> list[FedRun]:
        """Return these runs, each with its events after a number. A run with many new events has
        only the first of them; ask again."""
        if not after:
            return []
        query = _select_events(after).limit(_MAX_BATCHES)

        def work(connection: Connection) -> list[FedRun]:
            # First: the end of a run is in the events that are read after it.
            records = connection.execute(select(runs).where(runs.c.run_id.in_(after))).mappings()
            found = {row["run_id"]: _run_from_row(row) for row in records.all()}
            events = _collect_events(connection.execute(query).mappings(), after)
            return [
                FedRun(record=record, events=events.get(run_id, []))
                for run_id, record in found.items()
            ]

        return await self._database.read(work)

    async def events_after(self, after: Mapping[str, int]) -> dict[str, list[JsonObject]]:
        """Return all events of these runs after a number; nothing for a run that has none."""
        if not after:
            return {}

        def work(connection: Connection) -> dict[str, list[JsonObject]]:
            return _collect_events(connection.execute(_select_events(after)).mappings(), after)

        return await self._database.read(work)

    async def delete_old(self) -> None:
        """Delete the runs that ended an hour ago."""
        given = {"seconds": _KEEP_SECONDS}
        await self._database.write_through(lambda it: it.execute(_DELETE_OLD, given))


def _encode_events(batch: RunBatch) -> dict[str, object]:
    if not batch.events:
        return {}
    return {
        "run_id": batch.run_id,
        "sequence": batch.events[-1]["sequence"],
        "events": dump_json({"events": [*batch.events]}, f"events of {batch.run_id}"),
    }


def _select_events(after: Mapping[str, int]) -> Select[Any]:
    is_new = or_(
        *(
            and_(run_events.c.run_id == run_id, run_events.c.sequence > number)
            for run_id, number in after.items()
        )
    )
    return select(run_events).where(is_new).order_by(run_events.c.run_id, run_events.c.sequence)


def _collect_events(
    rows: Iterable[RowMapping], after: Mapping[str, int]
) -> dict[str, list[JsonObject]]:
    """The events of each run in order. A batch may begin with events that the reader has, and one
    that was written again has those of an earlier batch."""
    found: dict[str, list[JsonObject]] = {}
    last = dict(after)
    for row in rows:
        run_id = row["run_id"]
        batch = load_json_object(row["events"], f"events of the run {run_id!r}")
        for event in cast("list[dict[str, Any]]", batch["events"]):
            if event["sequence"] > last[run_id]:
                last[run_id] = event["sequence"]
                found.setdefault(run_id, []).append(event)
    return found


def _notify_all(
    connection: Connection,
    run_ids: Sequence[str],
    sessions: Sequence[tuple[str, str]],
    *,
    owner: str,
) -> None:
    for start in range(0, max(len(run_ids), len(sessions)), _MAX_NOTIFIED):
        end = start + _MAX_NOTIFIED
        payload: JsonObject = {
            "runs": [*run_ids[start:end]],
            "sessions": {"from": owner, "changed": [list(it) for it in sessions[start:end]]},
        }
        notify(connection, encode_json(payload).decode())


def _run_from_row(row: RowMapping) -> LiveRunRecord:
    return LiveRunRecord(
        run_id=row["run_id"],
        session_id=row["session_id"],
        owner=row["owner"],
        state=row["state"],
        data=load_json_object(row["data"], f"the run {row['run_id']!r}"),
    )


def _new_run_from_row(run_id: str, row: RowMapping) -> LiveRunRecord:
    return LiveRunRecord(
        run_id=run_id,
        session_id=row["session_id"],
        owner=row["owner"],
        state="queued",
        data={
            "agentId": row["agent_id"],
            "sessionKey": row["key"],
            "isStored": True,
            "command": "",
        },
    )
