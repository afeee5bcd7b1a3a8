"""A session by what somebody calls it: its id, or its key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from nacre.cli.output import UsageProblem, cell_text
from nacre.tools.nearest_names import NearestNames

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from nacre.storage import SessionRecord, Store

_MAX_SESSION_NAMES: Final = 1000
_MAX_SHOWN: Final = 3


async def find_session(
    store: Store, named: str, *, agent_ids: Sequence[str]
) -> SessionRecord | None:
    """None if there is none. Raises UsageProblem for a key that several agents have."""
    by_id = await store.session(named)
    if by_id is not None:
        return by_id
    found = [await store.session_by_key(agent_id, named) for agent_id in agent_ids]
    known = [session for session in found if session is not None]
    if len(known) > 1:
        whose = ", ".join(f"{session.id} (agent {session.agent_id})" for session in known)
        raise UsageProblem(f"several agents have a session {named!r}: {whose}; give the id")
    return known[0] if known else None


async def session_names(store: Store) -> list[str]:
    """Ids and keys of the sessions that were used last."""
    recent = await store.sessions(limit=_MAX_SESSION_NAMES)
    return [name for session in recent for name in (session.id, session.key) if name]


def unknown_name_problem(
    what: str, named: str, known: Iterable[str], *, where: str
) -> UsageProblem:
    """Says that there is none, with those that may have been meant."""
    names = list(known)
    near = [name for name in names if named and name.startswith(named)]
    near = near or NearestNames(names).nearest(named, _MAX_SHOWN)
    shown = ", ".join(cell_text(name, most_characters=80) for name in near[:_MAX_SHOWN])
    hint = f"did you mean {shown}? " if shown else ""
    name = cell_text(named, most_characters=80)
    return UsageProblem(f"there is no {what} {name!r}; {hint}{where}")
