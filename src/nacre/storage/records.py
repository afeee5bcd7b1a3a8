"""The records of the store: sessions, turns, messages, events, approvals, media and cells."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Final, Literal, get_args

from nacre.lazy_dataclasses import dataclass
from nacre.messages import Usage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nacre.json_types import JsonObject, JsonValue
    from nacre.messages import Message

Visibility = Literal["visible", "private", "silent"]
"""Whether the user sees an answer: `private` if only sent messages are for the user, `silent` if
it says nothing or repeats what was sent."""

TurnStatus = Literal["running", "completed", "failed", "aborted", "interrupted"]
TURN_STATUSES: Final[tuple[TurnStatus, ...]] = get_args(TurnStatus)

ApprovalState = Literal["open", "allowed", "denied", "expired", "given_up"]
APPROVAL_STATES: Final[tuple[ApprovalState, ...]] = get_args(ApprovalState)


MessageRows = list[tuple[int, str, str]]
"""Sequence, run id and content of messages."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionRecord:
    """A session. All times in records are seconds since the epoch."""

    id: str
    agent_id: str
    key: str = ""
    """The name of the session in its channel, unique per agent; may be empty."""
    channel: str = ""
    sender: str = ""
    title: str = ""
    created: float
    updated: float
    """When a turn last started or ended."""
    turn_count: int = 0
    message_count: int = 0
    model: str = ""
    """The model that the user has chosen for the session; empty for the agent's."""
    queue_mode: str = ""
    """How to handle messages during a turn, as the user has chosen; empty as configured."""
    service_tier: str = ""
    """The tier of the model in Codex that the user has chosen; empty as configured."""
    permission_mode: str = ""
    """The permissions of Codex that the user has chosen; empty as configured."""

    @property
    def cursor(self) -> str:
        """The cursor for `Store.sessions(before=...)`, to list the sessions after this one."""
        return f"{self.updated!r}~{self.id}"


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredMessage:
    """A message of a finished turn, or the summary that replaces all older messages."""

    sequence: int
    """Its position in the session, from 0, without gaps; of the last summarized message."""
    run_id: str
    """The run id of its turn; empty for a summary."""
    message: Message
    is_summary: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnRecord:
    """One turn: its prompt, its status and its usage."""

    run_id: str
    session_id: str
    status: TurnStatus
    prompt: Message | None
    """Stored with the turn too, because an interrupted turn may have no messages."""
    model: str = ""
    surface: str = ""
    usage: Usage = field(default_factory=Usage)
    error: str = ""
    data: JsonObject = field(default_factory=dict[str, "JsonValue"])
    started: float
    ended: float | None = None
    """None for a running or an interrupted turn."""

    @property
    def visibility(self) -> Visibility:
        """Whether the last answer was for the user."""
        match self.data.get("visibility"):
            case "private":
                return "private"
            case "silent":
                return "silent"
            case _:
                return "visible"

    @property
    def sent(self) -> tuple[str, ...]:
        """The texts that were sent to the user during the turn."""
        sent = self.data.get("sent")
        return tuple(map(str, sent)) if isinstance(sent, list) else ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Compaction:
    """A summary that replaces all messages of a session up to a sequence number."""

    up_to_sequence: int
    summary: str


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredEvent:
    """An event of a trajectory."""

    number: int
    """Its position among all stored events, for `Store.events(after=...)`."""
    run_id: str
    session_id: str
    event: JsonObject
    """The result of `TrajectoryEvent.to_json`, with the event's `sequence` in the run."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ApprovalRecord:
    """An approval request for a tool call, and the decision."""

    id: str
    session_id: str
    run_id: str
    tool_id: str
    tool_name: str
    input: JsonObject
    """The input of the call; it is stored without secrets."""
    reason: str = ""
    call_id: str = ""
    parent_id: str = ""
    created: float
    expires: float
    state: ApprovalState = "open"
    answer: JsonObject = field(default_factory=dict[str, "JsonValue"])
    """The decision, such as `{"answer": "deny", "reason": "..."}`; empty while it is open."""
    answered_by: str = ""
    answered: float | None = None
    agent_id: str = ""
    """The agent of the session; set when the record is read."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ThreadRecord:
    """The thread that a session has in another runtime, such as Codex."""

    session_id: str
    thread_id: str
    data: JsonObject = field(default_factory=dict[str, "JsonValue"])
    """What its harness has to know to use it again."""
    created: float
    updated: float
    machine: str = field(default="", compare=False)
    """The machine that has its files; set by the store. Empty if it is not known."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BegunTurn:
    """What a turn needs to know about its session when it begins."""

    session: SessionRecord
    thread: ThreadRecord | None = None
    summary: StoredMessage | None = None
    message_rows: MessageRows = field(default_factory=list[tuple[int, str, str]])
    """Empty if they were not asked for. `Store.decode_messages` returns the messages."""
    last_run_id: str = ""
    """The run of the last message of the session; empty if there is none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MediaRecord:
    """A file of a reply, without its bytes."""

    id: str
    session_id: str
    run_id: str
    name: str
    type: str
    """Its media type, by its content."""
    size: int
    created: float

    def to_json(self) -> JsonObject:
        return {
            "id": self.id,
            "name": self.name,
            "type": self.type,
            "size": self.size,
            "createdAt": self.created,
        }


CallState = Literal["started", "done"]


@dataclass(frozen=True, kw_only=True, slots=True)
class CallRecord:
    """A nested call of a suspended cell."""

    request_id: int
    tool_id: str
    state: CallState
    result: str = field(default="", repr=False)
    """The answer as JSON, once the call is done."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CellRecord:
    """A suspended cell."""

    id: str
    session_id: str
    run_id: str
    call_id: str
    """The call of `exec` that started it."""
    scope: str
    """Who may resume it, as text; the snapshot is bound to it."""
    epoch: int
    number: int
    """The number of its snapshot."""
    snapshot: bytes = field(repr=False)
    data: JsonObject = field(repr=False)
    """The program, its open requests and its output so far."""
    image: str = ""
    """The identity of the sandbox image that it needs."""
    calls: tuple[CallRecord, ...] = ()
    seconds_left: float = 0.0
    """Until it expires, when it was read."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnState:
    """A turn that waits for people or clients, as its process has last stored it."""

    run_id: str
    session_id: str
    version: int
    """Grows with each state of the turn; an older state does not replace a newer one."""
    data: JsonObject = field(repr=False)
    age_seconds: float = 0.0
    """How long ago it was stored, by the time of the database, when it was read."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Lease:
    """Which process serves a session."""

    session_id: str
    owner: str
    epoch: int
    """Higher for each next owner of the session."""
    is_expired: bool = False


InboxKind = Literal["message", "abort", "approval", "approval_input", "client_results", "delete"]
InboxState = Literal["open", "accepted", "done"]


@dataclass(frozen=True, kw_only=True, slots=True)
class InboxItem:
    """Something for the process that serves a session."""

    number: int
    session_id: str
    run_id: str
    """The run that it is for; for a message, the run that takes it."""
    kind: InboxKind
    payload: JsonObject = field(repr=False)
    state: InboxState = "open"
    """A message is `accepted` until a turn has stored it."""
    result: JsonObject = field(default_factory=dict[str, "JsonValue"])


@dataclass(frozen=True, kw_only=True, slots=True)
class TakenSession:
    """A session that was taken over from another process."""

    session_id: str
    epoch: int
    states: tuple[TurnState, ...] = ()
    """The turns that wait, oldest first."""
    items: tuple[InboxItem, ...] = ()
    """Everything in its inbox, in order."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GatewayRecord:
    """A process that serves sessions, and what it holds."""

    owner: str
    name: str
    address: str
    machine: str
    version: str
    started: float
    seconds_since_renewal: float
    state: Literal["alive", "silent", "dead"]
    """`silent` if it has a connection and does not renew its leases."""
    sessions: int
    """The sessions that it serves."""
    queued: int
    running: int
    waiting: int
    inbox: int
    """What it has not read."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LiveRunRecord:
    """A run, for readers at other gateways."""

    run_id: str
    session_id: str
    owner: str
    state: str
    data: JsonObject
    """The agent, the session key, and whether the session is stored."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunBatch:
    """New events of one run."""

    run_id: str
    session_id: str
    state: str
    data: JsonObject
    """The agent, the session key, and whether the session is stored."""
    events: Sequence[JsonObject]
    """In order; each has a `sequence`."""
    is_changed: bool
    """Whether the run is new, or its state has changed."""
