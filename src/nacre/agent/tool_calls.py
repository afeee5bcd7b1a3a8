"""Runs the tool calls of a model's answer: in parallel where allowed, results in their order."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Final

import anyio

from nacre.agent.turn_spans import execute_tool_span
from nacre.hooks import ToolResultPersist
from nacre.messages import ToolMessage
from nacre.tools import CallResult, format_error

if TYPE_CHECKING:
    from collections.abc import Sequence, Set

    from nacre.agent.turn_context import TurnContext
    from nacre.messages import ToolCallPart
    from nacre.tools import ToolSurface

logger = logging.getLogger(__name__)

_MAX_PARALLEL_CALLS: Final = 1_000


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
            # All that run at once, before the first does: the run must not look as if it waited.
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
            # A bug in Nacre: tools and hooks that fail have results. The turn can go on.
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
