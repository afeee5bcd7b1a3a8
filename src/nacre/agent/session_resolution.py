"""Resolves the session and the agent of a request."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from nacre.errors import SessionError

if TYPE_CHECKING:
    from nacre.agent.turn_request import TurnRequest
    from nacre.config import AgentConfig, AgentsConfig
    from nacre.storage import SessionRecord, Store


_SESSION_ID_BYTES: Final = 12
_MAX_SHOWN_ID: Final = 80
_MAX_TITLE_CHARACTERS: Final = 80


@dataclass(frozen=True, kw_only=True, slots=True)
class ResolvedSession:
    """Where a turn takes place."""

    agent: AgentConfig
    session_id: str
    session_key: str = ""
    is_stored: bool = True


class SessionResolver:
    """Finds sessions, and begins those that are not there."""

    def __init__(self, agents: AgentsConfig, store: Store) -> None:
        self._agents = agents
        self._store = store

    async def resolve(self, request: TurnRequest) -> ResolvedSession:
        """Raises SessionError: `not_found` for what is not there, `invalid` for what cannot be."""
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
