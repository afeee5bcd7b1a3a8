"""Heartbeats: when agents are woken, and what becomes of it."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from nacre.agent import AgentRun, HeartbeatReport, Heartbeats
from nacre.agent.heartbeat import has_tasks, heartbeat_tool, strip_acknowledgement
from nacre.messages import AssistantMessage, ToolMessage, UserMessage
from tests.agent.agent_setup import AgentSetup, events_of, kinds
from tests.agent.fake_models import HeldAnswer, call, say
from tests.contract.requirements import requirement
from tests.tools.core.tool_calls import Calls

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from nacre.json_types import JsonObject
    from tests.agent.conftest import OpenAgent

NOON = datetime(2026, 11, 18, 12, tzinfo=UTC).timestamp()
QUIET: JsonObject = {"outcome": "no_change", "notify": False, "summary": "nothing new"}
ALERT: JsonObject = {"outcome": "needs_attention", "notify": True, "summary": "the disk is full"}


@dataclass(kw_only=True)
class Beating:
    """A service with a clock that the test moves."""

    setup: AgentSetup
    heartbeats: Heartbeats
    time: float = NOON

    async def after(self, seconds: float) -> list[HeartbeatReport]:
        self.time += seconds
        return await self.heartbeats.wake_due()

    async def beat(self, seconds: float = 1800) -> HeartbeatReport:
        """The heartbeat that is due by then, when its turn has ended."""
        [report] = await self.after(seconds)
        if report.run is not None:
            with anyio.fail_after(30):
                await report.run.wait()
        return report


@asynccontextmanager
async def beating(open_service: OpenAgent, **heartbeat: Any) -> AsyncGenerator[Beating]:
    agent = {"workspace": "workspace", "heartbeat": {"target": "last", **heartbeat}}
    async with open_service(agent=agent) as setup:
        heartbeats = Heartbeats(setup.service, setup.store, now=lambda: made.time)
        made = Beating(setup=setup, heartbeats=heartbeats)
        assert await heartbeats.wake_due() == []
        yield made


def sent_in(run: AgentRun | None) -> list[JsonObject]:
    assert run is not None
    return [event.data for event in events_of(run, "message.sent")]


@requirement("codex:heartbeat-quiet-or-notify")
async def test_a_quiet_heartbeat_leaves_a_record_and_no_messages(open_service: OpenAgent) -> None:
    async with beating(open_service) as it:
        it.setup.model.will(call("heartbeat_respond", QUIET), say("All is well."))
        assert await it.after(1799) == []
        report = await it.beat(1)
        assert report.run is not None
        [turn] = await it.setup.store.turns(report.run.session_id)
        kept = await it.setup.kept(report.run.session_id)
        events = await it.setup.store.events(run_id=report.run.id)

    assert (report.status, report.run.session_key) == ("quiet", "main")
    assert kept == []
    assert sent_in(report.run) == []
    assert "text.delta" not in kinds(report.run)
    assert events_of(report.run, "run.started")[0].data["trigger"] == "heartbeat"
    assert turn.data["trigger"] == "heartbeat"
    assert turn.data["heartbeat"] == {"status": "quiet", "priority": "normal", **QUIET}
    assert events[0].event["data"] == {**_data(events[0].event), "trigger": "heartbeat"}


def _data(event: JsonObject) -> JsonObject:
    data = event["data"]
    assert isinstance(data, dict)
    return data


@requirement("codex:heartbeat-quiet-or-notify")
async def test_a_notification_reaches_the_chat_and_the_next_turn_knows_it(
    open_service: OpenAgent,
) -> None:
    async with beating(open_service) as it:
        it.setup.model.will(call("heartbeat_respond", ALERT), say("I told them."))
        report = await it.beat()
        it.setup.model.will(say("I will clean up."))
        await it.setup.turn("what can we do?", session_key="main")
        asked = it.setup.model.requests[-1]

    assert report.status == "notified"
    assert sent_in(report.run) == [{"text": "the disk is full", "trigger": "heartbeat"}]
    assert report.run is not None
    assert report.run.result is not None
    assert report.run.result.to_json()["text"] == ""
    texts = [it.text for it in asked.messages if isinstance(it, (UserMessage, AssistantMessage))]
    assert texts == ["[heartbeat]", "the disk is full", "what can we do?"]
    assert "heartbeat" not in asked.instructions
    assert "heartbeat_respond" not in [spec.name for spec in asked.tools]


async def test_without_a_target_nobody_is_told(open_service: OpenAgent) -> None:
    async with beating(open_service, target="none") as it:
        it.setup.model.will(call("heartbeat_respond", ALERT), say("done"))
        report = await it.beat()
        assert report.run is not None
        kept = await it.setup.kept(report.run.session_id)
    assert (report.status, sent_in(report.run), kept) == ("notified", [], [])
    assert report.to_json()["text"] == "the disk is full"


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ("HEARTBEAT_OK", ""),
        ("**HEARTBEAT_OK**", ""),
        ("HEARTBEAT_OK nothing new today", ""),
        ("Nothing new.\n\nHEARTBEAT_OK", ""),
        ("NO_REPLY", ""),
        ("", ""),
        ("The disk is full.", "The disk is full."),
        (f"HEARTBEAT_OK {'x' * 301}", "x" * 301),
        ("The HEARTBEAT_OK token is odd.", "The HEARTBEAT_OK token is odd."),
    ],
)
def test_an_answer_without_the_tool_counts_as_response(answer: str, text: str) -> None:
    assert strip_acknowledgement(answer, 300) == text


async def test_an_answer_without_the_tool_is_delivered(open_service: OpenAgent) -> None:
    async with beating(open_service) as it:
        it.setup.model.will(say("HEARTBEAT_OK"), say("The disk is full."))
        quiet, loud = await it.beat(), await it.beat()
    assert (quiet.status, sent_in(quiet.run)) == ("quiet", [])
    assert sent_in(loud.run) == [{"text": "The disk is full.", "trigger": "heartbeat"}]


@requirement("codex:heartbeat-respond-tool")
async def test_there_is_one_response_per_heartbeat_and_none_in_other_turns(
    open_service: OpenAgent,
) -> None:
    async with beating(open_service) as it:
        it.setup.model.will(
            call("heartbeat_respond", {**QUIET, "nextCheck": "someday"}, call_id="a"),
            call("heartbeat_respond", QUIET, call_id="b"),
            call("heartbeat_respond", ALERT, call_id="c"),
            say("done"),
        )
        report = await it.beat()
    asked = it.setup.model.requests[-1]
    results = [message.content for message in asked.messages if isinstance(message, ToolMessage)]
    assert "nextCheck is 'someday'" in results[0]
    assert "recorded already" in results[2]
    assert report.status == "quiet"
    with pytest.raises(Exception, match="this turn is no heartbeat"):
        await Calls([heartbeat_tool(None)]).call("heartbeat_respond", **QUIET)


async def test_the_file_says_what_to_look_after_and_an_empty_one_skips(
    open_service: OpenAgent,
) -> None:
    async with beating(open_service) as it:
        workspace = it.setup.config.agents.agent("main").workspace
        await anyio.Path(workspace).mkdir(parents=True, exist_ok=True)
        checklist = anyio.Path(workspace) / "HEARTBEAT.md"
        await checklist.write_text("# Look after\n\n- [ ]\n<!-- nothing\nyet -->\n")
        skipped = await it.beat()
        it.setup.model.will(say("HEARTBEAT_OK"), say("HEARTBEAT_OK"))
        forced = await it.heartbeats.wake("main")
        assert forced.run is not None
        await forced.run.wait()
        await checklist.write_text("# Look after\n\n- the build\n")
        await it.beat()
        await checklist.unlink()
    assert (skipped.status, skipped.skipped) == ("skipped", "empty_file")
    without, with_file = (request.instructions for request in it.setup.model.requests)
    assert "This turn is a heartbeat" in without
    assert "HEARTBEAT.md" not in without
    assert "- the build" in with_file


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", False), ("# A\n\n- \n* [ ] \n", False), ("<!-- x\n- y -->", False), ("- a", True)],
)
def test_headings_and_empty_items_are_no_tasks(text: str, expected: bool) -> None:
    assert has_tasks(text) is expected


async def test_agents_sleep_outside_of_their_active_hours(open_service: OpenAgent) -> None:
    hours = {"start": "22:00", "end": "13:00", "timezone": "UTC"}
    async with beating(open_service, every="30m", activeHours=hours) as it:
        it.setup.model.will(*[say("HEARTBEAT_OK")] * 2)
        morning = await it.beat()
        afternoon = await it.beat(3600)
        night = await it.beat(9 * 3600)
    assert [it.status for it in (morning, afternoon, night)] == ["quiet", "skipped", "quiet"]
    assert afternoon.skipped == "outside_active_hours"


async def test_a_running_turn_delays_a_heartbeat_and_no_message_joins_one(
    open_service: OpenAgent,
) -> None:
    async with beating(open_service) as it:
        held = HeldAnswer(say("done"))
        it.setup.model.will(held)
        busy = await it.setup.start("work", session_key="main")
        await held.asked.wait()
        [delayed] = await it.after(1800)
        held.release.set()
        await busy.wait()

        beat = HeldAnswer(say("HEARTBEAT_OK"))
        it.setup.model.will(beat, say("hello"))
        [woken] = await it.after(60)
        await beat.asked.wait()
        talk = await it.setup.start("hi", session_key="main", channel="heartbeat")
        assert talk is not woken.run
        beat.release.set()
        with anyio.fail_after(30):
            result = await talk.wait()
    assert delayed.skipped == "busy"
    assert (result.text, result.visibility) == ("hello", "visible")


async def test_a_turn_in_another_session_delays_only_if_configured(
    open_service: OpenAgent,
) -> None:
    async with beating(open_service, skipWhenBusy=True) as it:
        held = HeldAnswer(say("done"))
        it.setup.model.will(held)
        busy = await it.setup.start("work", session_key="other")
        await held.asked.wait()
        [delayed] = await it.after(1800)
        held.release.set()
        await busy.wait()
    assert delayed.skipped == "busy"


async def test_an_agent_chooses_its_next_check(open_service: OpenAgent) -> None:
    async with beating(open_service) as it:
        it.setup.model.will(
            call("heartbeat_respond", {**QUIET, "nextCheck": "5m"}), say("done"), say("NO_REPLY")
        )
        await it.beat()
        assert await it.after(299) == []
        assert len(await it.after(1)) == 1


async def test_the_interval_goes_on_after_a_restart(open_service: OpenAgent) -> None:
    async with beating(open_service) as it:
        it.setup.model.will(say("HEARTBEAT_OK"), say("HEARTBEAT_OK"))
        report = await it.beat()
        assert report.run is not None
        [turn] = await it.setup.store.turns(report.run.session_id)
        clock = turn.started + 1799
        again = Heartbeats(it.setup.service, it.setup.store, now=lambda: clock)
        assert await again.wake_due() == []
        clock += 1
        [second] = await again.wake_due()
        assert second.run is not None
        await second.run.wait()


async def test_an_isolated_heartbeat_has_no_history_and_its_own_model(
    open_service: OpenAgent,
) -> None:
    async with beating(
        open_service, isolatedSession=True, model="fake/spare", prompt="Look around."
    ) as it:
        it.setup.model.will(say("hello"))
        await it.setup.turn("hi", session_key="main")
        it.setup.spare_model.will(say("HEARTBEAT_OK"))
        report = await it.beat()
    [request] = it.setup.spare_model.requests
    assert [m.text for m in request.messages if isinstance(m, UserMessage)] == ["Look around."]
    assert report.run is not None
    assert report.run.session_key == "main:heartbeat"


async def test_a_failed_heartbeat_tells_nobody_and_the_next_one_comes(
    open_service: OpenAgent,
) -> None:
    async with beating(open_service) as it:
        it.setup.model.will(RuntimeError("broken"), say("HEARTBEAT_OK"))
        failed, quiet = await it.beat(), await it.beat()
        assert failed.run is not None
        kept = await it.setup.kept(failed.run.session_id)
        [status] = await it.heartbeats.status()
    assert (failed.status, sent_in(failed.run), kept) == ("failed", [], [])
    assert quiet.status == "quiet"
    assert status["everySeconds"] == 1800
    assert status["nextTime"] == NOON + 3 * 1800
