"""`nacre sessions`: what people and programs are told about sessions."""

import json
import time

import pytest

from nacre.testing.script import Call, Fail, Say
from tests.cli.agent_setup import configure_agents, program, scripted_model
from tests.cli.surroundings import Surroundings


@pytest.fixture
def here(surroundings: Surroundings) -> Surroundings:
    configure_agents(surroundings)
    return surroundings


def test_sessions_are_listed_the_last_used_first(here: Surroundings) -> None:
    for key in ("alpha", "beta", "alpha"):
        here.nacre("run", "-q", "--session", key, "hello")
    status, out, _ = here.nacre("sessions", "list", "--json")
    listed = [(it["key"], it["turnCount"], it["title"]) for it in json.loads(out)["sessions"]]
    assert (status, listed) == (0, [("alpha", 2, "hello"), ("beta", 1, "hello")])
    # As the API has them.
    assert {"createdAt", "updatedAt"} <= json.loads(out)["sessions"][0].keys()
    _, out, _ = here.nacre("sessions", "list")
    heading, first, second = out.splitlines()
    assert heading.split()[:4] == ["session", "agent", "key", "turns"]
    assert first.split()[1:4] == ["main", "alpha", "2"]
    assert second.split()[1:4] == ["main", "beta", "1"]


def test_a_list_that_is_cut_says_so(here: Surroundings) -> None:
    for key in ("alpha", "beta"):
        here.nacre("run", "-q", "--session", key, "hello")
    status, out, err = here.nacre("sessions", "list", "--limit", "1")
    assert (status, len(out.splitlines()), err) == (
        0,
        2,
        "1 session shown; there are more, see --limit\n",
    )
    _, out, _ = here.nacre("sessions", "list", "--limit", "1", "--json")
    assert json.loads(out)["hasMore"] is True


def test_sessions_of_one_agent_are_listed(here: Surroundings) -> None:
    agents = {
        "defaults": {"workspace": str(here.project)},
        "list": [{"id": "one", "default": True}, {"id": "two"}],
    }
    configure_agents(here, agents=agents)
    here.nacre("run", "-q", "--session", "shared", "hello")
    here.nacre("run", "-q", "--agent", "two", "--session", "shared", "hello")
    _, out, _ = here.nacre("sessions", "list", "--agent", "two", "--json")
    assert [it["agentId"] for it in json.loads(out)["sessions"]] == ["two"]
    status, _, err = here.nacre("sessions", "show", "shared")
    assert status == 2
    assert "several agents have a session 'shared'" in err


def test_without_sessions_the_list_says_how_to_begin_one(here: Surroundings) -> None:
    status, out, err = here.nacre("sessions", "list")
    assert (status, out) == (0, "")
    assert err == 'no sessions yet; start one with `nacre run "..."`\n'


def test_a_session_is_shown_with_nested_calls_below_their_program(here: Surroundings) -> None:
    here.nacre("run", "-q", "--session", "work", "list the files")
    status, out, _ = here.nacre("sessions", "show", "work")
    lines = out.splitlines()
    called = next(number for number, line in enumerate(lines) if line.startswith("  calls "))
    assert status == 0
    assert "agent main, key work, 1 turn" in lines[0]
    assert "  you      list the files" in lines
    assert lines[called].startswith('  calls    exec return await tools.call("openclaw:core:list"')
    assert lines[called + 1].startswith('           └ ✓ openclaw:core:list {"path":"."}  ')
    assert lines[called + 2].startswith("  result   ")
    assert lines[called + 3] == "  agent    It returned:"


def test_a_session_is_shown_as_json(here: Surroundings) -> None:
    here.nacre("run", "-q", "--session", "work", "list the files")
    _, out, _ = here.nacre("sessions", "show", "work", "--json")
    document = json.loads(out)
    (turn,) = document["turns"]
    (call,) = turn["calls"]
    assert (document["key"], document["earlierTurns"], turn["status"]) == ("work", 0, "completed")
    assert len(turn["messages"]) == 4
    assert [nested["toolId"] for nested in call["children"]] == ["openclaw:core:list"]
    assert call["children"][0]["parentToolCallId"] == call["toolCallId"]
    # The model does not get it, but you do.
    assert call["result"]["telemetry"]["callCount"] == 1
    assert not any("telemetry" in message.get("content", "") for message in turn["messages"])


def test_turns_that_are_left_out_are_counted(here: Surroundings) -> None:
    for _ in range(3):
        here.nacre("run", "-q", "--session", "work", "hello")
    _, out, _ = here.nacre("sessions", "show", "work", "--turns", "1")
    assert "(2 earlier turns left out; see --turns)" in out
    assert out.count("  you      hello") == 1


def test_two_calls_with_one_id_are_shown_each_with_its_own(here: Surroundings) -> None:
    first = Call("exec", {"code": "return tools.call('openclaw:core:list', {})"}, "same")
    second = Call("exec", {"code": "return 2"}, "same")
    with scripted_model(here, [first, second, Say("done")]):
        here.nacre("run", "-q", "--session", "work", "go")
        _, out, _ = here.nacre("sessions", "show", "work")
    lines = out.splitlines()
    calls = [number for number, line in enumerate(lines) if line.startswith("  calls ")]
    assert len(calls) == 2
    assert "openclaw:core:list" in lines[calls[0] + 1]
    assert lines[calls[1] + 1].startswith("  result ")


def test_a_failed_turn_is_shown_with_its_error(here: Surroundings) -> None:
    with scripted_model(here, [Fail(400, message="no such thing")]):
        here.nacre("run", "-q", "--session", "work", "go")
        _, out, _ = here.nacre("sessions", "show", "work")
    assert ": failed, " in out
    assert "  error    " in out
    assert "no such thing" in out


def test_an_unknown_session_is_answered_with_the_nearest(here: Surroundings) -> None:
    here.nacre("run", "-q", "--session", "customer-support", "hello")
    for wrong in ("custmer-support", "customer"):
        status, _, err = here.nacre("sessions", "show", wrong)
        assert status == 2
        assert f"there is no session '{wrong}'; did you mean customer-support?" in err


def test_a_database_that_cannot_be_opened_is_named(here: Surroundings) -> None:
    configure_agents(here, storage={"url": f"sqlite:///{here.config}"})
    for arguments in (("list",), ("show", "x")):
        status, out, err = here.nacre("sessions", *arguments)
        assert (status, out) == (1, "")
        assert "nacre.json5" in err


def test_a_denied_call_is_shown_with_its_question(here: Surroundings) -> None:
    code = 'return await tools.call("openclaw:core:write", {path: "a", content: "b"});'
    here.nacre("run", "-q", "--session", "work", program(code))
    _, out, _ = here.nacre("sessions", "show", "work")
    assert "├ approval requested: it changes files of the workspace" in out
    assert "└ denied" in out


# delete and prune


def keys_in(here: Surroundings) -> list[str]:
    _, out, _ = here.nacre("sessions", "list", "--json")
    return [it["key"] for it in json.loads(out)["sessions"]]


def test_deleted_sessions_are_gone_with_their_events(here: Surroundings) -> None:
    for key in ("alpha", "beta"):
        here.nacre("run", "-q", "--session", key, "hello")
    _, out, _ = here.nacre("sessions", "show", "alpha", "--json")
    run_id = json.loads(out)["turns"][0]["runId"]
    assert here.nacre("trajectory", "show", run_id)[0] == 0

    status, out, err = here.nacre("sessions", "delete", "alpha")

    assert (status, out.startswith("session_"), err) == (0, True, "1 session deleted\n")
    assert keys_in(here) == ["beta"]
    assert here.nacre("trajectory", "show", run_id)[0] == 2
    status, _, err = here.nacre("sessions", "delete", "beta", "alpha")
    assert (status, "nothing was deleted" in err, keys_in(here)) == (2, True, ["beta"])


def test_unused_sessions_are_pruned_after_the_configured_time(
    here: Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.nacre("run", "-q", "--session", "alpha", "hello")
    status, _, err = here.nacre("sessions", "prune")
    assert (status, "give --older-than DAYS" in err) == (2, True)
    here.nacre("config", "set", "storage.retentionDays", "30")
    assert here.nacre("sessions", "prune") == (0, "", "0 sessions deleted\n")

    now = time.time()
    monkeypatch.setattr("nacre.cli.sessions.time.time", lambda: now + 31 * 86_400)

    status, out, err = here.nacre("sessions", "prune", "--dry-run")
    assert (status, len(out.splitlines()), err) == (0, 1, "1 session would be deleted\n")
    assert here.nacre("sessions", "prune", "--older-than", "32")[1] == ""
    assert (here.nacre("sessions", "prune")[1], keys_in(here)) == (out, [])


def test_a_chat_command_is_shown_with_its_reply(here: Surroundings) -> None:
    with scripted_model(here, [Say("hello")]):
        here.nacre("run", "--session", "work", "hi")
        here.nacre("run", "--session", "work", "/queue collect")
        _, out, _ = here.nacre("run", "--session", "work", "--quiet", "/queue")
    assert out == "Queue mode: collect. Choose with /queue steer|followup|collect|default.\n"
    status, out, _ = here.nacre("sessions", "show", "work")
    assert status == 0
    assert out.count("you      /queue collect\n") == 1
    assert "nacre    The queue mode of this session is collect.\n" in out
