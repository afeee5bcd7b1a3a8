"""Runs the tool calls of a model's answer and tracks which wait for people or clients."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import anyio

from nacre.agent.tool_surface import CallResult, format_error_result
from nacre.agent.turn_spans import execute_tool_span
from nacre.hooks import ToolResultPersist
from nacre.messages import ToolMessage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence, Set

    from nacre.agent.run import AgentRun
    from nacre.agent.tool_surface import ToolSurface
    from nacre.hooks import HookRunner
    from nacre.messages import ToolCallPart
    from nacre.run_context import RunContext


class ExternalWaits:
    """Knows which questions of a run are open, and whether they are all that it waits for."""

    def __init__(self, run: AgentRun, on_waiting: Callable[[bool], None]) -> None:
        self.closed_count = 0
        """How many questions have had their answer, or will not get one."""
        self._run = run
        self._on_waiting = on_waiting
        self._open_before: set[str] = set()
        self._surface: ToolSurface | None = None
        self._calls: dict[str, ToolCallPart] = {}
        self._change = anyio.Event()

    def watch(self, surface: ToolSurface) -> None:
        self._surface = surface

    def open_ids(self) -> set[str]:
        """The calls that somebody is asked about, or whose result a client owes."""
        asked = {request.call_id for request in self._run.pending_approvals}
        return asked | {call.call_id for call in self._run.pending_client_calls}

    async def any_closed(self, call_ids: Set[str]) -> None:
        """Return when one of these calls has its answer, or will not get one."""
        while self.open_ids().issuperset(call_ids):
            await self._change.wait()

    def begin(self, call: ToolCallPart) -> None:
        """A call of the model runs."""
        self._calls[call.call_id] = call

    def end(self, call: ToolCallPart) -> None:
        self._calls.pop(call.call_id, None)
        self.look()

    def look(self) -> None:
        """Something has changed: tell whoever waits, and whether the run waits."""
        open_ids = self.open_ids()
        self.closed_count += len(self._open_before - open_ids)
        self._open_before = open_ids
        change, self._change = self._change, anyio.Event()
        change.set()
        self._on_waiting(self._is_held(open_ids))

    def _is_held(self, open_ids: Set[str]) -> bool:
        surface = self._surface
        if surface is None or not self._calls:
            return False
        # Most changes are of calls that wait for nobody.
        return bool(open_ids) and all(
            surface.is_held(call, open_ids=open_ids) for call in self._calls.values()
        )


logger = logging.getLogger(__name__)

_MAX_PARALLEL_CALLS: Final = 1_000


class ToolCalls:
    """Makes the calls of a run. What came of each can be taken also after a cancellation."""

    def __init__(
        self,
        surface: ToolSurface,
        *,
        outside: ExternalWaits,
        hooks: HookRunner,
        context: RunContext,
        is_parallel: bool,
    ) -> None:
        self._surface = surface
        self._outside = outside
        self._hooks = hooks
        self._context = context
        self._at_once = _MAX_PARALLEL_CALLS if is_parallel else 1
        self._limiter = anyio.CapacityLimiter(self._at_once)
        self._finished: dict[str, ToolMessage] = {}
        self._order: tuple[str, ...] = ()

    def take_finished(self) -> list[ToolMessage]:
        """The results of the last answer's calls, in the order of the calls; each once.

        All of them after `make` has returned; those that had come when it was cancelled.
        """
        finished, self._finished = self._finished, {}
        return [finished[call_id] for call_id in self._order if call_id in finished]

    async def make(self, calls: Sequence[ToolCallPart]) -> None:
        """Make the calls; each has a result afterwards."""
        self._order = tuple(call.call_id for call in calls)
        for call in calls[: self._at_once]:
            # All that run at once, before the first does: it is not to look as if they waited.
            self._outside.begin(call)
        try:
            async with anyio.create_task_group() as tasks:
                for call in calls:
                    tasks.start_soon(self._run_call, call)
        finally:
            for call in calls:
                self._outside.end(call)

    async def _run_call(self, call: ToolCallPart) -> None:
        async with self._limiter:
            self._outside.begin(call)
            result = await self._trace_call(call)
            content = await self._apply_persist_hooks(call, result)
        self._finished[call.call_id] = ToolMessage(
            call_id=call.call_id, name=call.name, content=content, is_error=result.is_error
        )
        self._outside.end(call)

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
            return await self._surface.call(call)
        except Exception:
            # Ours: tools and hooks that fail have results. The turn can go on all the same.
            logger.exception("a call of %s failed inside of Nacre", call.name)
            return format_error_result(
                f"the call of {call.name} failed inside of Nacre; see its log"
            )

    async def _apply_persist_hooks(self, call: ToolCallPart, result: CallResult) -> str:
        """What becomes part of the session, and what the model reads: the same."""
        if not self._hooks.has_hooks("tool_result_persist"):
            return result.content
        return await self._hooks.tool_result_persist(
            ToolResultPersist(
                context=self._context,
                tool_name=call.name,
                call_id=call.call_id,
                content=result.content,
                is_error=result.is_error,
            )
        )
