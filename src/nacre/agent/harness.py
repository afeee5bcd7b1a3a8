"""The seam between a turn and the harness that runs its model loop."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from nacre.agent.turn_context import TurnContext
    from nacre.json_types import JsonObject, JsonValue
    from nacre.messages import FinishReason, Message


class Harness(Protocol):
    """Runs the model loop of turns: calls the model, runs its tools, compacts its context.

    Everything around the loop serves every harness and stays outside of it: the session queue with
    its steering, aborts and the time limit, approvals, the event log, the transcript, the
    trajectory, the `agent_end` hooks and the span of the turn.
    """

    def plan_surface(self, turn: TurnContext, /) -> str:
        """The kind of tools that the model is going to see; recorded when the turn begins."""
        ...

    async def run(self, turn: TurnContext, /) -> None:
        """Run the loop until the model has answered; raises if there is no answer.

        - Write to `turn.output` as the answer comes in: a turn that is cut off keeps it.
        - Call `turn.budget.take_step()` before each model call, and add the usage of each answer.
        - Take `turn.queue.take_steered()` before each model call, and once more before the end.
        - Record calls in `turn.trajectory`, and keep `turn.waits` informed of those that run.
        - Return or raise soon after `turn.stop` is aborted; the task is cancelled otherwise.
        """
        ...


@dataclass(kw_only=True, slots=True)
class TurnOutput:
    """What a turn has produced; complete at every moment, since a turn may be cut off."""

    messages: list[Message]
    """What the turn adds to its session, its own message first."""
    model: str
    """The model that gave the last answer; before that, the first to be called."""
    text: str = ""
    """The last answer; of a turn that was cut off, as far as the model had come."""
    finish_reason: FinishReason = "stop"
    error: str = ""
    """Why the turn failed although its loop came to its end."""
    surface: str = ""
    """The kind of tools that the model sees; empty until it is known."""
    data: JsonObject = field(default_factory=dict[str, "JsonValue"])
    """Further members for the record of the turn."""
