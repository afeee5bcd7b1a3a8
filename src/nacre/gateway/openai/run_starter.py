"""Finds or starts the run that answers a request: a waiting run, or a new turn."""

from __future__ import annotations

import asyncio
import hashlib
import os
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, cast

from nacre.agent import ClientResult, TurnRequest
from nacre.errors import ToolDefinitionError
from nacre.gateway.errors import ApiError
from nacre.gateway.openai.turns import CHANNEL, AnswerStream, invalid
from nacre.json_types import JsonValue, NotJsonError, decode_json
from nacre.messages import Message, Usage, UserMessage

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from nacre.agent import AgentRun, AgentService, PendingClientCall
    from nacre.bootstrap import System
    from nacre.gateway.openai.turns import TurnInput
    from nacre.json_types import JsonObject
    from nacre.storage import Store, TurnRecord

WAIT_SECONDS: Final = 900.0

_NONCE_BYTES: Final = 8
_CALL_ID_BYTES: Final = 20
_CALL_PREFIX: Final = "call_"
# The kind of values that tell other gateways which run waits for a call.
_CALL_KIND: Final = "openai_call"
_MAX_LISTED: Final = 10
# Abort before the calls expire: the run must not continue without a client.
_MARGIN_SECONDS: Final = 1.0
_EXPIRED: Final = "the client did not send the results of its tool calls in time"
_TOO_MANY_WAIT: Final = "too many runs wait for results of their clients; this one waited longest"


@dataclass(frozen=True, kw_only=True, slots=True)
class ClientCall:
    """A call with an id for the client. Any client that knows the id can deliver the result."""

    id: str
    call: PendingClientCall


@dataclass(kw_only=True, slots=True)
class WaitingRun:
    """A run and the calls whose results it waits for."""

    run: AgentRun
    calls: tuple[ClientCall, ...]
    after: int
    """The last event that was sent to the client."""
    answer_number: int
    """The number of answers so far."""
    timer: asyncio.TimerHandle | None = field(default=None, repr=False)

    @property
    def is_open(self) -> bool:
        """Whether all calls still wait for a result."""
        pending = {call.call_id for call in self.run.pending_client_calls}
        return not self.run.has_ended and pending.issuperset(
            shown.call.call_id for shown in self.calls
        )

    async def deliver(self, results: Mapping[str, str], agents: AgentService) -> None:
        """Deliver the results of the calls. Raises SessionError if the run has ended."""
        given: list[ClientResult] = []
        for shown in self.calls:
            text = results[shown.id]
            content = _parse_result(text) if shown.call.parent_id else text
            given.append(ClientResult(call_id=shown.call.call_id, content=content))
        await agents.deliver(self.run, given)


class WaitingRuns:
    """Holds waiting runs for a limited time, then aborts them. A new run may replace the oldest."""

    def __init__(
        self,
        *,
        max_runs: Callable[[], int],
        seconds: float = WAIT_SECONDS,
        system: System | None = None,
    ) -> None:
        """With a `system` on a database server, other gateways find the runs, too."""
        is_shared = system is not None and system.store.cluster is not None
        self._system = system if is_shared else None
        self._max_runs = max_runs
        self._seconds = seconds
        self._by_run: dict[str, WaitingRun] = {}
        self._by_call: dict[str, WaitingRun] = {}

    def __len__(self) -> int:
        return len(self._by_run)

    def add(
        self,
        run: AgentRun,
        calls: Sequence[PendingClientCall],
        *,
        after: int,
        answer_number: int,
    ) -> WaitingRun:
        """Add a run. It is aborted before its calls expire."""
        while len(self._by_run) >= max(1, self._max_runs()):
            self._abort(next(iter(self._by_run.values())), _TOO_MANY_WAIT)
        shown = tuple(ClientCall(id=_new_call_id(run, call), call=call) for call in calls)
        waiting = WaitingRun(run=run, calls=shown, after=after, answer_number=answer_number)
        left = run.client_calls.seconds_left([call.call_id for call in calls])
        seconds = max(0.0, min(self._seconds, left - _MARGIN_SECONDS))
        loop = asyncio.get_running_loop()
        waiting.timer = loop.call_later(seconds, self._abort, waiting, _EXPIRED)
        self._by_run[run.id] = waiting
        self._by_call.update((each.id, waiting) for each in shown)
        return waiting

    async def share(self, waiting: WaitingRun) -> None:
        """Let other gateways find the run. Raises StorageError."""
        if self._system is None:
            return
        if self._system.agents.shared is not None:
            # The client may send its results at once, to another gateway.
            await self._system.agents.shared.flush()
        value: JsonObject = {
            "runId": waiting.run.id,
            "calls": {shown.id: shown.call.call_id for shown in waiting.calls},
            "after": waiting.after,
            "answerNumber": waiting.answer_number,
        }
        for shown in waiting.calls:
            await self._system.store.put_value(_CALL_KIND, shown.id, value, seconds=self._seconds)

    async def find_remote(self, results: Mapping[str, str]) -> WaitingRun | None:
        """Find the run of another gateway that waits for these results."""
        if self._system is None or not results:
            return None
        value = await self._system.store.value(_CALL_KIND, next(iter(results)))
        found = cast("dict[str, Any]", value or {})
        run = await self._system.agents.find_run(found["runId"]) if found else None
        if run is None:
            return None
        pending = {call.call_id: call for call in run.pending_client_calls}
        waiting = WaitingRun(
            run=run,
            calls=tuple(
                ClientCall(id=shown, call=pending[call_id])
                for shown, call_id in found["calls"].items()
                if call_id in pending
            ),
            after=found["after"],
            answer_number=found["answerNumber"],
        )
        is_complete = len(waiting.calls) == len(found["calls"])
        return waiting if is_complete and results.keys() >= found["calls"].keys() else None

    def find(self, results: Mapping[str, str]) -> WaitingRun | None:
        """Find the run that waits for these results; None if no run does.

        Raises ApiError for results of several runs, and if results are missing.
        """
        known = {
            waiting.run.id: waiting
            for call_id in results
            if (waiting := self._by_call.get(call_id)) is not None and waiting.is_open
        }
        if not known:
            return None
        if len(known) > 1:
            raise invalid(
                "messages", "has results for several runs; send them in separate requests"
            )
        (waiting,) = known.values()
        missing = [shown.id for shown in waiting.calls if shown.id not in results]
        if missing:
            names = ", ".join(missing[:_MAX_LISTED])
            raise invalid(
                "messages",
                f"has results for some of the calls only; send all at once, including {names}",
                code="missing_tool_results",
            )
        return waiting

    def remove(self, waiting: WaitingRun) -> None:
        """Remove the run, because its results have arrived."""
        if waiting.timer is not None:
            waiting.timer.cancel()
        self._by_run.pop(waiting.run.id, None)
        for shown in waiting.calls:
            self._by_call.pop(shown.id, None)

    def find_by(self, matches: Callable[[AgentRun], bool]) -> WaitingRun | None:
        return next((each for each in self._by_run.values() if matches(each.run)), None)

    def _abort(self, waiting: WaitingRun, reason: str) -> None:
        is_open = waiting.is_open
        self.remove(waiting)
        if is_open:
            # Otherwise another client has delivered the results, and the run continues.
            waiting.run.request_abort(reason)


def find_continued(runs: Sequence[AgentRun], results: Mapping[str, str]) -> WaitingRun | None:
    """Find the run that an earlier process has shown these calls of; None if no run waits.

    Which of its calls were shown together is not known any more, so the others stay open.
    """
    for run in runs:
        calls = tuple(
            ClientCall(id=shown_id, call=call)
            for call in _continued_calls(run)
            for shown_id in results
            if _call_id(run, call, shown_id[len(_CALL_PREFIX) :][: 2 * _NONCE_BYTES]) == shown_id
        )
        if calls:
            answered = [event.data.get("how") for event in run.events.events]
            return WaitingRun(
                run=run,
                calls=calls,
                after=run.events.last_sequence,
                # At least as many answers as there were, so that the next number is a new one.
                answer_number=answered.count("answered") + 1,
            )
    return None


def _continued_calls(run: AgentRun) -> tuple[PendingClientCall, ...]:
    return run.pending_client_calls if run.is_continued and not run.has_ended else ()


def _new_call_id(run: AgentRun, call: PendingClientCall) -> str:
    return _call_id(run, call, os.urandom(_NONCE_BYTES).hex())


def _call_id(run: AgentRun, call: PendingClientCall, nonce: str) -> str:
    """An id that only the client of the run knows, and that another process recognizes."""
    seen = hashlib.sha256(f"{nonce}:{run.id}:{call.call_id}".encode()).hexdigest()
    return f"{_CALL_PREFIX}{nonce}{seen}"[: len(_CALL_PREFIX) + 2 * _CALL_ID_BYTES]


def _parse_result(text: str) -> JsonValue:
    """Parse a JSON object or list for a program; other text stays text."""
    if not text.lstrip().startswith(("{", "[")):
        return text
    try:
        return decode_json(text.encode(errors="replace"))
    except NotJsonError:
        return text


_ID_BYTES: Final = 12
_MAX_TITLE_CHARACTERS: Final = 80
_REPLACED: Final = "the client continued without the results of its tool calls"


async def create_session(
    store: Store, *, agent_id: str, messages: Sequence[Message], key: str = ""
) -> str:
    """Create a session with these messages, and return its id."""
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
    """Store messages of the client as a turn of their own."""
    if not messages:
        return
    run_id = f"run_{os.urandom(_ID_BYTES).hex()}"
    await store.begin_turn(
        run_id=run_id, session_id=session_id, prompt=None, model="", surface="given"
    )
    await store.end_turn(run_id, status="completed", messages=messages, usage=Usage())


async def messages_until(store: Store, session_id: str, run_id: str) -> list[Message]:
    """The messages up to the end of that turn. A summary replaces earlier ones, unless the turn is
    among them. A chat command has no messages: those before it count."""
    stored = [await store.messages(session_id, whole=whole) for whole in (False, True)]
    earlier = [turn.run_id for turn in await store.turns(session_id, before=run_id)]
    for wanted in (run_id, *reversed(earlier)):
        for messages in stored:
            mine = [index for index, each in enumerate(messages) if each.run_id == wanted]
            if mine:
                return [each.message for each in messages[: mine[-1] + 1]]
    return []


class RunStarter:
    """Finds or starts the run for a request."""

    def __init__(self, system: System, waiting: WaitingRuns) -> None:
        self._system = system
        self._waiting = waiting

    async def start(self, turn_input: TurnInput) -> AnswerStream:
        """Resume the waiting run or start a new one. Raises ApiError and NacreError."""
        if self._system.agents.commands.find(turn_input.conversation.last_user_message):
            # First: a run that waits for the client must not be aborted.
            run = await self._system.agents.start(await self._command_request(turn_input))
            return self._answer(run, turn_input)
        turn_input = self._remove_commands(turn_input)
        results = turn_input.conversation.results
        runs = self._system.agents.runs()
        waiting = self._waiting.find(results) or find_continued(runs, results)
        waiting = waiting or await self._waiting.find_remote(results)
        if waiting is not None and (resumed := await self._resume(waiting, turn_input)) is not None:
            return resumed
        _check_results(turn_input)
        request = await self._request(turn_input)
        try:
            run = await self._system.agents.start(request)
        except ToolDefinitionError as error:
            raise invalid("tools", f"cannot be used: {error}", code="invalid_tool") from None
        answered = [
            event
            for event in run.events.events
            if event.kind == "input.answered" and event.data.get("how") == "answered"
        ]
        if answered:
            # The message has answered a question of a run whose first answers the client has.
            number = len(answered) + 1
            return self._answer(run, turn_input, after=answered[-1].sequence, number=number)
        return self._answer(run, turn_input)

    # Chat commands.

    async def _command_request(self, turn_input: TurnInput) -> TurnRequest:
        said, earlier = turn_input.conversation.last_user_message, turn_input.conversation.earlier
        if turn_input.previous_run_id:
            turn = await self._system.store.turn(turn_input.previous_run_id)
            if turn is None:
                raise _unknown_response_error()
            return turn_input.to_request(message=said, session_id=turn.session_id)
        if turn_input.session_key:
            return turn_input.to_request(message=said, session_key=turn_input.session_key)
        if not turn_input.is_kept:
            return turn_input.to_request(message=said, history=earlier)
        # The client continues with the id of the response, so there must be a session.
        session_id = await create_session(
            self._system.store, agent_id=self._agent_id(turn_input), messages=earlier
        )
        return turn_input.to_request(message=said, session_id=session_id)

    def _remove_commands(self, turn_input: TurnInput) -> TurnInput:
        """Leave out earlier commands and their replies, which are not for the model."""
        conversation = turn_input.conversation
        messages = tuple(self._system.agents.commands.remove_from(conversation.messages))
        return replace(turn_input, conversation=replace(conversation, messages=messages))

    # A run that waits for these results.

    async def _resume(self, waiting: WaitingRun, turn_input: TurnInput) -> AnswerStream | None:
        run = waiting.run
        if turn_input.previous_run_id and turn_input.previous_run_id != run.id:
            raise invalid(
                "previous_response_id", "names another response than the one with the calls"
            )
        self._waiting.remove(waiting)
        try:
            said = turn_input.conversation.message_after_results
            if said is not None and not await self._steer(run, said):
                await run.abort(_REPLACED)
                return None
            await waiting.deliver(turn_input.conversation.results, self._system.agents)
        except BaseException:
            # No client can deliver its results any more.
            run.request_abort(_REPLACED)
            raise
        return self._answer(run, turn_input, after=waiting.after, number=waiting.answer_number + 1)

    async def _steer(self, run: AgentRun, said: UserMessage) -> bool:
        """Whether the run accepts the additional message. A run without a stored session cannot,
        because the client sends the whole history again."""
        if not run.is_stored:
            return False
        request = TurnRequest(
            message=said, session_id=run.session_id, channel=CHANNEL, queue_mode="steer"
        )
        handled_by = await self._system.agents.start(request)
        if handled_by is not run:
            # It had just ended; the request starts a turn of its own.
            await handled_by.abort(_REPLACED)
        return handled_by is run

    # A new run.

    async def _request(self, turn_input: TurnInput) -> TurnRequest:
        said, earlier = turn_input.conversation.last_user_message, turn_input.conversation.earlier
        if turn_input.previous_run_id:
            return await self._continue_response(turn_input)
        if turn_input.session_key:
            return await self._continue_session(turn_input)
        if not turn_input.is_kept:
            return turn_input.to_request(message=said, history=earlier)
        if said is not None and not earlier:
            return turn_input.to_request(message=said)
        session_id = await create_session(
            self._system.store, agent_id=self._agent_id(turn_input), messages=earlier
        )
        return turn_input.to_request(
            message=said, history=None if said else earlier, session_id=session_id
        )

    async def _continue_session(self, turn_input: TurnInput) -> TurnRequest:
        """Continue the stored session. The client's history is used only if the session is new, or
        if it ends with results that no run waits for."""
        agent_id, key = self._agent_id(turn_input), turn_input.session_key
        await self._abort_waiting(lambda run: (run.agent_id, run.session_key) == (agent_id, key))
        said, earlier = turn_input.conversation.last_user_message, turn_input.conversation.earlier
        if said is None:
            return turn_input.to_request(message=None, history=earlier, session_key=key)
        store = self._system.store
        if earlier and await store.session_by_key(agent_id, key) is None:
            await create_session(store, agent_id=agent_id, messages=earlier, key=key)
        return turn_input.to_request(message=said, session_key=key)

    async def _continue_response(self, turn_input: TurnInput) -> TurnRequest:
        run_id, store = turn_input.previous_run_id, self._system.store
        live = await self._system.agents.find_run(run_id)
        if live is not None and live.pending_input is not None:
            said = turn_input.conversation.last_user_message
            return turn_input.to_request(message=said, session_id=live.session_id)
        await self._abort_waiting(lambda run: run.id == run_id)
        turn = _check_turn(await store.turn(run_id))
        said, earlier = turn_input.conversation.last_user_message, turn_input.conversation.earlier
        if not turn_input.is_kept:
            past = await messages_until(store, turn.session_id, run_id)
            return turn_input.to_request(message=said, history=[*past, *earlier])
        session_id = turn.session_id
        last = await store.turns(session_id, limit=1)
        if last[-1].run_id != run_id:
            # The session has continued from there, so this is another branch.
            session = await store.session(session_id)
            session_id = await create_session(
                store,
                agent_id=session.agent_id if session else self._agent_id(turn_input),
                messages=await messages_until(store, turn.session_id, run_id),
            )
        await add_messages(store, session_id, earlier)
        if said is not None:
            return turn_input.to_request(message=said, session_id=session_id)
        past = [stored.message for stored in await store.messages(session_id)]
        return turn_input.to_request(message=None, history=past, session_id=session_id)

    async def _abort_waiting(self, matches: Callable[[AgentRun], bool]) -> None:
        """Abort a run that waits for results: the client has sent something else."""
        waiting = self._waiting.find_by(matches)
        if waiting is not None:
            self._waiting.remove(waiting)
            await waiting.run.abort(_REPLACED)
        for run in self._system.agents.runs():
            if matches(run) and _continued_calls(run):
                await run.abort(_REPLACED)

    def _agent_id(self, turn_input: TurnInput) -> str:
        return turn_input.choice.agent_id or self._system.config.agents.default_id

    def _answer(
        self, run: AgentRun, turn_input: TurnInput, *, after: int = -1, number: int = 1
    ) -> AnswerStream:
        return AnswerStream(
            run,
            self._waiting,
            after=after,
            number=number,
            calls_one_at_a_time=turn_input.settings.is_parallel is False,
        )


def _check_results(turn_input: TurnInput) -> None:
    unplaced = turn_input.conversation.unplaced
    if unplaced:
        shown = ", ".join(unplaced[:_MAX_LISTED])[:400]
        raise ApiError(
            400,
            f"has results for unknown calls: {shown}. The run that waited for them may have ended; "
            "send the calls together with their results",
            code="unknown_tool_call",
        )


def _check_turn(turn: TurnRecord | None) -> TurnRecord:
    if turn is None:
        raise _unknown_response_error()
    if turn.status == "running":
        raise ApiError(
            409,
            "the response of `previous_response_id` is not complete yet",
            code="response_in_progress",
            path="previous_response_id",
        )
    return turn


def _unknown_response_error() -> ApiError:
    return invalid(
        "previous_response_id",
        "names no stored response; responses with `store: false` are not stored",
        code="previous_response_not_found",
    )
