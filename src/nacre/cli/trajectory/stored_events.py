"""Events of trajectories out of the store, page by page, and what they are of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from nacre.cli.sessions.named_session import find_session, session_names, unknown_name_problem
from nacre.errors import StorageError
from nacre.json_types import encode_json
from nacre.trajectory import TrajectoryFormatError, import_json_lines

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from nacre.storage import Store, StoredEvent
    from nacre.trajectory import TrajectoryEvent

_PAGE_EVENTS: Final = 1000
_MAX_SESSIONS_SEARCHED: Final = 50
_MAX_TURNS: Final = 1_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordOf:
    """Whose events: those of one run, or of all runs of a session."""

    run_id: str | None = None
    session_id: str | None = None


async def find_record(store: Store, named: str, *, agent_ids: Sequence[str]) -> RecordOf:
    """A run's id, or a session's id or key; raises UsageProblem for what is none."""
    if await store.turn(named) is not None or await store.events(run_id=named, limit=1):
        return RecordOf(run_id=named)
    session = await find_session(store, named, agent_ids=agent_ids)
    if session is not None:
        return RecordOf(session_id=session.id)
    known = [*await session_names(store), *await _run_ids(store)]
    where = "`nacre sessions list` shows the sessions, `nacre sessions show ID` their runs"
    raise unknown_name_problem("run or session", named, known, where=where)


async def pages(store: Store, record: RecordOf) -> AsyncGenerator[list[StoredEvent]]:
    """In the order in which they were stored."""
    after = -1
    while True:
        page = await store.events(
            run_id=record.run_id, session_id=record.session_id, after=after, limit=_PAGE_EVENTS
        )
        if page:
            after = page[-1].number
            yield page
        if len(page) < _PAGE_EVENTS:
            return


async def run_ids_of(store: Store, record: RecordOf) -> list[str]:
    """The runs that it is about, the oldest first."""
    if record.session_id is None:
        return [record.run_id or ""]
    return [turn.run_id for turn in await store.turns(record.session_id, _MAX_TURNS)]


async def events_of_run(store: Store, run_id: str) -> tuple[TrajectoryEvent, ...]:
    """All of one run; raises StorageError for what cannot be an event."""
    lines = [
        encode_json(stored.event).decode()
        async for page in pages(store, RecordOf(run_id=run_id))
        for stored in page
    ]
    try:
        return import_json_lines("\n".join(lines))
    except TrajectoryFormatError as error:
        raise StorageError(f"the trajectory of {run_id} cannot be read: {error}") from error


async def _run_ids(store: Store) -> list[str]:
    recent = await store.sessions(limit=_MAX_SESSIONS_SEARCHED)
    return [turn.run_id for session in recent for turn in await store.turns(session.id)]
