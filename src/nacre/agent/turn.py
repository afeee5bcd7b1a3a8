"""One turn from its beginning to its record: who may end it early, and what is kept of it."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import anyio

from nacre.agent.history import repair_history
from nacre.agent.run import RunEnding, RunFinish, RunResult
from nacre.agent.tool_calls import ExternalWaits
from nacre.agent.transcript import Transcript, TurnEnd
from nacre.agent.turn_context import RunBudget
from nacre.agent.turn_loop import TurnLoop
from nacre.agent.turn_spans import end_turn_span, turn_span
from nacre.errors import AbortedError, NacreError, ProviderError, StorageError
from nacre.foreign_calls import describe_error
from nacre.hooks import AgentEnd
from nacre.run_context import AbortController

if TYPE_CHECKING:
    from collections.abc import Callable

    from anyio.abc import TaskGroup

    from nacre.agent.session_queue import QueuedTurn, SessionQueue
    from nacre.agent.turn_context import ServiceContext, TurnContext
    from nacre.json_types import JsonObject
    from nacre.messages import UserMessage
    from nacre.run_context import RunContext

logger = logging.getLogger(__name__)

# An abort is confirmed within 200 ms: what does not end by itself until then is cancelled.
_CALLS_END_SECONDS: Final = 0.08
_LOOP_ENDS_SECONDS: Final = 0.04
_CLEAN_UP_SECONDS: Final = 5.0
_STORE_SECONDS: Final = 15.0


class Turn:
    """Runs once. However it ends, its run has ended afterwards, and its session holds it whole."""

    def __init__(
        self,
        queued: QueuedTurn,
        *,
        context: RunContext,
        held: TurnContext,
        parts: ServiceContext,
        lane: SessionQueue,
        continue_as: Callable[[list[UserMessage]], str],
    ) -> None:
        """`continue_as` gives messages that this turn did not take a turn of their own, and says
        its run's id."""
        self._run = queued.run
        self._request = queued.request
        self._context = context
        self._parts = parts
        self._lane = lane
        self._continue_as = continue_as
        self._stop = AbortController()
        # What is left where nobody says otherwise: the whole service was cancelled.
        self._ending: RunEnding = "aborted"
        self._error = ""
        self._cause: NacreError | None = None
        self._loop_ended = anyio.Event()
        self._budget = RunBudget(held.agent)
        store = parts.store if self._run.is_stored else None
        self._session = Transcript(
            store,
            session_id=self._run.session_id,
            run_id=self._run.id,
            given_history=self._request.history,
        )
        self._outside = ExternalWaits(self._run, self._set_waiting)
        self._loop = TurnLoop(
            self._run,
            self._request,
            context=context,
            held=held,
            parts=parts,
            session=self._session,
            outside=self._outside,
            budget=self._budget,
            stop=self._stop.signal,
            lane=lane,
        )
        self._span = turn_span(self._context, model=self._loop.model, parent=self._request.trace)

    async def run(self) -> None:
        """Never raises for what goes wrong in the turn; that is the run's result."""
        with self._span:
            await self._run_tasks()

    async def _run_tasks(self) -> None:
        self._run.begin(
            {
                "runId": self._run.id,
                "sessionId": self._run.session_id,
                "agentId": self._context.agent_id,
                "model": self._loop.model,
            }
        )
        self._run.on_change = self._outside.look
        self._budget.set_running(True)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._watch_abort, tasks.cancel_scope)
                tasks.start_soon(self._watch_time, tasks.cancel_scope)
                await self._work(tasks)
                tasks.cancel_scope.cancel()
        finally:
            # Also where the whole service is cancelled: what was done is kept.
            with anyio.CancelScope(shield=True):
                await self._finish()

    # Ending early.

    async def _watch_abort(self, scope: anyio.CancelScope) -> None:
        await self._run.abort_signal.wait()
        await self._end_early("aborted", self._run.abort_signal.reason, scope)

    async def _watch_time(self, scope: anyio.CancelScope) -> None:
        await self._end_early("failed", await self._budget.time_is_up(), scope)

    async def _end_early(self, ending: RunEnding, reason: str, scope: anyio.CancelScope) -> None:
        if self._stop.signal.is_aborted:
            return
        self._ending, self._error = ending, reason
        self._stop.abort(reason)
        with anyio.move_on_after(_CALLS_END_SECONDS):
            await self._loop.abort(reason)
        with anyio.move_on_after(_LOOP_ENDS_SECONDS):
            await self._loop_ended.wait()
        scope.cancel()

    async def _work(self, tasks: TaskGroup) -> None:
        try:
            await self._session.begin(
                prompt=self._request.user_message,
                model=self._loop.model,
                surface=self._loop.planned_surface,
            )
            await self._loop.work(tasks)
            if not self._stop.signal.is_aborted:
                self._ending, self._error = self._loop.ending, self._loop.error
        except AbortedError:
            # Whoever aborted has said how it ends.
            pass
        except Exception as error:
            self._fail(error)
        finally:
            self._loop_ended.set()

    def _fail(self, error: Exception) -> None:
        if self._stop.signal.is_aborted:
            if isinstance(error, StorageError) and not self._session.is_begun:
                # What was said is lost, which nobody who aborts a turn expects.
                self._ending, self._cause = "failed", error
                self._error = f"{self._error}; the turn is not kept: {error}"
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
        self._lane.stop_steering()
        self._run.on_change = None
        self._error = self._error or ("" if self._ending == "completed" else "the run was cut off")
        with anyio.move_on_after(_CLEAN_UP_SECONDS):
            await self._loop.close(self._error or "the turn has ended; `wait` works within a turn")
        self._take_leftovers()
        messages = repair_history(self._loop.messages, missing=self._missing_result_text())
        end = TurnEnd(
            status=self._ending,
            messages=messages,
            usage=self._budget.usage,
            error=self._error,
            data=self._turn_data(),
        )
        await self._store_end(end)
        result = RunResult(
            text=self._loop.text,
            messages=tuple(messages),
            usage=self._budget.usage,
            finish_reason=self._finish_reason(),
            error=self._error,
            model=self._loop.answering_model,
            cause=self._cause,
        )
        # Before anybody is told: a program may end with the run that it waits for.
        self._end_span()
        self._run.end(self._ending, result)
        await self._call_end_hooks(result)

    def _end_span(self) -> None:
        if self._cause is not None:
            self._span.fail(type(self._cause).__name__)
        end_turn_span(
            self._span,
            state=self._ending,
            surface=self._loop.shown_surface,
            steps=self._budget.steps,
            usage=self._budget.usage,
        )

    async def _call_end_hooks(self, result: RunResult) -> None:
        if not self._parts.hooks.has_hooks("agent_end"):
            return
        with self._parts.farewell.cancelling():
            await self._parts.hooks.agent_end(
                AgentEnd(
                    context=self._context,
                    status=self._ending,
                    text=result.text,
                    error=self._error,
                    usage=result.usage.to_json(),
                )
            )

    async def _store_end(self, end: TurnEnd) -> None:
        """The turn as a whole; where that fails, the run has failed, whatever it did."""
        cause = StorageError("the store did not answer in time")
        events = self._loop.end_trajectory(end)
        with anyio.move_on_after(_STORE_SECONDS):
            try:
                await self._session.end(end, events)
                return
            except StorageError as error:
                cause = error
            except NacreError as error:
                cause = StorageError(str(error))
        self._ending, self._error, self._cause = "failed", f"the turn is not kept: {cause}", cause
        data: JsonObject = {**end.data, "errorCode": "storage_failed"}
        unkept = replace(end, status="failed", error=self._error, messages=(), data=data)
        self._parts.unkept.add(self._run.id, unkept)
        if cause.is_uncertain:
            self._error = f"whether the turn is kept is not known: {cause}"
        logger.error("%s: %s (with %d last events)", self._run.id, self._error, len(events))

    def _take_leftovers(self) -> None:
        """Messages that came too late for the last model call."""
        leftovers = self._lane.take_steered()
        if not leftovers:
            return
        if self._ending == "aborted":
            # Whoever stopped the agent does not want it to start again; the words are kept.
            self._loop.messages.extend(leftovers)
        else:
            run_id = self._continue_as(leftovers)
            self._run.events.add("steered", {"followupRunId": run_id})

    def _missing_result_text(self) -> str:
        return f"[aborted: {self._error}]" if self._error else "[no result]"

    def _finish_reason(self) -> RunFinish:
        match self._ending:
            case "completed":
                return self._loop.finish_reason
            case "failed":
                return "error"
            case "aborted":
                return "aborted"

    def _turn_data(self) -> JsonObject:
        return {"steps": self._budget.steps, **self._loop.telemetry()}

    def _set_waiting(self, is_waiting: bool) -> None:
        if self._run.has_ended or is_waiting == (self._run.state == "waiting"):
            return
        self._run.set_waiting(is_waiting)
        self._budget.set_running(not is_waiting)
