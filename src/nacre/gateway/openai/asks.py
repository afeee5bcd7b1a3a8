"""A request of either API, as the agents take it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from nacre.agent import TurnRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nacre.agent import ClientTool
    from nacre.gateway.openai.conversation import Conversation
    from nacre.gateway.openai.models import ModelChoice
    from nacre.messages import Message, UserMessage
    from nacre.providers.base import ModelSettings

CHANNEL: Final = "openai"


@dataclass(frozen=True, kw_only=True, slots=True)
class Ask:
    """What one request asks for."""

    conversation: Conversation
    choice: ModelChoice
    client_tools: tuple[ClientTool, ...]
    settings: ModelSettings
    instructions: str = ""
    session_key: str = ""
    """The client's name for a session that is kept."""
    previous_run_id: str = ""
    """The run whose session goes on; Responses only."""
    is_kept: bool = False
    """Whether a session is begun where none is named."""

    def turn(
        self,
        *,
        message: UserMessage | None,
        history: Sequence[Message] | None = None,
        session_id: str = "",
        session_key: str = "",
    ) -> TurnRequest:
        """A turn of its own, whatever else is going on in the session: a request has an answer."""
        return TurnRequest(
            message=message,
            history=history,
            session_id=session_id,
            session_key=session_key,
            agent_id=self.choice.agent_id,
            model=self.choice.model,
            client_tools=self.client_tools,
            instructions=self.instructions,
            settings=self.settings,
            channel=CHANNEL,
            queue_mode="followup",
        )
