"""The request for a turn, and the session and agent that it resolves to."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from nacre.errors import SessionError
from nacre.messages import UserMessage, user_message
from nacre.providers import ModelSettings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nacre.agent.client_tools import ClientTool
    from nacre.config import AgentConfig, AgentsConfig, QueueMode
    from nacre.messages import Message
    from nacre.storage import SessionRecord, Store
    from nacre.telemetry import TraceContext

_SESSION_ID_BYTES: Final = 12
_MAX_SHOWN_ID: Final = 80
_MAX_TITLE_CHARACTERS: Final = 80


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnRequest:
    """A request for one turn. Without a session it starts a new one; with only `history`, the
    session is not stored."""

    message: UserMessage | str | None = None
    """The message of the user; None only if `history` ends with a message for the model."""
    agent_id: str = ""
    """Empty for the agent of the session, or the default agent."""
    session_id: str = ""
    """The id of an existing session."""
    session_key: str = ""
    """The caller's name for a session of the agent. It is created if it does not exist."""
    title: str = ""
    """The title of a new session."""
    sender: str = ""
    channel: str = ""
    model: str = ""
    """`provider/model` instead of the agent's model, without fallbacks."""
    client_tools: Sequence[ClientTool] = ()
    history: Sequence[Message] | None = None
    """The earlier messages, if the caller keeps them; None for those of the session."""
    instructions: str = ""
    """Added to the instructions of the agent."""
    settings: ModelSettings = field(default_factory=ModelSettings)
    tools_disabled: bool = False
    queue_mode: QueueMode | Literal[""] = ""
    """How to handle the message while a turn is running; empty as configured."""
    trace: TraceContext | None = field(default=None, repr=False, compare=False)
    """The parent of the turn's span; None for the current span of the caller."""

    @property
    def user_message(self) -> UserMessage | None:
        if isinstance(self.message, str):
            return user_message(self.message)
        return self.message

    def can_join(self, other: TurnRequest) -> bool:
        """Whether the message can become part of the other turn without losing an option."""
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


@dataclass(frozen=True, kw_only=True, slots=True)
class ResolvedSession:
    """The session and the agent of a turn."""

    agent: AgentConfig
    session_id: str
    session_key: str = ""
    is_stored: bool = True


class SessionResolver:
    """Finds the session of a request, or creates it."""

    def __init__(self, agents: AgentsConfig, store: Store) -> None:
        self._agents = agents
        self._store = store

    async def resolve(self, request: TurnRequest) -> ResolvedSession:
        """Return the session. Raises SessionError (`not_found` or `invalid`)."""
        if request.user_message is None and not request.history:
            raise SessionError("there is no message and no history to answer", code="invalid")
        if request.session_id and request.session_key:
            raise SessionError(
                "a request names its session by its id or by its key, not by both", code="invalid"
            )
        if request.session_id:
            return await self._resolve_by_id(request)
        agent = self._agents.agent(request.agent_id or self._agents.default_id)
        if request.history is not None and not request.session_key:
            return ResolvedSession(agent=agent, session_id=_new_session_id(), is_stored=False)
        found: SessionRecord | None = None
        if request.session_key:
            found = await self._store.session_by_key(agent.id, request.session_key)
        return _resolve_record(agent, found or await self._create_session(request, agent))

    async def _resolve_by_id(self, request: TurnRequest) -> ResolvedSession:
        found = await self._store.session(request.session_id)
        if found is None:
            shown = request.session_id[:_MAX_SHOWN_ID]
            raise SessionError(f"there is no session {shown!r}", code="not_found")
        agent = self._agents.agent(found.agent_id)
        if request.agent_id and self._agents.agent(request.agent_id) is not agent:
            raise SessionError(
                f"the session {found.id} is one of the agent {agent.id}, not of {request.agent_id}",
                code="invalid",
            )
        return _resolve_record(agent, found)

    async def _create_session(self, request: TurnRequest, agent: AgentConfig) -> SessionRecord:
        return await self._store.add_session(
            id=_new_session_id(),
            agent_id=agent.id,
            key=request.session_key,
            channel=request.channel,
            sender=request.sender,
            title=request.title or _make_title(request),
        )


def _resolve_record(agent: AgentConfig, found: SessionRecord) -> ResolvedSession:
    return ResolvedSession(agent=agent, session_id=found.id, session_key=found.key)


def _make_title(request: TurnRequest) -> str:
    message = request.user_message
    first_line = message.text.strip().partition("\n")[0] if message else ""
    return first_line[:_MAX_TITLE_CHARACTERS]


def _new_session_id() -> str:
    return f"session_{os.urandom(_SESSION_ID_BYTES).hex()}"
