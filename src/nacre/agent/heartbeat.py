"""Wakes agents without a message: on time, in their active hours, and while they are idle."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

import anyio
import anyio.to_thread

from nacre.agent.heartbeat_turn import HEARTBEAT_FILE, TRIGGER, HeartbeatTurn, has_tasks
from nacre.agent.turn_request import TurnRequest
from nacre.config import HeartbeatConfig
from nacre.errors import NacreError
from nacre.tools import FileProblem, Workspace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from nacre.agent.run import AgentRun
    from nacre.agent.service import AgentService
    from nacre.config import AgentConfig
    from nacre.json_types import JsonObject
    from nacre.storage import Store, TurnRecord

logger = logging.getLogger(__name__)

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
