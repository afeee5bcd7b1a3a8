"""Reads sessions, runs and events from the store for commands that run no agent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from nacre.cli.output import UsageError, shorten
from nacre.cli.runner import run_async
from nacre.errors import NacreError, StorageError
from nacre.json_types import encode_json
from nacre.storage import open_store
from nacre.tools import NearestNames
from nacre.trajectory import TrajectoryFormatError, import_json_lines

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence

    from nacre.config import SystemConfig
    from nacre.storage import SessionRecord, Store, StoredEvent
    from nacre.trajectory import TrajectoryEvent


_Result = TypeVar("_Result")


def read_stored(config: SystemConfig, read: Callable[[Store], Awaitable[_Result]]) -> _Result:
    """Open the configured store and call `read`. Raises UsageError and StorageError."""
    return run_async(lambda: _read_from_store(config.storage.url, read))


async def _read_from_store(url: str, read: Callable[[Store], Awaitable[_Result]]) -> _Result:
    done: list[_Result] = []
    problem: Exception | None = None
    async with open_store(url) as store:
        try:
            done.append(await read(store))
        except (NacreError, UsageError) as error:
            # Raised below: the store might wrap it.
            problem = error
    if problem is not None:
        raise problem
    return done[0]


_MAX_SESSION_NAMES: Final = 1000
_MAX_SHOWN: Final = 3


async def find_session(
    store: Store, named: str, *, agent_ids: Sequence[str]
) -> SessionRecord | None:
    """Find a session by id or key. Raises UsageError for a key of several agents."""
    by_id = await store.session(named)
    if by_id is not None:
        return by_id
    found = [await store.session_by_key(agent_id, named) for agent_id in agent_ids]
    known = [session for session in found if session is not None]
    if len(known) > 1:
        whose = ", ".join(f"{session.id} (agent {session.agent_id})" for session in known)
        raise UsageError(f"several agents have a session {named!r}: {whose}; use its id")
    return known[0] if known else None


async def session_names(store: Store) -> list[str]:
    """The ids and keys of the most recent sessions."""
    recent = await store.sessions(limit=_MAX_SESSION_NAMES)
    return [name for session in recent for name in (session.id, session.key) if name]


def unknown_name_problem(what: str, named: str, known: Iterable[str], *, where: str) -> UsageError:
    """The error for an unknown name, with similar names."""
    names = list(known)
    near = [name for name in names if named and name.startswith(named)]
    near = near or NearestNames(names).nearest(named, _MAX_SHOWN)
    shown = ", ".join(shorten(name, max_characters=80) for name in near[:_MAX_SHOWN])
    hint = f"did you mean {shown}? " if shown else ""
    name = shorten(named, max_characters=80)
    return UsageError(f"there is no {what} {name!r}; {hint}{where}")


_PAGE_EVENTS: Final = 1000
_MAX_SESSIONS_SEARCHED: Final = 50
_MAX_TURNS: Final = 1_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class EventSelection:
    """Selects the events of one run, or of all runs of a session."""

    run_id: str | None = None
    session_id: str | None = None


async def find_record(store: Store, named: str, *, agent_ids: Sequence[str]) -> EventSelection:
    """Find a run by id, or a session by id or key. Raises UsageError."""
    if await store.turn(named) is not None or await store.events(run_id=named, limit=1):
        return EventSelection(run_id=named)
    session = await find_session(store, named, agent_ids=agent_ids)
    if session is not None:
        return EventSelection(session_id=session.id)
    known = [*await session_names(store), *await _run_ids(store)]
    where = "`nacre sessions list` lists the sessions, `nacre sessions show ID` their runs"
    raise unknown_name_problem("run or session", named, known, where=where)


async def read_event_pages(
    store: Store, record: EventSelection
) -> AsyncGenerator[list[StoredEvent]]:
    """Read the events in pages, in the order in which they were stored."""
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


async def run_ids_of(store: Store, record: EventSelection) -> list[str]:
    """The ids of the selected runs, oldest first."""
    if record.session_id is None:
        return [record.run_id or ""]
    return [turn.run_id for turn in await store.turns(record.session_id, _MAX_TURNS)]


async def events_of_run(store: Store, run_id: str) -> tuple[TrajectoryEvent, ...]:
    """All events of one run. Raises StorageError for an invalid event."""
    lines = [
        encode_json(stored.event).decode()
        async for page in read_event_pages(store, EventSelection(run_id=run_id))
        for stored in page
    ]
    try:
        return import_json_lines("\n".join(lines))
    except TrajectoryFormatError as error:
        raise StorageError(f"the trajectory of {run_id} cannot be read: {error}") from error


async def _run_ids(store: Store) -> list[str]:
    recent = await store.sessions(limit=_MAX_SESSIONS_SEARCHED)
    return [turn.run_id for session in recent for turn in await store.turns(session.id)]
