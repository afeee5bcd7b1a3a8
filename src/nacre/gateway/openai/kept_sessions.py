"""Sessions for clients that bring a history of their own, and for branches of a session."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from nacre.gateway.openai.turn_input import CHANNEL
from nacre.messages import Message, Usage, UserMessage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nacre.storage import Store

_ID_BYTES: Final = 12
_MAX_TITLE_CHARACTERS: Final = 80


async def begin_session(
    store: Store, *, agent_id: str, messages: Sequence[Message], key: str = ""
) -> str:
    """A session that holds these messages already; its id."""
    said = next((each.text for each in messages if isinstance(each, UserMessage)), "")
    session = await store.add_session(
        id=f"session_{os.urandom(_ID_BYTES).hex()}",
        agent_id=agent_id,
        key=key,
        channel=CHANNEL,
        title=said.strip().partition("\n")[0][:_MAX_TITLE_CHARACTERS],
    )
    await add_messages(store, session.id, messages)
    return session.id


async def add_messages(store: Store, session_id: str, messages: Sequence[Message]) -> None:
    """Keep what was said elsewhere, as a turn of its own."""
    if not messages:
        return
    run_id = f"run_{os.urandom(_ID_BYTES).hex()}"
    await store.begin_turn(
        run_id=run_id, session_id=session_id, prompt=None, model="", surface="given"
    )
    await store.end_turn(run_id, status="completed", messages=messages, usage=Usage())


async def messages_until(store: Store, session_id: str, run_id: str) -> list[Message]:
    """What was said up to the end of that turn, and not what came after it; a summary stands for
    what is long ago, unless the turn is among that."""
    for whole in (False, True):
        stored = await store.messages(session_id, whole=whole)
        mine = [index for index, each in enumerate(stored) if each.run_id == run_id]
        if mine:
            return [each.message for each in stored[: mine[-1] + 1]]
    return []
