"""`nacre codex`: the status of Codex, the threads of sessions, and the row of `nacre doctor`."""

import asyncio
import json
from typing import Any

import anyio
import pytest

from nacre.testing import RecordedRequest, Say, Stall
from nacre.testing.script import PlainTurn
from tests.cli.agent_setup import scripted_model
from tests.cli.surroundings import Surroundings
from tests.codex_harness.codex_setup import fake_server
from tests.contract.requirements import requirement


@pytest.fixture
def here(surroundings: Surroundings, monkeypatch: pytest.MonkeyPatch) -> Surroundings:
    for variable in ("XDG_STATE_HOME", "XDG_DATA_HOME", "OPENAI_API_KEY"):
        monkeypatch.delenv(variable, raising=False)
    return surroundings


def use_codex(here: Surroundings, app_server: dict[str, Any] | None = None) -> None:
    """Have the scripted model run in Codex."""
    document: dict[str, Any] = json.loads(here.config.read_text("utf-8"))
    provider = document["models"]["providers"]["local"]
    provider |= {"api": "openai-responses", "agentRuntime": {"id": "codex"}}
    document["agents"]["defaults"]["model"] = "local/gpt-5.5"
    document["plugins"] = {"entries": {"codex": {"config": {"appServer": app_server or {}}}}}
    here.config.write_text(json.dumps(document), encoding="utf-8")


def test_a_run_in_codex_leaves_a_thread_that_is_listed(here: Surroundings) -> None:
    with scripted_model(here, [Say("Hello from Codex.")]):
        use_codex(here)
        status, out, _ = here.nacre("run", "--session", "work", "hi")
        assert (status, out.strip()) == (0, "Hello from Codex.")
        status, out, _ = here.nacre("codex", "threads", "--json")
        (thread,) = json.loads(out)["threads"]
        assert (status, thread["model"], thread["cwd"]) == (0, "gpt-5.5", str(here.project))
        status, out, _ = here.nacre("codex", "threads")
        assert thread["threadId"] in out

        status, out, _ = here.nacre("codex", "status", "--json")
        found = json.loads(out)
        assert (status, found["version"], found["account"]) == (0, "0.163.0", "")
        assert found["home"].endswith("/nacre/codex/main")
        assert "login      API key of the provider local\n" in here.nacre("codex", "status")[1]


@requirement("codex:compaction-of-one-command")
def test_a_compaction_ends_before_the_command_that_has_started_it(here: Surroundings) -> None:
    def answer(request: RecordedRequest) -> PlainTurn:
        if "exec_command" in request.tool_names:
            return Say("An answer.")
        # A summary takes longer than the reply to the command.
        is_written = anyio.Event()
        asyncio.get_running_loop().call_later(2, is_written.set)
        return [Stall(until=is_written), Say("SUMMARY")]

    with scripted_model(here, answer) as model:
        use_codex(here)
        for text in ("hello", "/compact", "again"):
            status, _, err = here.nacre("run", "--session", "work", text)
            assert status == 0, err
        read = " ".join(message.text for message in model.requests[-1].messages)
    assert "SUMMARY" in read


def test_a_program_that_is_too_old_is_reported_by_status_and_doctor(here: Surroundings) -> None:
    with scripted_model(here, []):
        use_codex(here, fake_server("version=0.124.0"))
        status, _, err = here.nacre("codex", "status")
        assert status == 1
        assert "is Codex 0.124.0; Nacre needs 0.125.0 or newer" in err
        status, out, _ = here.nacre("doctor", "--json")
        checks = {check["name"]: check for check in json.loads(out)["checks"]}
        assert status == 1
        assert checks["codex of main"]["status"] == "problem"
        assert "is Codex 0.124.0" in checks["codex of main"]["detail"]


def test_an_agent_without_a_login_is_told_how_to_get_one(here: Surroundings) -> None:
    with scripted_model(here, []):
        document: dict[str, Any] = json.loads(here.config.read_text("utf-8"))
        document["agents"]["defaults"]["model"] = "openai/gpt-5.5"
        document["plugins"] = {"entries": {"codex": {"enabled": True}}}
        here.config.write_text(json.dumps(document), encoding="utf-8")
        # Codex may have a login of its own, so that a missing key is no problem of the file.
        status, _, _ = here.nacre("config", "validate")
        assert status == 0
        status, _, err = here.nacre("run", "hi")
        assert status == 1
        assert "run `nacre codex login`, or set OPENAI_API_KEY" in err
        status, out, _ = here.nacre("codex", "status")
        assert status == 0
        assert "login      none: run `nacre codex login`, or set OPENAI_API_KEY\n" in out


def test_an_unknown_agent_is_named(here: Surroundings) -> None:
    with scripted_model(here, []):
        status, _, err = here.nacre("codex", "status", "--agent", "nobody")
    assert status == 2
    assert "there is no agent 'nobody'" in err
