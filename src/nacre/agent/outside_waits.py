"""What a run waits for that only people and clients can give: open approvals and client calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from collections.abc import Callable, Set

    from nacre.agent.run import AgentRun
    from nacre.agent.tool_surface import ToolSurface
    from nacre.messages import ToolCallPart


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
