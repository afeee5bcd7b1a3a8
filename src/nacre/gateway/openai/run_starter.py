"""Finds or starts the run that answers a request: a waiting run, or a new turn."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from nacre.agent import TurnRequest
from nacre.errors import ToolDefinitionError
from nacre.gateway.errors import ApiError
from nacre.gateway.openai.run_answers import RunAnswer
from nacre.gateway.openai.turn_input import CHANNEL, refused
from nacre.messages import Message, Usage, UserMessage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from nacre.agent import AgentRun
    from nacre.bootstrap import System
    from nacre.gateway.openai.parked_runs import ParkedRun, ParkedRuns
    from nacre.gateway.openai.turn_input import Ask
    from nacre.storage import Store, TurnRecord


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


_WENT_ON: Final = "the client went on without the results of its calls"
_MAX_LISTED: Final = 10


class RunStarter:
    """Answers requests with runs."""

    def __init__(self, system: System, parked: ParkedRuns) -> None:
        self._system = system
        self._parked = parked

    async def begin(self, ask: Ask) -> RunAnswer:
        """Raises ApiError, and what `AgentService.start` raises."""
        parked = self._parked.found(ask.conversation.results)
        if parked is not None and (resumed := await self._resume(parked, ask)) is not None:
            return resumed
        _refuse_unplaced(ask)
        request = await self._request(ask)
        try:
            run = await self._system.agents.start(request)
        except ToolDefinitionError as error:
            raise refused("tools", f"cannot be offered: {error}", code="invalid_tool") from None
        return self._answer(run, ask)

    # A run that waits for this.

    async def _resume(self, parked: ParkedRun, ask: Ask) -> RunAnswer | None:
        run = parked.run
        if ask.previous_run_id and ask.previous_run_id != run.id:
            raise refused("previous_response_id", "names another response than the calls are of")
        self._parked.take(parked)
        try:
            said = ask.conversation.said_after_results
            if said is not None and not await self._is_steered(run, said):
                await run.abort(_WENT_ON)
                return None
            parked.deliver(ask.conversation.results)
        except BaseException:
            # Nobody can answer it any more.
            run.request_abort(_WENT_ON)
            raise
        return self._answer(run, ask, after=parked.after, number=parked.answer_number + 1)

    async def _is_steered(self, run: AgentRun, said: UserMessage) -> bool:
        """Whether the run takes what was said besides; one whose history the client keeps cannot:
        it is told everything anew."""
        if not run.is_stored:
            return False
        request = TurnRequest(
            message=said, session_id=run.session_id, channel=CHANNEL, queue_mode="steer"
        )
        taken_by = await self._system.agents.start(request)
        if taken_by is not run:
            # It had just ended; the request is going to have a turn of its own.
            await taken_by.abort(_WENT_ON)
        return taken_by is run

    # A new one.

    async def _request(self, ask: Ask) -> TurnRequest:
        said, earlier = ask.conversation.last_said, ask.conversation.earlier
        if ask.previous_run_id:
            return await self._continuing(ask)
        if ask.session_key:
            return await self._in_session(ask)
        if not ask.is_kept:
            return ask.turn(message=said, history=earlier)
        if said is not None and not earlier:
            return ask.turn(message=said)
        session_id = await begin_session(
            self._system.store, agent_id=self._agent_id(ask), messages=earlier
        )
        return ask.turn(message=said, history=None if said else earlier, session_id=session_id)

    async def _in_session(self, ask: Ask) -> TurnRequest:
        """What is kept counts, and the client's own history only where nothing is kept yet, or
        where it ends with results that no run waits for."""
        agent_id, key = self._agent_id(ask), ask.session_key
        await self._give_up(lambda run: (run.agent_id, run.session_key) == (agent_id, key))
        said, earlier = ask.conversation.last_said, ask.conversation.earlier
        if said is None:
            return ask.turn(message=None, history=earlier, session_key=key)
        store = self._system.store
        if earlier and await store.session_by_key(agent_id, key) is None:
            await begin_session(store, agent_id=agent_id, messages=earlier, key=key)
        return ask.turn(message=said, session_key=key)

    async def _continuing(self, ask: Ask) -> TurnRequest:
        run_id, store = ask.previous_run_id, self._system.store
        await self._give_up(lambda run: run.id == run_id)
        turn = _usable(await store.turn(run_id))
        said, earlier = ask.conversation.last_said, ask.conversation.earlier
        if not ask.is_kept:
            past = await messages_until(store, turn.session_id, run_id)
            return ask.turn(message=said, history=[*past, *earlier])
        session_id = turn.session_id
        last = await store.turns(session_id, limit=1)
        if last[-1].run_id != run_id:
            # Somebody went on from there already; this is another branch.
            session = await store.session(session_id)
            session_id = await begin_session(
                store,
                agent_id=session.agent_id if session else self._agent_id(ask),
                messages=await messages_until(store, turn.session_id, run_id),
            )
        await add_messages(store, session_id, earlier)
        if said is not None:
            return ask.turn(message=said, session_id=session_id)
        past = [stored.message for stored in await store.messages(session_id)]
        return ask.turn(message=None, history=past, session_id=session_id)

    async def _give_up(self, is_meant: Callable[[AgentRun], bool]) -> None:
        """A client that says something else does not want the run that waits for its results."""
        parked = self._parked.of(is_meant)
        if parked is not None:
            self._parked.take(parked)
            await parked.run.abort(_WENT_ON)

    def _agent_id(self, ask: Ask) -> str:
        return ask.choice.agent_id or self._system.config.agents.default_id

    def _answer(self, run: AgentRun, ask: Ask, *, after: int = -1, number: int = 1) -> RunAnswer:
        return RunAnswer(
            run,
            self._parked,
            after=after,
            number=number,
            asks_one_at_a_time=ask.settings.is_parallel is False,
        )


def _refuse_unplaced(ask: Ask) -> None:
    unplaced = ask.conversation.unplaced
    if unplaced:
        shown = ", ".join(unplaced[:_MAX_LISTED])[:400]
        raise ApiError(
            400,
            f"there are results for calls that were not made here: {shown}. The run that waited "
            "for them may be over; send the calls together with their results",
            code="unknown_tool_call",
        )


def _usable(turn: TurnRecord | None) -> TurnRecord:
    if turn is None:
        raise refused(
            "previous_response_id",
            "names no response that is kept; those with `store: false` are not",
            code="previous_response_not_found",
        )
    if turn.status == "running":
        raise ApiError(
            409,
            "the response of `previous_response_id` is not complete yet",
            code="response_in_progress",
            path="previous_response_id",
        )
    return turn
