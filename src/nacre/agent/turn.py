"""One turn from its start to its record, around the harness that runs its model loop."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

import anyio

from nacre.agent.chat_commands import COMMAND_SURFACE
from nacre.agent.heartbeat import TRIGGER
from nacre.agent.run import RunEnding, RunFinish, RunResult, do_nothing, tool_bytes_of
from nacre.agent.transcript import TrajectoryWriter, TurnEnd, repair_history
from nacre.config import choose_runtime
from nacre.errors import (
    AbortedError,
    CodexError,
    LeaseLostError,
    NacreError,
    ProviderError,
    StorageError,
)
from nacre.foreign_calls import describe_error
from nacre.hooks import AgentEnd, FinishedTurn
from nacre.messages import message_to_json
from nacre.telemetry import end_turn_span, turn_span

if TYPE_CHECKING:
    from collections.abc import Callable

    from anyio.abc import TaskGroup

    from nacre.agent.heartbeat import HeartbeatTurn
    from nacre.agent.manual_call import ManualCalls
    from nacre.agent.turn_context import Harness, TurnContext
    from nacre.agent.turn_state import DurableTurn
    from nacre.config import AgentConfig, SystemConfig
    from nacre.json_types import JsonObject
    from nacre.messages import Message, UserMessage

logger = logging.getLogger(__name__)

# An abort is confirmed within 200 ms: a harness that has not ended until then is cancelled.
_HARNESS_ENDS_SECONDS: Final = 0.12
_STORE_SECONDS: Final = 15.0


class Turn:
    """Runs once. However it ends, its run has ended afterwards and its transcript is stored."""

    def __init__(
        self, turn: TurnContext, *, continue_as: Callable[[list[UserMessage]], str]
    ) -> None:
        """`continue_as` gives messages that this turn did not take a turn of their own, and
        returns the id of its run."""
        self._turn = turn
        self._run = turn.run
        self._continue_as = continue_as
        # What remains if nothing else is set: the whole service was cancelled.
        self._ending: RunEnding = "aborted"
        self._error = ""
        self._cause: NacreError | None = None
        self._harness_ended = anyio.Event()
        self._started = anyio.current_time()
        self._trajectory_writer = TrajectoryWriter(
            turn.trajectory,
            event_log=turn.run.events,
            store=turn.service.store if turn.run.is_stored else None,
            on_call=turn.waits.look,
            known_calls=_find_started_calls(turn),
        )
        self._scope: anyio.CancelScope | None = None
        self._span = turn_span(turn.identity, model=turn.models[0], parent=turn.request.trace)

    async def run(self) -> None:
        """Never raises for what goes wrong in the turn; that is the run's result."""
        with self._span:
            self._begin()
            try:
                async with anyio.create_task_group() as tasks:
                    self._scope = tasks.cancel_scope
                    tasks.start_soon(self._watch_abort, tasks.cancel_scope)
                    tasks.start_soon(self._watch_time)
                    await self._run_harness(tasks)
                    tasks.cancel_scope.cancel()
            finally:
                # Also if the whole service is cancelled: what was done is stored.
                with anyio.CancelScope(shield=True):
                    await self._finish()

    def _begin(self) -> None:
        turn = self._turn
        if turn.continued is not None:
            self._run.begin_again()
            turn.queue.put_back(turn.continued.steered)
        else:
            self._run.begin(
                {
                    "runId": self._run.id,
                    "sessionId": self._run.session_id,
                    "agentId": turn.agent.id,
                    "model": turn.models[0],
                    **_start_marks(turn),
                }
            )
        self._run.on_change = turn.waits.look
        self._run.on_drop = self._drop
        if turn.durable is not None:
            self._run.on_detach = partial(self._detach, turn.durable)
            self._run.wait_until_approval_stored = turn.durable.wait_until_approval_stored
            self._run.events.subscribe(turn.durable.receive)
        turn.budget.set_running(True)

    async def _run_harness(self, tasks: TaskGroup) -> None:
        turn, harness = self._turn, self._turn.service.harness
        try:
            await self._begin_transcript(harness)
            if turn.durable is not None:
                tasks.start_soon(turn.durable.watch)
            tasks.start_soon(self._trajectory_writer.write)
            await self._run_action(harness)
            if not turn.stop.is_aborted:
                self._error = turn.output.error
                self._ending = "failed" if self._error else "completed"
        except AbortedError:
            # The reason is in the abort signal.
            pass
        except Exception as error:
            self._fail(error)
        finally:
            self._harness_ended.set()

    async def _begin_transcript(self, harness: Harness) -> None:
        turn = self._turn
        if turn.continued is not None:
            await turn.transcript.begin_again()
            return
        is_command = bool(turn.request.action)
        await turn.transcript.begin(
            prompt=turn.request.user_message,
            model=turn.models[0],
            surface=COMMAND_SURFACE if is_command else harness.plan_surface(turn),
            title="" if is_command else turn.request.session_title,
            loads_messages=turn.engine is not None or harness.needs_history(turn),
            items=turn.queue.begin_items,
        )

    async def _run_action(self, harness: Harness) -> None:
        turn = self._turn
        if turn.request.manual_call is not None:
            await harness.run(turn)
            return
        if not turn.request.action:
            if turn.engine is not None:
                await turn.engine.assemble(turn)
            await harness.run(turn)
            return
        turn.queue.stop_steering()
        turn.output.text = await harness.compact(turn)
        turn.output.data.update({"command": turn.request.action, "reply": turn.output.text})
        turn.run.reply(turn.output.text)

    # Ending early.

    async def _detach(self, durable: DurableTurn) -> bool:
        """Leave the turn to another process; False if it cannot continue there."""
        if self._scope is None or not await durable.detach():
            return False
        self._run.begin_detach()
        await self._trajectory_writer.flush()
        self._trajectory_writer.close()
        self._scope.cancel()
        return True

    def _drop(self) -> None:
        """Stop at once: another process has taken over the turn."""
        if self._turn.durable is not None:
            self._turn.durable.drop()
        self._trajectory_writer.close()
        if self._scope is not None:
            self._scope.cancel()

    async def _watch_abort(self, scope: anyio.CancelScope) -> None:
        await self._turn.stop.wait()
        with anyio.move_on_after(_HARNESS_ENDS_SECONDS):
            await self._harness_ended.wait()
        scope.cancel()

    async def _watch_time(self) -> None:
        reason = await self._turn.budget.time_is_up()
        if not self._turn.stop.is_aborted:
            self._ending = "failed"
            self._run.request_abort(reason)

    def _fail(self, error: Exception) -> None:
        stop = self._turn.stop
        if stop.is_aborted:
            if isinstance(error, StorageError) and not self._turn.transcript.is_begun:
                # The message is lost, which nobody who aborts a turn expects.
                self._ending, self._cause = "failed", error
                self._error = f"{stop.reason}; the turn is not kept: {error}"
            return
        self._ending = "failed"
        self._span.fail(type(error).__name__)
        self._cause = error if isinstance(error, NacreError) else None
        if isinstance(error, ProviderError):
            self._error = error.message
        elif isinstance(error, NacreError):
            self._error = str(error)
        else:
            logger.exception("the run %s failed", self._run.id, exc_info=error)
            kind = type(error).__name__
            self._error = (
                f"the run failed inside of Nacre ({kind}: {describe_error(error)}); see the log"
            )

    # The end.

    async def _finish(self) -> None:
        turn, output = self._turn, self._turn.output
        turn.queue.stop_steering()
        turn.service.approvals.forget_earlier(self._run.id)
        self._run.on_drop = do_nothing
        if isinstance(self._cause, LeaseLostError) and not self._run.is_detached:
            self._run.begin_detach()
            self._drop()
        if self._run.is_detached:
            self._run.on_change = do_nothing
            self._run.end_detached()
            return
        if not turn.transcript.is_begun:
            # The turn has failed before it began, and must not run later.
            turn.queue.discard(turn.queue.begin_items)
        self._run.on_change = do_nothing
        if self._ending != "completed":
            self._error = self._error or turn.stop.reason or "the run was cut off"
        self._take_leftovers()
        missing = f"[aborted: {self._error}]" if self._error else "[no result]"
        messages = repair_history(output.messages, missing=missing)
        if turn.request.heartbeat is not None:
            messages = self._settle_heartbeat(turn.request.heartbeat)
        await self._store_end(
            TurnEnd(
                status=self._ending,
                messages=messages,
                usage=turn.budget.usage,
                error=self._error,
                data=self._turn_data(),
                thread=output.thread,
            )
        )
        if isinstance(self._cause, LeaseLostError):
            self._run.begin_detach()
            self._run.end_detached()
            return
        result = RunResult(
            text=output.text,
            visibility=self._run.events.visibility_of(output.text),
            sent=tuple(self._run.events.sent),
            messages=tuple(messages),
            usage=turn.budget.usage,
            finish_reason=self._finish_reason(),
            error=self._error,
            model=output.model,
            media=self._run.media_records,
            cause=self._cause,
            tool_bytes=tool_bytes_of(output.data),
        )
        # Before the run ends: a program may exit with the run that it waits for.
        self._end_span()
        self._run.end(self._ending, result)
        if not turn.request.action and turn.request.manual_call is None:
            await self._finish_engine(result)
            await self._call_end_hooks(result)

    def _settle_heartbeat(self, heartbeat: HeartbeatTurn) -> list[Message]:
        """Notify the user or stay quiet; returns the messages that stay in the session."""
        turn, events = self._turn, self._run.events
        heartbeat.settle(turn.output.text, is_completed=self._ending == "completed")
        is_told = heartbeat.status == "notified" and heartbeat.config.notifies_chat
        if is_told and heartbeat.text not in events.sent:
            events.add("message.sent", {"text": heartbeat.text, "trigger": TRIGGER})
        turn.output.data.update({"trigger": TRIGGER, "heartbeat": heartbeat.to_json()})
        return heartbeat.select_messages(events.sent, model=turn.output.model)

    def _take_leftovers(self) -> None:
        """Messages that came too late for the last model call."""
        leftovers = self._turn.queue.take_steered()
        if not leftovers:
            return
        if self._ending == "aborted":
            # The agent must not start again after an abort; the words are stored.
            self._turn.output.messages.extend(leftovers)
        else:
            run_id = self._continue_as(leftovers)
            self._run.events.add("steered", {"followupRunId": run_id})

    async def _store_end(self, end: TurnEnd) -> None:
        """Store the turn as a whole; if that fails, the run has failed."""
        data: JsonObject = {"status": end.status, "usage": end.usage.to_json(), **end.data}
        self._turn.trajectory.record("turn.ended", data={**data, "error": end.error})
        events = self._trajectory_writer.close()
        cause: StorageError | None = None
        with anyio.move_on_after(_STORE_SECONDS):
            try:
                await self._turn.transcript.end(end, events, items=self._turn.queue.taken_items)
                return
            except LeaseLostError as error:
                # The next owner of the session has interrupted the turn.
                logger.warning("the turn %s is left to another gateway: %s", self._run.id, error)
                self._cause = error
                return
            except StorageError as error:
                cause = error
            except NacreError as error:
                cause = StorageError(str(error))
        cause = cause or StorageError("the store did not answer in time")
        self._ending, self._error, self._cause = "failed", f"the turn is not kept: {cause}", cause
        data = {**end.data, "errorCode": "storage_failed"}
        failed = replace(end, status="failed", error=self._error, messages=(), data=data)
        self._turn.service.failed_writes.add(self._run.id, failed)
        if cause.is_uncertain:
            self._error = f"whether the turn is kept is not known: {cause}"
        logger.error("%s: %s (with %d last events)", self._run.id, self._error, len(events))

    def _end_span(self) -> None:
        if self._cause is not None:
            self._span.fail(type(self._cause).__name__)
        end_turn_span(
            self._span,
            state=self._ending,
            surface=self._turn.output.surface,
            steps=self._turn.budget.steps,
            usage=self._turn.budget.usage,
        )

    async def _finish_engine(self, result: RunResult) -> None:
        turn = self._turn
        if turn.engine is None:
            return
        finished = FinishedTurn(
            context=turn.identity,
            status=self._ending,
            messages=result.messages,
            error=self._error,
            usage=result.usage.to_json(),
        )
        is_stored = self._run.is_stored and not isinstance(self._cause, StorageError)
        with turn.service.end_hooks.signal.cancelling():
            await turn.engine.finish(turn, finished, is_stored=is_stored)

    async def _call_end_hooks(self, result: RunResult) -> None:
        service = self._turn.service
        if not service.hooks.has_hooks("agent_end"):
            return
        with service.end_hooks.signal.cancelling():
            await service.hooks.agent_end(
                AgentEnd(
                    context=self._turn.identity,
                    status=self._ending,
                    text=result.text,
                    error=self._error,
                    usage=result.usage.to_json(),
                    messages=[message_to_json(message) for message in result.messages],
                    duration_ms=self._duration_ms(),
                )
            )

    def _duration_ms(self) -> float:
        return round((anyio.current_time() - self._started) * 1_000, 1)

    def _finish_reason(self) -> RunFinish:
        match self._ending:
            case "completed":
                return self._turn.output.finish_reason
            case "failed":
                return "error"
            case "aborted":
                return "aborted"

    def _reply_data(self) -> JsonObject:
        """What the user saw, if it was not only the answer."""
        events = self._run.events
        visibility = events.visibility_of(self._turn.output.text)
        data: JsonObject = {} if visibility == "visible" else {"visibility": visibility}
        return {**data, "sent": [*events.sent]} if events.sent else data

    def _turn_data(self) -> JsonObject:
        output = self._turn.output
        data: JsonObject = {
            **self._reply_data(),
            "steps": self._turn.budget.steps,
            "model": output.model,
            **output.data,
        }
        return {**data, "surface": output.surface} if output.surface else data


def _find_started_calls(turn: TurnContext) -> frozenset[str]:
    """The calls of a continued turn whose readers know that they run."""
    events = turn.continued.events if turn.continued is not None else ()
    started = (event for event in events if event.kind == "call.started")
    return frozenset(str(event.data.get("toolCallId")) for event in started)


def _start_marks(turn: TurnContext) -> JsonObject:
    """Members of `run.started` that few runs have."""
    if turn.request.heartbeat is not None:
        return {"trigger": TRIGGER}
    return {"visibleReplies": "message_tool"} if turn.run.events.is_private else {}


class Harnesses:
    """A harness that passes each turn on to the one of its model.

    A turn that has failed in one harness is never repeated in another: it may have had effects.
    """

    def __init__(self, *, built_in: Harness, codex: Harness, manual: ManualCalls) -> None:
        self._built_in = built_in
        self._codex = codex
        self._manual = manual

    def label(self, model: str, agent: AgentConfig, config: SystemConfig, /) -> str:
        return self._find(model, agent, config).label(model, agent, config)

    def plan_surface(self, turn: TurnContext, /) -> str:
        if turn.request.manual_call is not None:
            return self._manual.plan_surface(turn.request.manual_call)
        return self._find_for(turn).plan_surface(turn)

    def needs_history(self, turn: TurnContext, /) -> bool:
        return self._find_for(turn).needs_history(turn)

    async def run(self, turn: TurnContext, /) -> None:
        """Raises CodexError if the turn is for Codex, and Codex is turned off."""
        if turn.request.manual_call is not None:
            await self._manual.run(turn, turn.request.manual_call)
            return
        _check_allowed(turn)
        await self._find_for(turn).run(turn)

    async def compact(self, turn: TurnContext, /) -> str:
        _check_allowed(turn)
        return await self._find_for(turn).compact(turn)

    async def reset(self, session_id: str, /) -> None:
        # The session may have had turns in both.
        await self._codex.reset(session_id)
        await self._built_in.reset(session_id)

    def _find_for(self, turn: TurnContext) -> Harness:
        return self._find(turn.models[0], turn.agent, turn.service.config)

    def _find(self, model: str, agent: AgentConfig, config: SystemConfig) -> Harness:
        choice = choose_runtime(model, agent, config.models, config.codex)
        return self._codex if choice.id == "codex" else self._built_in


def _check_allowed(turn: TurnContext) -> None:
    config = turn.service.config
    choice = choose_runtime(turn.models[0], turn.agent, config.models, config.codex)
    if choice.id == "codex" and config.codex.refusal:
        raise CodexError(
            f"the model {turn.models[0]} runs in Codex (`{choice.place}`), but "
            f"{config.codex.refusal}"
        )
