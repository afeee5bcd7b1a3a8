"""`nacre heartbeat` without a gateway."""

import json
from typing import Any

from nacre.testing.script import Call, Say
from tests.cli.agent_setup import scripted_model
from tests.cli.command_names import command_names
from tests.cli.surroundings import Surroundings

ALERT: dict[str, Any] = {"outcome": "blocked", "notify": True, "summary": "the disk is full"}


def test_there_are_two_commands() -> None:
    assert command_names("heartbeat") == {"run", "status"}


def test_an_agent_is_woken_once_and_its_notification_is_printed(here: Surroundings) -> None:
    script = [Call("heartbeat_respond", ALERT), Say("I told them."), Say("HEARTBEAT_OK")]
    with scripted_model(here, script, tools={"codeMode": False}) as provider:
        document = json.loads(here.config.read_text(encoding="utf-8"))
        document["agents"]["defaults"]["heartbeat"] = {"every": "2h"}
        here.config.write_text(json.dumps(document), encoding="utf-8")
        before = here.nacre("heartbeat", "status")
        told = here.nacre("heartbeat", "run", "--quiet")
        status = here.nacre("heartbeat", "status")
        _, shown, _ = here.nacre("sessions", "show", "main")
        quiet = here.nacre("heartbeat", "run")
        _, listed, _ = here.nacre("heartbeat", "status", "--json")
        asked = provider.requests[0]
    assert before == (0, "main: every 2 h 0 min, not woken yet\n", "")
    assert told == (0, "the disk is full\n", "")
    assert "  nacre    heartbeat, notified: the disk is full\n" in shown
    assert "  you " not in shown
    assert status[1].endswith("(notified): the disk is full\n")
    assert (quiet[0], quiet[1]) == (0, "")
    assert "heartbeat of main: quiet\n" in quiet[2]
    assert json.loads(listed)["heartbeats"][0]["last"]["status"] == "quiet"
    assert "heartbeat_respond" in asked.tool_names


def test_without_settings_nobody_is_listed(here: Surroundings) -> None:
    status, out, err = here.nacre("heartbeat", "status")
    assert (status, out) == (0, "")
    assert "no agent is woken" in err
