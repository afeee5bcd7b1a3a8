"""The request for one turn."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from nacre.agent.client_tools import ClientTool
from nacre.messages import UserMessage, message_from_json, message_to_json, user_message
from nacre.providers import ModelSettings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nacre.agent.chat_commands import CallerRight
    from nacre.agent.heartbeat_turn import HeartbeatTurn
    from nacre.agent.manual_call import ManualCall
    from nacre.config import QueueMode
    from nacre.json_types import JsonObject
    from nacre.messages import Message
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
