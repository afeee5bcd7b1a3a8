"""What agents say to people in the middle of a turn: an event of the run that they are in."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from nacre.agent import AgentRun
    from nacre.run_context import RunContext


class RunMessageSink:
    """The sink of the `message` tool."""

    def __init__(self, run_of: Callable[[str], AgentRun | None]) -> None:
        self._run_of = run_of

    async def send(self, text: str, context: RunContext, /) -> None:
        run = self._run_of(context.run_id)
        if run is not None:
            run.events.add("message.sent", {"text": text})
