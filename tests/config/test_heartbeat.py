"""`heartbeat` in a document: durations, active hours, who is woken, and what has no effect."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from nacre.config.heartbeat import ActiveHours, parse_duration
from nacre.config.system import SystemReading, read_system


def read(agents: dict[str, Any], **sections: Any) -> SystemReading:
    document = {"agents": agents, **sections}
    return read_system(document, environment={"HOME": "/home/me"}, folder=Path("/config"))


def woken(agents: dict[str, Any]) -> dict[str, float]:
    found = read(agents).config.agents.by_id.values()
    return {agent.id: agent.heartbeat.every_seconds for agent in found if agent.heartbeat}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30m", 1800),
        ("1h30m", 5400),
        ("45", 2700),
        ("1.5h", 5400),
        ("90s", 90),
        ("0m", 0),
        ("1d", 86_400),
        ("soon", None),
        ("", None),
        ("-5m", None),
        ("5 weeks", None),
    ],
)
def test_durations_have_units_and_are_minutes_without_one(text: str, seconds: float | None) -> None:
    assert parse_duration(text) == seconds


def test_settings_of_all_agents_wake_the_default_agent_unless_an_agent_has_its_own() -> None:
    listed = [{"id": "a"}, {"id": "b", "default": True}]
    assert woken({"list": listed}) == {}
    assert woken({"defaults": {"heartbeat": {}}, "list": listed}) == {"b": 1800}
    own = [{"id": "a", "heartbeat": {"every": "2h"}}, {"id": "b"}]
    assert woken({"defaults": {"heartbeat": {"every": "1h"}}, "list": own}) == {"a": 7200}
    off = [{"id": "a", "heartbeat": {"every": "0m"}}]
    assert woken({"defaults": {"heartbeat": {}}, "list": off}) == {}


def test_settings_of_an_agent_go_over_those_of_all() -> None:
    agents = {
        "defaults": {"heartbeat": {"every": "1h", "target": "last", "ackMaxChars": 10}},
        "list": [{"id": "a", "heartbeat": {"every": "5m"}}],
    }
    beat = read(agents).config.agents.by_id["a"].heartbeat
    assert beat is not None
    assert (beat.every_seconds, beat.notifies_chat, beat.ack_max_characters) == (300, True, 10)
    assert beat.timeout_seconds == 300


@pytest.mark.parametrize(
    ("hours", "active"),
    [
        (ActiveHours(zone=UTC), {0, 6, 12, 18}),
        (ActiveHours(start=6 * 60, end=18 * 60, zone=UTC), {6, 12}),
        (ActiveHours(start=18 * 60, end=6 * 60 + 1, zone=UTC), {0, 6, 18}),
        (ActiveHours(start=60, end=60, zone=UTC), set[int]()),
    ],
)
def test_active_hours_may_go_over_midnight(hours: ActiveHours, active: set[int]) -> None:
    day = datetime(2026, 11, 18, tzinfo=UTC)
    times = {hour: day.replace(hour=hour).timestamp() for hour in (0, 6, 12, 18)}
    assert {hour for hour, moment in times.items() if hours.contains(moment)} == active


@pytest.mark.parametrize(
    ("heartbeat", "problem"),
    [
        ({"every": "soon"}, '`agents.defaults.heartbeat.every` is "soon"; allowed: durations'),
        ({"every": "1s"}, '`agents.defaults.heartbeat.every` is "1s"; allowed: at least 10 '),
        (
            {"activeHours": {"start": "8"}},
            '`agents.defaults.heartbeat.activeHours.start` is "8"; allowed: times such as',
        ),
        (
            {"activeHours": {"timezone": "Mars"}},
            '`agents.defaults.heartbeat.activeHours.timezone` is "Mars"; allowed: names such as',
        ),
        (
            {"evry": "1h"},
            '`agents.defaults.heartbeat` has the unknown key "evry"; did you mean `ev',
        ),
    ],
)
def test_what_cannot_be_is_named(heartbeat: dict[str, Any], problem: str) -> None:
    [found] = read({"defaults": {"heartbeat": heartbeat}}).problems
    assert str(found).startswith(problem)


def test_settings_of_openclaw_without_effect_are_accepted_and_named() -> None:
    found = read(
        {"defaults": {"heartbeat": {"to": "+491234", "directPolicy": "block"}}},
        messages={"visibleReplies": "message_tool", "ackReaction": "👀", "tts": {"auto": "off"}},
    )
    assert found.problems == ()
    assert found.config.visible_replies == "message_tool"
    named = [warning.partition("`")[2].partition("`")[0] for warning in found.warnings]
    assert named == [
        "agents.defaults.heartbeat.to",
        "agents.defaults.heartbeat.directPolicy",
        "messages.ackReaction",
        "messages.tts",
    ]
