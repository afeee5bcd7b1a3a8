"""The built-in harness: call the model, run its tool calls, repeat until it has answered."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Final

import anyio

from nacre.agent.compaction import Compactor
from nacre.agent.model_step import ModelStep, partial_answer
from nacre.agent.surfaces import open_surface, planned_surface
from nacre.agent.transcript import repair_history
from nacre.agent.turn_spans import execute_tool_span
from nacre.errors import NacreError, ProviderError
from nacre.hooks import BeforeAgentFinalize, ToolResultPersist
from nacre.messages import AssistantMessage, ToolMessage, user_message
from nacre.tools import CallResult, format_error

if TYPE_CHECKING:
    from collections.abc import Sequence, Set

    from nacre.agent.turn_context import TurnContext
    from nacre.code_mode import Runtime
    from nacre.config import AgentConfig
    from nacre.json_types import JsonObject
    from nacre.messages import ToolCallPart
    from nacre.tools import SurfaceKind, ToolSurface

logger = logging.getLogger(__name__)


_MAX_REVISIONS: Final = 3
_CLEAN_UP_SECONDS: Final = 5.0
_DEFAULT_INSTRUCTIONS: Final = (
    "You are {name}, an agent that works for a person. Do what is asked, with the tools that you "
    "have where they help; say plainly what you did and what you could not do."
)
_MAX_PARALLEL_CALLS: Final = 1_000


class BuiltInHarness:
    """The harness for models of a provider, with the tools of a surface."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def plan_surface(self, turn: TurnContext, /) -> SurfaceKind:
        """The configured surface; a run without tools shows none."""
        return planned_surface(turn.agent, tools_disabled=turn.request.tools_disabled)

    async def run(self, turn: TurnContext, /) -> None:
        """Open a surface, run the loop, and abort everything that still runs in the surface."""
        instructions = build_instructions(
            turn.agent,
            added=turn.request.instructions,
            has_tools=not turn.request.tools_disabled,
        )
        surface = await open_surface(turn, self._runtime)
        turn.output.surface = surface.kind
        loop = TurnLoop(turn, surface, instructions=instructions)
        reason = "the turn has ended; `wait` works within a turn"
        try:
            await loop.run()
        except BaseException as error:
            said = str(error) if isinstance(error, NacreError) else ""
            reason = turn.stop.reason or said or "the run was cut off"
            raise
        finally:
            turn.queue.stop_steering()
            loop.keep_partial_answer()
            with anyio.move_on_after(_CLEAN_UP_SECONDS, shield=True):
                await surface.abort(reason)
            turn.output.data.update(loop.telemetry())


class TurnLoop:
    """The loop of one turn over one surface."""

    def __init__(self, turn: TurnContext, surface: ToolSurface, *, instructions: str) -> None:
        self._turn = turn
        self._output = turn.output
        self._surface = surface
        self._step = ModelStep(turn, surface, instructions=instructions)
        self._calls = ToolCalls(turn, surface)
        self._compactor = Compactor(turn)

    async def run(self) -> None:
        """Run until the model has answered; raises if there is no answer."""
        await self._compactor.compact_if_long()
        revisions = 0
        while True:
            answer = await self._take_step()
            if answer.tool_calls:
                await self._calls.run(answer.tool_calls)
            elif not self._take_steered():
                if not await self._is_rejected(answer, revisions):
                    break
                revisions += 1

    def keep_partial_answer(self) -> None:
        """Keep the text of an answer that was cut off; somebody may have read it."""
        text = self._step.partial_text
        if text.strip():
            self._output.text, self._output.finish_reason = text, "error"
            self._output.messages.append(partial_answer(text, self._output.model))

    def telemetry(self) -> JsonObject:
        """Counts of model requests and of the surface, for the record of the turn."""
        return {
            "requests": self._step.request_count,
            "toolBytes": self._step.sent.tool_bytes,
            "payloadBytes": self._step.sent.payload_bytes,
            "telemetry": self._surface.telemetry().to_json(),
        }

    async def _take_step(self) -> AssistantMessage:
        self._turn.stop.raise_if_aborted()
        self._take_steered()
        self._turn.budget.take_step()
        try:
            answer = await self._call_model()
        except ProviderError as error:
            if not error.is_context_overflow or not await self._compactor.compact_after_overflow():
                raise
            answer = await self._call_model()
        self._turn.budget.add(answer.usage)
        self._output.messages.append(answer)
        self._output.text, self._output.finish_reason = answer.text, answer.finish_reason
        self._output.model = answer.model or self._output.model
        return answer

    async def _call_model(self) -> AssistantMessage:
        messages = repair_history([*self._turn.transcript.history, *self._output.messages])
        answers: list[AssistantMessage] = []
        with self._turn.stop.cancelling():
            answers.append(await self._step.ask(messages))
        self._turn.stop.raise_if_aborted()
        return answers[0]

    def _take_steered(self) -> bool:
        """Add new messages for the running turn; returns whether there are any."""
        steered = self._turn.queue.take_steered()
        self._output.messages.extend(steered)
        return bool(steered)

    async def _is_rejected(self, answer: AssistantMessage, revisions: int) -> bool:
        """Whether a hook rejects the answer; then its reason is the next message for the model."""
        if answer.finish_reason == "error":
            self._output.error = f"{self._output.model} ended its answer with an error"
            return False
        hooks = self._turn.service.hooks
        if revisions >= _MAX_REVISIONS or not hooks.has_hooks("before_agent_finalize"):
            return False
        reason = await hooks.before_agent_finalize(
            BeforeAgentFinalize(context=self._turn.identity, text=answer.text, pass_count=revisions)
        )
        if reason is None:
            return False
        self._output.messages.append(user_message(reason))
        return True


def build_instructions(agent: AgentConfig, *, added: str = "", has_tools: bool = True) -> str:
    """Build the instructions of the model; `added` is from the caller. They contain no time."""
    parts = [
        agent.instructions.strip() or _DEFAULT_INSTRUCTIONS.format(name=agent.name or agent.id)
    ]
    if has_tools:
        parts.append(f"The workspace is {agent.workspace}.")
    if added.strip():
        parts.append(added.strip())
    return "\n\n".join(parts)


class ToolCalls:
    """Runs the tool calls of a turn."""

    def __init__(self, turn: TurnContext, surface: ToolSurface) -> None:
        self._turn = turn
        self._surface = surface
        is_parallel = turn.agent.settings.is_parallel
        self._max_parallel = _MAX_PARALLEL_CALLS if is_parallel else 1

    async def run(self, calls: Sequence[ToolCallPart]) -> None:
        """Run the calls of one answer, and add their results to the output of the turn.

        Every call has a result afterwards; if this is cancelled, the results so far are added.
        """
        limiter = anyio.CapacityLimiter(self._max_parallel)
        results: dict[str, ToolMessage] = {}
        for call in calls[: self._max_parallel]:
            # Register all before the first starts, or the run would look paused in between.
            self._begin(call)
        with ExitStack() as stack:
            stack.callback(self._end, calls, results)
            async with anyio.create_task_group() as tasks:
                abort_surface = partial(tasks.start_soon, self._abort_surface)
                stack.callback(self._turn.stop.on_abort(abort_surface))
                for call in calls:
                    tasks.start_soon(self._run_call, call, limiter, results)

    def _begin(self, call: ToolCallPart) -> None:
        def is_held(open_ids: Set[str]) -> bool:
            return self._surface.is_held(call, open_ids=open_ids)

        self._turn.waits.begin(call.call_id, is_held)

    def _end(self, calls: Sequence[ToolCallPart], results: dict[str, ToolMessage]) -> None:
        for call in calls:
            self._turn.waits.end(call.call_id)
        finished = [call.call_id for call in calls if call.call_id in results]
        self._turn.output.messages.extend(results[call_id] for call_id in finished)

    async def _abort_surface(self) -> None:
        await self._surface.abort(self._turn.stop.reason)

    async def _run_call(
        self, call: ToolCallPart, limiter: anyio.CapacityLimiter, results: dict[str, ToolMessage]
    ) -> None:
        async with limiter:
            self._begin(call)
            result = await self._trace_call(call)
            content = await self._apply_persist_hooks(call, result)
        results[call.call_id] = ToolMessage(
            call_id=call.call_id, name=call.name, content=content, is_error=result.is_error
        )
        self._turn.waits.end(call.call_id)

    async def _trace_call(self, call: ToolCallPart) -> CallResult:
        is_known = any(spec.name == call.name for spec in self._surface.specs)
        name = call.name if is_known else ""
        with execute_tool_span(name, call_id=call.call_id) as current:
            result = await self._call_surface(call)
            if result.is_error:
                current.fail("tool_error" if is_known else "unknown_tool")
            return result

    async def _call_surface(self, call: ToolCallPart) -> CallResult:
        try:
            return await self._surface.execute_call(call, self._turn.waits)
        except Exception:
            # A bug in Nacre, since failures of tools and hooks are results. The turn continues.
            logger.exception("a call of %s failed inside of Nacre", call.name)
            return format_error(f"the call of {call.name} failed inside of Nacre; see its log")

    async def _apply_persist_hooks(self, call: ToolCallPart, result: CallResult) -> str:
        """The text that is stored in the session and that the model reads."""
        hooks = self._turn.service.hooks
        if not hooks.has_hooks("tool_result_persist"):
            return result.content
        return await hooks.tool_result_persist(
            ToolResultPersist(
                context=self._turn.identity,
                tool_name=call.name,
                call_id=call.call_id,
                content=result.content,
                is_error=result.is_error,
            )
        )
