"""What a caller asks of an agent: a message, for which session, with what besides."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from nacre.messages import UserMessage, user_message
from nacre.providers import ModelSettings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nacre.agent.client_tools import ClientTool
    from nacre.config import QueueMode
    from nacre.messages import Message
    from nacre.telemetry import TraceContext


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnRequest:
    """One turn. Without a session it begins a new one; `history` alone leaves none behind."""

    message: UserMessage | str | None = None
    """What the person said; None only with a history that ends with what the model has to read."""
    agent_id: str = ""
    """Empty for the session's agent, else for the default one."""
    session_id: str = ""
    """A session that exists."""
    session_key: str = ""
    """The caller's own name for a session; it is begun where there is none of the agent's."""
    title: str = ""
    """For people, of a session that is begun."""
    sender: str = ""
    channel: str = ""
    model: str = ""
    """`provider/model` instead of the agent's; then there are no fallbacks."""
    client_tools: Sequence[ClientTool] = ()
    history: Sequence[Message] | None = None
    """What was said before, where the caller keeps it; None for what the session holds."""
    instructions: str = ""
    """Added to the agent's own."""
    settings: ModelSettings = field(default_factory=ModelSettings)
    tools_disabled: bool = False
    queue_mode: QueueMode | Literal[""] = ""
    """What becomes of the message while another turn of the session runs; empty as configured."""
    trace: TraceContext | None = field(default=None, repr=False, compare=False)
    """Where the turn is shown in a trace; None for where its caller is."""

    @property
    def user_message(self) -> UserMessage | None:
        if isinstance(self.message, str):
            return user_message(self.message)
        return self.message

    def can_join(self, other: TurnRequest) -> bool:
        """Whether nothing is lost when the message becomes part of the other's turn."""
        is_plain = (
            self.user_message is not None
            and not self.client_tools
            and self.history is None
            and self.model in ("", other.model)
            and not self.instructions
            and self.settings == ModelSettings()
            and not self.tools_disabled
        )
        return is_plain and (self.sender, self.channel) == (other.sender, other.channel)
