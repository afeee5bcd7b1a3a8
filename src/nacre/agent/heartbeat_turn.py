"""One heartbeat: a turn without a message of the user, its tool, its instructions, its outcome."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from nacre.agent.replies import SILENT_REPLIES
from nacre.config import HeartbeatConfig, parse_duration
from nacre.messages import AssistantMessage, TextPart, user_message
from nacre.tools import Tool

if TYPE_CHECKING:
    from nacre.json_types import JsonObject
    from nacre.messages import Message
    from nacre.tools import ToolCall

HeartbeatOutcome = Literal["no_change", "progress", "done", "blocked", "needs_attention"]
HeartbeatPriority = Literal["low", "normal", "high"]
HeartbeatStatus = Literal["quiet", "notified", "failed"]

HEARTBEAT_FILE: Final = "HEARTBEAT.md"
HEARTBEAT_TOOL: Final = "heartbeat_respond"
HEARTBEAT_OK: Final = "HEARTBEAT_OK"
TRIGGER: Final = "heartbeat"
"""Marks the turn in its record and its trajectory."""

_MAX_SUMMARY_CHARACTERS: Final = 2_000
_MAX_NOTIFICATION_CHARACTERS: Final = 20_000
_MAX_CHECKLIST_CHARACTERS: Final = 12_000
# Headings, empty items of lists and comments are no tasks.
_NO_TASK = re.compile(r"\s*(#.*|[-*+]?\s*(\[[ xX]?\])?\s*|<!--.*?-->)\s*", re.DOTALL)

_PROMPT: Final = "Heartbeat: look whether something needs your attention now."
_GUIDANCE: Final = (
    "This turn is a heartbeat. Nacre has woken you; there is no message of the user. Look whether "
    "something needs attention now, and go on with useful work that you were asked to do. Do not "
    "start again with tasks of the conversation that are done."
)
_POINTER: Final = (
    f"The file {HEARTBEAT_FILE} in the workspace says what to look after. Read it first, and "
    "follow it."
)
_RESPONSE: Final = (
    f"At the end call the tool `{HEARTBEAT_TOOL}` once. With notify false the user hears nothing; "
    "with notify true the user gets notificationText, or else the summary. Notify only if the user "
    "would want to be interrupted. Your answer itself is not shown. If you cannot call the tool, "
    f"answer {HEARTBEAT_OK} if nothing needs attention, and otherwise with the text for the user."
)


@dataclass(frozen=True, kw_only=True, slots=True)
class HeartbeatResponse:
    """What the agent recorded with `heartbeat_respond`."""

    outcome: HeartbeatOutcome
    notify: bool
    summary: str
    notification_text: str = ""
    reason: str = ""
    priority: HeartbeatPriority = "normal"
    next_check: str = ""
    """A duration or a time in ISO 8601, for the next heartbeat."""

    def to_json(self) -> JsonObject:
        wire: JsonObject = {
            "outcome": self.outcome,
            "notify": self.notify,
            "summary": self.summary,
            "priority": self.priority,
        }
        more = {
            "notificationText": self.notification_text,
            "reason": self.reason,
            "nextCheck": self.next_check,
        }
        return {**wire, **{key: text for key, text in more.items() if text}}


@dataclass(kw_only=True, slots=True)
class HeartbeatTurn:
    """The heartbeat that a turn is. Its tool and its end write to it."""

    config: HeartbeatConfig = field(default_factory=HeartbeatConfig)
    checklist: str = ""
    """The content of HEARTBEAT.md; empty if there is none, or nothing in it."""
    response: HeartbeatResponse | None = None
    status: HeartbeatStatus | None = None
    """None until the turn has ended."""
    text: str = ""
    """The notification; it is sent if the heartbeat has a target."""

    @property
    def prompt(self) -> str:
        return self.config.prompt or _PROMPT

    def settle(self, answer: str, *, is_completed: bool) -> None:
        """Decide at the end of the turn whether the user gets a notification."""
        response = self.response
        if not is_completed:
            self.status = "failed"
        elif response is not None:
            self.text = (response.notification_text or response.summary) if response.notify else ""
            self.status = "notified" if self.text else "quiet"
        else:
            self.text = strip_acknowledgement(answer, self.config.ack_max_characters)
            self.status = "notified" if self.text else "quiet"

    def next_check_after(self, now: float) -> float | None:
        """When the agent wants to be woken next, in seconds since the epoch."""
        return None if self.response is None else parse_next_check(self.response.next_check, now)

    def to_json(self) -> JsonObject:
        """For the record of the turn."""
        wire: JsonObject = {"status": self.status or "failed"}
        if self.text:
            wire["text"] = self.text
        return {**wire, **(self.response.to_json() if self.response else {})}

    def select_messages(self, sent: list[str], *, model: str) -> list[Message]:
        """The messages that stay in the session: none of a quiet heartbeat, and of others only
        the notification, so that an answer to it makes sense."""
        if not sent:
            return []
        notification = AssistantMessage(parts=(TextPart(text="\n\n".join(sent)),), model=model)
        return [user_message("[heartbeat]"), notification]


def build_heartbeat_guidance(turn: HeartbeatTurn, *, inlines_file: bool) -> str:
    """Instructions of a heartbeat turn. Ordinary turns have none of it.

    The built-in harness gets the content of HEARTBEAT.md; Codex reads the file itself.
    """
    parts = [_GUIDANCE]
    if turn.checklist and inlines_file:
        shown = turn.checklist[:_MAX_CHECKLIST_CHARACTERS]
        parts.append(f"{HEARTBEAT_FILE} of the workspace says what to look after:\n\n{shown}")
    elif turn.checklist:
        parts.append(_POINTER)
    return "\n\n".join([*parts, _RESPONSE])


def has_tasks(checklist: str) -> bool:
    """Whether a HEARTBEAT.md contains more than headings, empty items and comments."""
    without_comments = re.sub(r"<!--.*?-->", "", checklist, flags=re.DOTALL)
    return any(_NO_TASK.fullmatch(line) is None for line in without_comments.splitlines())


def strip_acknowledgement(answer: str, max_characters: int) -> str:
    """The text for the user in an answer without `heartbeat_respond`; empty for a quiet one.

    HEARTBEAT_OK at the start or the end, with a few more characters, is quiet.
    """
    text = answer.strip()
    if text in SILENT_REPLIES:
        return ""
    # Models like to emphasize it.
    bare = text.strip("*_`.! \n")
    for rest in (bare.removeprefix(HEARTBEAT_OK), bare.removesuffix(HEARTBEAT_OK)):
        if rest != bare:
            rest = rest.strip("*_`.! \n")
            return rest if len(rest) > max_characters else ""
    return text


def parse_next_check(text: str, now: float) -> float | None:
    """The moment of a `nextCheck` in seconds since the epoch; None if it is none."""
    if not text.strip():
        return None
    seconds = parse_duration(text)
    if seconds is not None:
        return now + seconds
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


class HeartbeatProblem(Exception):
    """A call of `heartbeat_respond` that is refused; the message is for the model."""


def heartbeat_tool(turn: HeartbeatTurn | None) -> Tool:
    """The tool `heartbeat_respond`. Without a heartbeat, it refuses every call.

    Codex needs it in every turn of a session: a thread keeps the tools with which it was started.
    """

    async def execute(given: dict[str, Any], _call: ToolCall) -> JsonObject:
        if turn is None:
            raise HeartbeatProblem(
                "this turn is no heartbeat, so there is nothing to respond to; answer the user"
            )
        if turn.response is not None:
            raise HeartbeatProblem("the response of this heartbeat is recorded already")
        next_check: str = given.get("nextCheck", "")
        if next_check and parse_next_check(next_check, 0.0) is None:
            raise HeartbeatProblem(
                f"nextCheck is {next_check[:60]!r}; give a duration such as 2h, or a time such as "
                "2027-01-31T08:00:00Z"
            )
        turn.response = HeartbeatResponse(
            outcome=cast("HeartbeatOutcome", given["outcome"]),
            notify=given["notify"],
            summary=given["summary"],
            notification_text=given.get("notificationText", ""),
            reason=given.get("reason", ""),
            priority=given.get("priority", "normal"),
            next_check=next_check,
        )
        return {"recorded": True, "notify": turn.response.notify}

    return Tool(
        name=HEARTBEAT_TOOL,
        description="Record the result of a heartbeat, once, and whether the user is notified. "
        "Only for turns that are heartbeats.",
        parameters=_INPUT,
        execute=execute,
    )


def _text(description: str, *, most: int = _MAX_SUMMARY_CHARACTERS) -> JsonObject:
    return {"type": "string", "maxLength": most, "description": description}


_INPUT: Final[JsonObject] = {
    "type": "object",
    "properties": {
        "outcome": {"enum": ["no_change", "progress", "done", "blocked", "needs_attention"]},
        "notify": {"type": "boolean", "description": "Whether to notify the user"},
        "summary": {**_text("What you found or did"), "minLength": 1},
        "notificationText": _text(
            "The text for the user; by default the summary", most=_MAX_NOTIFICATION_CHARACTERS
        ),
        "reason": _text("Why you notify, or why not"),
        "priority": {"enum": ["low", "normal", "high"]},
        "nextCheck": _text("When to wake you next, such as 2h or 2027-01-31T08:00:00Z", most=60),
    },
    "required": ["outcome", "notify", "summary"],
    "additionalProperties": False,
}
