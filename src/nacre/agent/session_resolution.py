"""Resolves the session and the agent of a request, or creates the session."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from nacre.agent.built_in_commands import QUEUE_MODES
from nacre.errors import SessionError

if TYPE_CHECKING:
    from nacre.agent.turn_request import TurnRequest
    from nacre.config import AgentConfig, AgentsConfig, QueueMode
    from nacre.storage import SessionRecord, Store

_SESSION_ID_BYTES: Final = 12
_MAX_SHOWN_ID: Final = 80


@dataclass(frozen=True, kw_only=True, slots=True)
class ResolvedSession:
    """The session and the agent of a turn."""

    agent: AgentConfig
    session_id: str
    session_key: str = ""
    is_stored: bool = True
    model: str = ""
    """The model that was chosen for the session; empty for the agent's."""
    queue_mode: QueueMode | Literal[""] = ""
    """The queue mode that was chosen for the session; empty for the configured one."""


class SessionResolver:
    """Finds the session of a request, or creates it."""

    def __init__(self, agents: AgentsConfig, store: Store) -> None:
        self._agents = agents
        self._store = store

    async def resolve(self, request: TurnRequest) -> ResolvedSession:
        """Return the session. Raises SessionError (`not_found` or `invalid`)."""
        agent, found = await self.find(request)
        if found is None and request.history is not None and not request.session_key:
            return ResolvedSession(
                agent=agent, session_id=new_session_id(request.run_id), is_stored=False
            )
        return resolve_record(agent, found or await self.create(request, agent))

    async def find(self, request: TurnRequest) -> tuple[AgentConfig, SessionRecord | None]:
        """Return the agent, and the session if it exists. Raises SessionError (`not_found` or
        `invalid`)."""
        if request.user_message is None and not request.history:
            raise SessionError("there is no message and no history to answer", code="invalid")
        if request.session_id and request.session_key:
            raise SessionError(
                "a request names its session by its id or by its key, not by both", code="invalid"
            )
        if request.session_id:
            return await self._find_by_id(request)
        agent = self._agents.agent(request.agent_id or self._agents.default_id)
        if not request.session_key:
            return agent, None
        return agent, await self._store.session_by_key(agent.id, request.session_key)

    async def create(self, request: TurnRequest, agent: AgentConfig) -> SessionRecord:
        """Create the session of a request. Its first turn gives it a title."""
        return await self._store.add_session(
            id=new_session_id(),
            agent_id=agent.id,
            key=request.session_key,
            channel=request.channel,
            sender=request.sender,
            title=request.title,
        )

    async def _find_by_id(self, request: TurnRequest) -> tuple[AgentConfig, SessionRecord]:
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
        return agent, found


def resolve_record(agent: AgentConfig, found: SessionRecord) -> ResolvedSession:
    """The session of a record, with the settings that were chosen for it."""
    modes: list[QueueMode] = [mode for mode in QUEUE_MODES if mode == found.queue_mode]
    return ResolvedSession(
        agent=agent,
        session_id=found.id,
        session_key=found.key,
        model=found.model,
        queue_mode=modes[0] if modes else "",
    )


def new_session_id(run_id: str = "") -> str:
    """The id of a new session; that of a repeated request is the same each time."""
    return f"session_{run_id.removeprefix('run_') or os.urandom(_SESSION_ID_BYTES).hex()}"
