"""A turn's place in its session: what was said before, and the record of the turn itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import anyio

from nacre.agent.history import estimated_tokens
from nacre.errors import SessionError, StorageError
from nacre.messages import Usage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nacre.json_types import JsonObject, JsonValue
    from nacre.messages import Message
    from nacre.storage import Store, StoredMessage, TurnStatus


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnEnd:
    """How a turn ended, as it is kept."""

    status: TurnStatus
    messages: Sequence[Message] = ()
    usage: Usage = field(default_factory=Usage)
    error: str = ""
    data: JsonObject = field(default_factory=dict[str, "JsonValue"])


class Transcript:
    """One turn in one session. Where there is no store, nothing is kept."""

    def __init__(
        self,
        store: Store | None,
        *,
        session_id: str,
        run_id: str,
        given_history: Sequence[Message] | None,
    ) -> None:
        self.session_id = session_id
        self._store = store
        self._run_id = run_id
        self._given = given_history
        self._stored: list[StoredMessage] = []
        # None: perhaps, since the answer of the store was lost.
        self._is_begun: bool | None = False

    @property
    def history(self) -> list[Message]:
        """What was said before this turn."""
        if self._given is not None:
            return list(self._given)
        return [stored.message for stored in self._stored]

    @property
    def stored(self) -> Sequence[StoredMessage]:
        """What the session holds of it; empty where the caller keeps the history."""
        return self._stored

    @property
    def is_begun(self) -> bool:
        """Whether the store knows of the turn, as far as we can tell."""
        return self._is_begun is not False

    async def load(self) -> None:
        if self._store is not None and self._given is None:
            self._stored = await self._store.messages(self.session_id)

    async def begin(self, *, prompt: Message | None, model: str, surface: str) -> None:
        if self._store is None:
            return
        # A turn that the store knows has to be ended there, so we have to know that it does.
        with anyio.CancelScope(shield=True):
            try:
                await self._store.begin_turn(
                    run_id=self._run_id,
                    session_id=self.session_id,
                    prompt=prompt,
                    model=model,
                    surface=surface,
                )
            except StorageError as error:
                self._is_begun = None if error.is_uncertain else False
                raise
            self._is_begun = True

    async def end(self, end: TurnEnd, events: Sequence[JsonObject]) -> None:
        """Keep the whole turn at once, with the last events of its trajectory."""
        if self._store is None or self._is_begun is False:
            return
        try:
            await self._store.end_turn(
                self._run_id,
                status=end.status,
                messages=end.messages,
                usage=end.usage,
                error=end.error,
                data=end.data,
                events=events,
            )
        except SessionError as error:
            # Then it was not begun after all.
            if self._is_begun or error.code != "not_found":
                raise

    async def replace_by_summary(self, *, up_to_sequence: int, summary: str) -> None:
        """From now on the summary stands for all messages up to that one."""
        assert self._store is not None
        await self._store.add_compaction(
            self.session_id, up_to_sequence=up_to_sequence, summary=summary
        )
        await self.load()

    def older_than(self, keep_turns: int) -> list[StoredMessage]:
        """The messages of all turns but the last so many, an earlier summary included; empty where
        there is nothing but that summary."""
        runs = list(dict.fromkeys(each.run_id for each in self._stored if not each.is_summary))
        kept = set(runs[max(0, len(runs) - keep_turns) :])
        older = [each for each in self._stored if each.is_summary or each.run_id not in kept]
        return older if any(not each.is_summary for each in older) else []

    def estimated_tokens(self, new: Sequence[Message], *, keep_turns: int) -> int:
        """About how much the model would read."""
        runs = {each.run_id for each in self._stored if not each.is_summary}
        has_summary = any(each.is_summary for each in self._stored)
        # What was counted for the turns that a summary left is from before there was the summary.
        trusts_usage = not has_summary or len(runs) > keep_turns
        return estimated_tokens([*self.history, *new], trusts_usage=trusts_usage)
