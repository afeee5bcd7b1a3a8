"""Follows one run to its end: its events are shown, its questions put to the person."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from nacre.errors import ApprovalError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from nacre.agent import AgentRun, RunEvent
    from nacre.cli.agent.approvals_prompt import ApprovalsPrompt
    from nacre.cli.agent.run_view import RunView
    from nacre.cli.agent.screen import Screen
    from nacre.cli.runner import Stops
    from nacre.tools import ApprovalQueue, ApprovalRequest
    from nacre.tools.approvals.requests import ApprovalDecision


class RunFollower:
    """Shows runs, one after the other."""

    def __init__(
        self,
        *,
        screen: Screen,
        view: RunView,
        prompt: ApprovalsPrompt,
        approvals: ApprovalQueue,
        stops: Stops,
    ) -> None:
        self._screen = screen
        self._view = view
        self._prompt = prompt
        self._approvals = approvals
        self._stops = stops

    async def follow(
        self, run: AgentRun, *, meanwhile: Callable[[], Coroutine[None, None, None]] | None = None
    ) -> None:
        """Return when it has ended; the first signal ends it. `meanwhile` is run beside it."""
        with self._stops.stopping(run.request_abort):
            async with anyio.create_task_group() as tasks:
                if meanwhile is not None:
                    tasks.start_soon(meanwhile)
                async for event in run.events.follow():
                    await self._show(run, event)
                tasks.cancel_scope.cancel()
        self._view.end(run)

    async def _show(self, run: AgentRun, event: RunEvent) -> None:
        self._view.add(run, event)
        if self._screen.printer.problem is not None:
            run.request_abort("nobody reads the output any more")
        if event.kind == "approval.requested":
            # Here, so that nothing is written between a question and its answer.
            for request in run.pending_approvals:
                if request.id == event.data.get("approvalId"):
                    await self._ask(request)

    async def _ask(self, request: ApprovalRequest) -> None:
        decided: list[ApprovalDecision] = []
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._until_closed, request, tasks.cancel_scope)
            decided.append(await self._prompt.answer(request))
            tasks.cancel_scope.cancel()
        try:
            if decided:
                self._approvals.answer(request.id, decided[0])
        except ApprovalError as error:
            self._screen.note(str(error), "warning")

    async def _until_closed(self, request: ApprovalRequest, scope: anyio.CancelScope) -> None:
        """Nobody is asked any longer about a call that was given up, or whose time is over."""
        while any(pending.id == request.id for pending in self._approvals.pending):
            await self._approvals.changed()
        scope.cancel()
