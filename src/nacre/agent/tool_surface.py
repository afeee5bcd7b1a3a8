"""The seam between the turn loop and what the model is shown: code mode, Tool Search, or tools."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence, Set

    from nacre.agent.call_results import CallResult
    from nacre.json_types import JsonObject
    from nacre.messages import ToolCallPart
    from nacre.providers.base import SentPayload, ToolSpec
    from nacre.trajectory import TrajectoryRecorder

SurfaceKind = Literal["direct", "tool_search", "code_mode"]


class ToolSurface(Protocol):
    """What one run shows its model. Its methods may be called concurrently."""

    @property
    def kind(self) -> SurfaceKind: ...

    @property
    def specs(self) -> Sequence[ToolSpec]:
        """The tools of every request of the run."""
        ...

    @property
    def trajectory(self) -> TrajectoryRecorder: ...

    def verify(self, sent: SentPayload) -> None:
        """Raises when a request is about to show other tools than `specs`; counts it otherwise."""
        ...

    async def call(self, call: ToolCallPart) -> CallResult:
        """Do what the model asked for. A call that fails has a result, too.

        Returns when there is something for the model: what waits for a person or a client is
        waited for here.
        """
        ...

    def is_held(self, call: ToolCallPart, *, open_ids: Set[str]) -> bool:
        """Whether the call, which runs, goes on only when somebody answers one of the questions
        about the calls with these ids."""
        ...

    async def abort(self, reason: str) -> None:
        """End everything that runs. It takes no more calls."""
        ...

    def telemetry(self) -> JsonObject:
        """What was found and called so far, for the record of the turn."""
        ...
