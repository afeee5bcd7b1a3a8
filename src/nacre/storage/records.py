"""What the store gives back: sessions, turns, messages, events and approvals as plain values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, get_args

from nacre.messages import Usage

if TYPE_CHECKING:
    from nacre.json_types import JsonObject, JsonValue
    from nacre.messages import Message

TurnStatus = Literal["running", "completed", "failed", "aborted", "interrupted"]
TURN_STATUSES: Final[tuple[TurnStatus, ...]] = get_args(TurnStatus)

ApprovalState = Literal["open", "allowed", "denied", "expired", "given_up"]
APPROVAL_STATES: Final[tuple[ApprovalState, ...]] = get_args(ApprovalState)


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionRecord:
    """A conversation. Times are seconds since the epoch, here and below."""

    id: str
    agent_id: str
    key: str = ""
    """What a channel calls the conversation; one session per agent and key. May be empty."""
    channel: str = ""
    sender: str = ""
    title: str = ""
    created: float
    updated: float
    """When a turn of it last began or ended."""
    turn_count: int = 0
    message_count: int = 0

    @property
    def cursor(self) -> str:
        """For `Store.sessions(before=...)`: those that come after this one in the list."""
        return f"{self.updated!r}~{self.id}"


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredMessage:
    """A message of a finished turn, or the summary that stands for all older ones."""

    sequence: int
    """Its place in the session, from 0, without gaps. Of a summary: the last that it stands for."""
    run_id: str
    """The turn that it is of; empty for a summary."""
    message: Message
    is_summary: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnRecord:
    """One turn: what was asked, how it ended, and what it cost."""

    run_id: str
    session_id: str
    status: TurnStatus
    prompt: Message | None
    """Kept with the turn as well, so that an interrupted one still says what was asked."""
    model: str = ""
    surface: str = ""
    usage: Usage = field(default_factory=Usage)
    error: str = ""
    data: JsonObject = field(default_factory=dict[str, "JsonValue"])
    started: float
    ended: float | None = None
    """None while it runs, and of an interrupted one: nobody knows when its process was killed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Compaction:
    """A summary that stands for all messages of a session up to a sequence number."""

    up_to_sequence: int
    summary: str


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredEvent:
    """An event of a trajectory."""

    number: int
    """Its place among all stored events; for `Store.events(after=...)`."""
    run_id: str
    session_id: str
    event: JsonObject
    """As `TrajectoryEvent.to_json` gave it, with its own `sequence` in the run."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ApprovalRecord:
    """A question about a call, and what was answered."""

    id: str
    session_id: str
    run_id: str
    tool_id: str
    tool_name: str
    input: JsonObject
    """What was asked about; secrets in it are blanked out when it is stored."""
    reason: str = ""
    call_id: str = ""
    parent_id: str = ""
    created: float
    expires: float
    state: ApprovalState = "open"
    answer: JsonObject = field(default_factory=dict[str, "JsonValue"])
    """As it was given, such as `{"answer": "deny", "reason": "..."}`; empty while it is open."""
    answered_by: str = ""
    answered: float | None = None
    agent_id: str = ""
    """That of its session; for who reads it."""
