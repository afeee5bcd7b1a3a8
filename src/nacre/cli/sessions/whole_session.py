"""A session as it is shown: its turns with their messages, and the calls inside of calls."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nacre.cli.stored_records import events_of_run
from nacre.trajectory import project

if TYPE_CHECKING:
    from nacre.messages import Message
    from nacre.storage import SessionRecord, Store, TurnRecord
    from nacre.trajectory import CallNode


@dataclass(frozen=True, kw_only=True, slots=True)
class WholeTurn:
    """A turn, and what is kept of it elsewhere."""

    record: TurnRecord
    messages: list[Message]
    """Of a turn that has not ended its prompt alone."""
    calls: list[CallNode]


@dataclass(frozen=True, kw_only=True, slots=True)
class WholeSession:
    """A session and its last turns, the oldest of them first."""

    session: SessionRecord
    turns: list[WholeTurn]
    earlier_turns: int
    """How many turns are left out."""


async def read_whole_session(store: Store, session: SessionRecord, *, limit: int) -> WholeSession:
    """The session with its last `limit` turns."""
    records = await store.turns(session.id, limit)
    messages: defaultdict[str, list[Message]] = defaultdict(list)
    for stored in await store.messages(session.id, whole=True):
        messages[stored.run_id].append(stored.message)
    turns: list[WholeTurn] = []
    for record in records:
        prompt = [] if record.prompt is None else [record.prompt]
        calls = project(await events_of_run(store, record.run_id))
        turns.append(
            WholeTurn(record=record, messages=messages[record.run_id] or prompt, calls=calls)
        )
    earlier = max(0, session.turn_count - len(records))
    return WholeSession(session=session, turns=turns, earlier_turns=earlier)
