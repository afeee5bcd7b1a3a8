"""Wakes agents without a message: on time, in their active hours, and while they are idle."""

from __future__ import annotations

import logging
import re
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal, cast

import anyio
import anyio.to_thread

from nacre.agent.replies import SILENT_REPLIES
from nacre.agent.turn_request import TurnRequest
from nacre.config import HeartbeatConfig, parse_duration
from nacre.errors import NacreError
from nacre.messages import AssistantMessage, TextPart, user_message
from nacre.tools import FileProblem, Tool, Workspace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from nacre.agent.run import AgentRun
    from nacre.agent.service import AgentService
    from nacre.config import AgentConfig
    from nacre.json_types import JsonObject
    from nacre.messages import Message
    from nacre.storage import Store, TurnRecord
    from nacre.tools import ToolCall

logger = logging.getLogger(__name__)

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

SkipReason = Literal["busy", "empty_file", "outside_active_hours"]

# How soon a heartbeat that met a running turn is tried again.
_RETRY_SECONDS: Final = 60.0
_MIN_WAIT_SECONDS: Final = 60.0
_MAX_WAIT_SECONDS: Final = 7 * 86_400.0
# The configuration may change meanwhile.
_POLL_SECONDS: Final = 10.0
_MAX_FILE_BYTES: Final = 65_536
_MAX_TURNS_READ: Final = 100
_CHANNEL: Final = "heartbeat"


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


@dataclass(frozen=True, kw_only=True, slots=True)
class HeartbeatReport:
    """One attempt to wake an agent."""

    agent_id: str
    time: float
    """Seconds since the epoch."""
    run: AgentRun | None = None
    """The turn that was started."""
    turn: HeartbeatTurn | None = None
    skipped: SkipReason | None = None
    error: str = ""
    """Why no turn was started, if it was not skipped."""

    @property
    def status(self) -> str:
        """`skipped`, `failed`, `running`, `quiet` or `notified`."""
        if self.skipped is not None:
            return "skipped"
        if self.run is None or self.turn is None:
            return "failed"
        return self.turn.status or ("failed" if self.run.has_ended else "running")

    def to_json(self) -> JsonObject:
        wire: JsonObject = {"status": self.status, "time": self.time}
        if self.skipped is not None:
            wire["reason"] = self.skipped
        if self.run is not None:
            wire |= {"runId": self.run.id, "sessionId": self.run.session_id}
        if self.turn is not None and self.turn.status is not None:
            wire |= {**self.turn.to_json(), "status": self.status}
        error = self.error or (self.run.result.error if self.run and self.run.result else "")
        return {**wire, "error": error} if error else wire


@dataclass(kw_only=True, slots=True)
class _Schedule:
    """When an agent is woken next."""

    config: HeartbeatConfig
    next_time: float
    last: HeartbeatReport | None = None
    is_next_check_used: bool = field(default=False)


class Heartbeats:
    """The heartbeats of all agents of a service."""

    def __init__(
        self, service: AgentService, store: Store, *, now: Callable[[], float] = time.time
    ) -> None:
        """`now` returns seconds since the epoch."""
        self._service = service
        self._store = store
        self._now = now
        self._schedules: dict[str, _Schedule] = {}

    async def run(self) -> None:
        """Wake agents when they are due; run this as a task."""
        while True:
            try:
                await self.wake_due()
            except NacreError as error:
                # The database may be down for a while.
                logger.warning("heartbeats have to wait: %s", error)
            times = [schedule.next_time for schedule in self._schedules.values()]
            wait = min(times, default=float("inf")) - self._now()
            await anyio.sleep(min(max(wait, 0.5), _POLL_SECONDS))

    async def wake_due(self) -> list[HeartbeatReport]:
        """Wake the agents whose time has come; returns what became of each."""
        await self._update_schedules()
        now = self._now()
        shared = self._service.shared
        if shared is not None and not shared.is_leader:
            # The oldest gateway wakes the agents; this one continues from the store after it.
            self._schedules.clear()
            return []
        due = [name for name, it in self._schedules.items() if it.next_time <= now]
        return [await self._wake_on_time(agent_id) for agent_id in due]

    async def wake(self, agent_id: str) -> HeartbeatReport:
        """Wake an agent now, also outside of its active hours and without tasks in HEARTBEAT.md.

        Raises SessionError for an unknown agent.
        """
        agent = self._service.config.agents.agent(agent_id)
        report = await self._attempt(agent, agent.heartbeat or HeartbeatConfig(), is_forced=True)
        schedule = self._schedules.get(agent.id)
        if schedule is not None:
            schedule.last, schedule.is_next_check_used = report, False
        return report

    async def status(self) -> list[JsonObject]:
        """The agents that are woken, with the next time and the last attempt."""
        await self._update_schedules()
        reports: list[JsonObject] = []
        for agent_id, schedule in self._schedules.items():
            wire: JsonObject = {
                "agentId": agent_id,
                "everySeconds": schedule.config.every_seconds,
                "nextTime": schedule.next_time,
            }
            if schedule.last is not None:
                wire["last"] = schedule.last.to_json()
            reports.append(wire)
        return reports

    async def _update_schedules(self) -> None:
        """Follow the configuration, and the wishes of agents for the next heartbeat."""
        agents = self._service.config.agents.by_id
        for agent_id in [name for name in self._schedules if name not in agents]:
            del self._schedules[agent_id]
        for agent in agents.values():
            config, known = agent.heartbeat, self._schedules.get(agent.id)
            if config is None:
                self._schedules.pop(agent.id, None)
            elif known is None or known.config != config:
                next_time = await self._first_time(agent, config)
                last = known.last if known else None
                self._schedules[agent.id] = _Schedule(config=config, next_time=next_time, last=last)
            else:
                self._use_next_check(known)

    async def _first_time(self, agent: AgentConfig, config: HeartbeatConfig) -> float:
        """After a restart, the interval goes on from the last heartbeat in the store."""
        last = await find_last_heartbeat(self._store, agent.id, config)
        now = self._now()
        return now + config.every_seconds if last is None else last.started + config.every_seconds

    def _use_next_check(self, schedule: _Schedule) -> None:
        last = schedule.last
        if schedule.is_next_check_used or last is None or last.turn is None:
            return
        if last.run is not None and last.run.has_ended:
            schedule.is_next_check_used = True
            wanted = last.turn.next_check_after(last.time)
            if wanted is not None:
                earliest, latest = last.time + _MIN_WAIT_SECONDS, last.time + _MAX_WAIT_SECONDS
                schedule.next_time = min(max(wanted, earliest), latest)

    async def _wake_on_time(self, agent_id: str) -> HeartbeatReport:
        agent, schedule = self._service.config.agents.agent(agent_id), self._schedules[agent_id]
        report = await self._attempt(agent, schedule.config, is_forced=False)
        is_busy = report.skipped == "busy"
        wait = min(_RETRY_SECONDS, schedule.config.every_seconds)
        schedule.next_time = report.time + (wait if is_busy else schedule.config.every_seconds)
        schedule.last, schedule.is_next_check_used = report, False
        return report

    async def _attempt(
        self, agent: AgentConfig, config: HeartbeatConfig, *, is_forced: bool
    ) -> HeartbeatReport:
        now = self._now()
        checklist = await read_checklist(agent.workspace)
        skipped = self._find_skip_reason(agent, config, checklist, now=now, is_forced=is_forced)
        if skipped is not None:
            logger.debug("the heartbeat of %s is skipped: %s", agent.id, skipped)
            return HeartbeatReport(agent_id=agent.id, time=now, skipped=skipped)
        tasks = checklist if checklist and has_tasks(checklist) else ""
        turn = HeartbeatTurn(config=config, checklist=tasks)
        try:
            run = await self._service.start(_make_request(agent, turn))
        except NacreError as error:
            logger.warning("the heartbeat of %s cannot start: %s", agent.id, error)
            return HeartbeatReport(agent_id=agent.id, time=now, turn=turn, error=str(error))
        return HeartbeatReport(agent_id=agent.id, time=now, run=run, turn=turn)

    def _find_skip_reason(
        self,
        agent: AgentConfig,
        config: HeartbeatConfig,
        checklist: str | None,
        *,
        now: float,
        is_forced: bool,
    ) -> SkipReason | None:
        if not is_forced and not config.active_hours.contains(now):
            return "outside_active_hours"
        if not is_forced and checklist is not None and not has_tasks(checklist):
            return "empty_file"
        key = _session_key(config)
        for run in self._service.runs():
            is_own = run.agent_id == agent.id and not run.has_ended and not run.command
            if is_own and (run.session_key == key or config.skips_when_busy):
                return "busy"
        return None


async def find_last_heartbeat(
    store: Store, agent_id: str, config: HeartbeatConfig
) -> TurnRecord | None:
    """The last heartbeat of an agent in the store."""
    session = await store.session_by_key(agent_id, _session_key(config))
    if session is None:
        return None
    turns = await store.turns(session.id, _MAX_TURNS_READ)
    beats = [turn for turn in turns if turn.data.get("trigger") == TRIGGER]
    return beats[-1] if beats else None


def _session_key(config: HeartbeatConfig) -> str:
    return f"{config.session_key}:heartbeat" if config.is_isolated else config.session_key


def _make_request(agent: AgentConfig, turn: HeartbeatTurn) -> TurnRequest:
    config = turn.config
    return TurnRequest(
        message=turn.prompt,
        agent_id=agent.id,
        session_key=_session_key(config),
        channel=_CHANNEL,
        model=config.model,
        history=[] if config.is_isolated else None,
        light_context=config.is_light,
        queue_mode="followup",
        heartbeat=turn,
    )


async def read_checklist(workspace: Path) -> str | None:
    """The content of HEARTBEAT.md; None if there is none that can be read."""
    return await anyio.to_thread.run_sync(_read_checklist, workspace)


def _read_checklist(workspace: Path) -> str | None:
    if not workspace.is_dir():
        return None
    try:
        with (
            Workspace(workspace).locate(HEARTBEAT_FILE) as target,
            open(target.open_file(), "rb") as file,
        ):
            return file.read(_MAX_FILE_BYTES).decode(errors="replace")
    except (FileProblem, OSError) as problem:
        logger.debug("%s is not used: %s", HEARTBEAT_FILE, problem)
        return None
