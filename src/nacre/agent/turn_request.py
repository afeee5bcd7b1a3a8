"""The request for one turn, and the session and the agent that it is for."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from nacre.agent.built_in_commands import QUEUE_MODES
from nacre.agent.client_tools import ClientTool
from nacre.errors import SessionError
from nacre.messages import UserMessage, message_from_json, message_to_json, user_message
from nacre.providers import ModelSettings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nacre.agent.chat_commands import CallerRight
    from nacre.agent.heartbeat import HeartbeatTurn
    from nacre.agent.manual_call import ManualCall
    from nacre.config import AgentConfig, AgentsConfig, QueueMode
    from nacre.json_types import JsonObject
    from nacre.messages import Message
    from nacre.storage import SessionRecord, Store
    from nacre.telemetry import TraceContext

_MAX_TITLE_CHARACTERS: Final = 80
_PLAIN_FIELDS: Final = (
    "agent_id",
    "sender",
    "channel",
    "model",
    "instructions",
    "tools_disabled",
    "light_context",
    "queue_mode",
    "session_model",
)
_SESSION_ID_BYTES: Final = 12
_MAX_SHOWN_ID: Final = 80


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnRequest:
    """A request for one turn. Without a session it starts a new one; with only `history`, the
    session is not stored."""

    message: UserMessage | str | None = None
    """The message of the user; None only if `history` ends with a message for the model."""
    run_id: str = ""
    """The id of the run that the message begins; empty for a new one."""
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
    light_context: bool = False
    """Whether to leave out the workspace files that describe the agent."""
    queue_mode: QueueMode | Literal[""] = ""
    """How to handle the message while a turn is running; empty as configured."""
    rights: frozenset[CallerRight] = frozenset()
    """What the caller may do beyond talking to agents; see `OWNER_RIGHTS`."""
    session_model: str = ""
    """The model of the session, which the service sets; used if `model` is empty."""
    action: Literal["", "compact"] = ""
    """What the turn does instead of answering the message; set by the service for a command."""
    manual_call: ManualCall | None = None
    """A call that a person makes; no model is asked."""
    heartbeat: HeartbeatTurn | None = None
    """Set if the turn is a heartbeat; its message is the prompt of the heartbeat."""
    trace: TraceContext | None = field(default=None, repr=False, compare=False)
    """The parent of the turn's span; None for the current span of the caller."""

    @property
    def user_message(self) -> UserMessage | None:
        if isinstance(self.message, str):
            return user_message(self.message)
        return self.message

    @property
    def session_title(self) -> str:
        """The title of a session that begins with this request."""
        message = self.user_message if self.heartbeat is None else None
        first_line = message.text.strip().partition("\n")[0] if message else ""
        return self.title or first_line[:_MAX_TITLE_CHARACTERS]

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
            and not self.light_context
            and not self.action
            and not other.action
            and self.heartbeat is None
            and other.heartbeat is None
            and self.manual_call is None
            and other.manual_call is None
        )
        return is_plain and (self.sender, self.channel) == (other.sender, other.channel)


def request_to_json(request: TurnRequest) -> JsonObject:
    """A request for another process, without its session. Heartbeats cannot be sent."""
    message, history, call = request.user_message, request.history, request.manual_call
    data: dict[str, Any] = {
        **{name: getattr(request, name) for name in _PLAIN_FIELDS},
        "rights": sorted(request.rights),
        "message": None if message is None else message_to_json(message),
        "settings": asdict(request.settings),
        "clientTools": [asdict(tool) for tool in request.client_tools],
    }
    if history is not None:
        data["history"] = [message_to_json(each) for each in history]
    if request.action:
        data["action"] = request.action
    if call is not None:
        data["manualCall"] = {"tool_id": call.tool_id, "input": call.input}
    return cast("JsonObject", data)


def request_from_json(given: JsonObject, *, session_id: str) -> TurnRequest:
    """Parse a request. Raises KeyError, TypeError or ValueError for one that is damaged."""
    # It imports the loop of a turn.
    from nacre.agent.manual_call import ManualCall

    data = cast("dict[str, Any]", given)
    settings: dict[str, Any] = dict(data["settings"])
    settings["stop"] = tuple(settings["stop"])
    message = None if data["message"] is None else message_from_json(data["message"])
    history, call = data.get("history"), data.get("manualCall")
    return TurnRequest(
        **{name: data[name] for name in _PLAIN_FIELDS},
        session_id=session_id,
        message=message if isinstance(message, UserMessage) else None,
        rights=frozenset(data["rights"]),
        settings=ModelSettings(**settings),
        client_tools=tuple(ClientTool(**tool) for tool in data["clientTools"]),
        history=None if history is None else [message_from_json(each) for each in history],
        action=data.get("action", ""),
        manual_call=None if call is None else ManualCall(**call),
    )


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
