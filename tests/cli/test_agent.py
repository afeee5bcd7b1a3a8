"""`nacre run` without a terminal: what goes where, and with which exit status."""

import io
import json
import shlex
import signal
import subprocess
import sys
from typing import Any

import pytest

from nacre.testing.script import Call, Fail, Say
from tests.cli.agent_setup import ENDLESS, WRITE_A_FILE, configure_agents, scripted_model, told
from tests.cli.nacre_process import (
    PATIENCE_SECONDS,
    pipe_of,
    run_nacre,
    start_nacre,
    still_running,
    workers_of,
)
from tests.cli.surroundings import Surroundings


def events_in(out: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.splitlines()]


def test_the_answer_is_on_standard_output_and_the_work_on_standard_error(
    here: Surroundings,
) -> None:
    status, out, err = here.nacre("run", "list the files")
    assert status == 0
    assert out.startswith('It returned:\n{"path":".","entries":[],"total":0}\n')
    assert '● exec return await tools.call("openclaw:core:list", {"path": "."});\n' in err
    assert '  ├ ✓ openclaw:core:list {"path":"."}  ' in err
    assert "  └ ✓ completed  " in err
    assert "\x1b" not in out + err


def test_without_a_model_a_hint_says_how_to_get_one(here: Surroundings) -> None:
    _, _, err = here.nacre("run", "hello")
    assert "the built-in demo model answers" in err
    assert "`nacre config set agents.defaults.model openai/gpt-6`" in err


def test_quiet_prints_the_last_answer_and_nothing_else(here: Surroundings) -> None:
    with scripted_model(here, [[Say("Let me see."), Call("exec", {"code": "1"})], Say("Done.")]):
        assert here.nacre("run", "--quiet", "go") == (0, "Done.\n", "")


def test_all_that_a_model_says_is_printed_in_its_order(here: Surroundings) -> None:
    with scripted_model(here, [[Say("Let me see."), Call("exec", {"code": "1"})], Say("Done.")]):
        status, out, err = here.nacre("run", "go")
    assert (status, out) == (0, "Let me see.\nDone.\n")
    assert "demo model answers" not in err
    assert "local/scripted, code mode\n" in err


def test_a_run_with_direct_tools_says_so(here: Surroundings) -> None:
    with scripted_model(here, [Say("Done.")], tools={"fs": {"enabled": False}}):
        _, _, err = here.nacre("run", "go")
    assert "local/scripted, 1 direct tool\n" in err


def test_events_are_lines_of_json(here: Surroundings) -> None:
    status, out, err = here.nacre("run", "--json", "list the files")
    events = events_in(out)
    kinds = [event["kind"] for event in events]
    assert (status, err) == (0, "")
    assert (kinds[0], kinds[-1]) == ("run.started", "run.completed")
    assert [event["sequence"] for event in events] == list(range(len(events)))
    (nested,) = [
        event["data"]
        for event in events
        if event["kind"] == "call.started" and "parentToolCallId" in event["data"]
    ]
    assert nested["toolId"] == "openclaw:core:list"
    assert {event["sessionId"] for event in events} == {events[0]["sessionId"]}


def test_rules_for_the_sandbox_apply_to_sandboxed_sessions(here: Surroundings) -> None:
    agents = {"workspace": str(here.project), "sandbox": {"mode": "non-main"}}
    configure_agents(
        here,
        tools={"sandbox": {"tools": {"deny": ["write", "edit"]}}},
        agents={"defaults": agents},
    )

    def tools_of(*options: str) -> set[str]:
        _, out, _ = here.nacre("run", "--json", "hello", *options)
        (sent,) = [it for it in events_in(out) if it["kind"] == "model.started"]
        return set(sent["data"]["toolNames"])

    assert tools_of("--session", "main") - tools_of() == {"write", "edit"}


def test_json_and_quiet_exclude_each_other(here: Surroundings) -> None:
    status, _, err = here.nacre("run", "--json", "--quiet", "hello")
    assert (status, err) == (2, "nacre: got both --json and --quiet; give one of them\n")


def test_the_prompt_may_be_several_words(here: Surroundings) -> None:
    with scripted_model(here, [Say("yes")]) as provider:
        here.nacre("run", "-q", "how", "are", "you")
    assert told(provider.requests[0])[-1] == "how are you"


@pytest.mark.parametrize("arguments", [(), ("-",)])
def test_the_prompt_comes_from_standard_input(
    here: Surroundings, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    stdin = io.TextIOWrapper(io.BytesIO(b"what is 6*7?"), encoding="utf-8")
    monkeypatch.setattr(sys, "stdin", stdin)
    status, out, _ = here.nacre("run", "-q", *arguments)
    assert status == 0
    assert out.startswith("It returned:\n42\n")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "the prompt is empty"),
        (b" \n", "the prompt is empty"),
        (b"a\n\xff", "standard input is not UTF-8 text (line 2)"),
        (b"a" * (4 * 1024 * 1024 + 1), "standard input is larger than 4194304 bytes"),
    ],
)
def test_a_prompt_that_cannot_be_asked_is_refused(
    here: Surroundings, monkeypatch: pytest.MonkeyPatch, content: bytes, problem: str
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content), encoding="utf-8"))
    status, out, err = here.nacre("run")
    assert (status, out) == (2, "")
    assert problem in err


def test_an_unknown_agent_is_refused_with_the_nearest_one(here: Surroundings) -> None:
    configure_agents(here, agents={"list": [{"id": "support"}, {"id": "sales"}]})
    status, _, err = here.nacre("run", "--agent", "suport", "hello")
    assert status == 2
    assert "there is no agent 'suport'; there are: support, sales; did you mean 'support'?" in err


def test_an_unknown_model_is_refused_before_a_session_is_begun(here: Surroundings) -> None:
    status, _, err = here.nacre("run", "--model", "nobody/nothing", "hello")
    assert status == 2
    assert "nobody" in err
    _, sessions, _ = here.nacre("sessions", "list", "--json")
    assert json.loads(sessions)["sessions"] == []


def test_the_model_may_be_named(here: Surroundings) -> None:
    with scripted_model(here, [Say("yes")]):
        status, out, _ = here.nacre("run", "--model", "demo/demo", "what is 1+1?")
    assert status == 0
    assert out.startswith("It returned:\n2\n")


KEYLESS = {
    "providers": {
        "far": {"baseUrl": "https://far.example/v1", "apiKey": "${NO_SUCH_KEY}"},
        "farther": {"baseUrl": "https://farther.example/v1", "apiKey": "${NO_OTHER_KEY}"},
    }
}


def test_a_missing_key_of_a_model_that_is_not_asked_is_a_warning(here: Surroundings) -> None:
    configure_agents(here, models=KEYLESS)
    status, out, err = here.nacre("run", "--model", "demo/demo", "what is 2+3?")
    assert status == 0
    assert out.startswith("It returned:\n5\n")
    assert "`models.providers.far.apiKey` uses the environment variable NO_SUCH_KEY" in err
    assert "NO_OTHER_KEY" in err


@pytest.mark.parametrize("command", ["run", "chat"])
def test_a_missing_key_of_the_model_that_is_asked_is_all_that_is_told(
    here: Surroundings, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"hello"), encoding="utf-8"))
    configure_agents(here, models=KEYLESS)
    status, out, err = here.nacre(command, "--model", "far/away")
    assert (status, out) == (2, "")
    assert "NO_SUCH_KEY, which is not set" in err
    assert "NO_OTHER_KEY" not in err


def test_a_missing_secret_of_a_server_leaves_the_agent_without_its_tools(
    here: Surroundings,
) -> None:
    server = {"url": "https://far.example/mcp", "headers": {"Authorization": "${NO_SUCH_KEY}"}}
    configure_agents(here, mcp={"servers": {"far": server}})
    status, out, err = here.nacre("run", "what is 2+3?")
    assert status == 0
    assert out.startswith("It returned:\n5\n")
    assert "NO_SUCH_KEY, which is not set" in err


def test_a_session_goes_on_by_its_key_and_by_its_id(here: Surroundings) -> None:
    with scripted_model(here, [Say("one"), Say("two"), Say("three")]) as provider:
        _, out, _ = here.nacre("run", "--json", "--session", "work", "first")
        session_id = events_in(out)[0]["sessionId"]
        _, _, err = here.nacre("run", "--session", "work", "second")
        assert "continue with: nacre chat --session work\n" in err
        here.nacre("run", "-q", "--session", session_id, "third")
    said = told(provider.requests[-1])
    assert [text for text in said if text in ("first", "one", "second", "two", "third")] == [
        "first",
        "one",
        "second",
        "two",
        "third",
    ]


def test_a_run_without_a_session_says_how_to_go_on(here: Surroundings) -> None:
    _, _, err = here.nacre("run", "hello")
    assert "continue with: nacre chat --session session_" in err


def test_how_to_go_on_keeps_the_options(here: Surroundings) -> None:
    file = here.config.rename(here.home / "my config.json5")
    given = ["--config", str(file), "--agent", "main", "--model", "demo/demo"]
    _, _, err = here.nacre("run", *given, "hello")
    (line,) = [line for line in err.splitlines() if line.startswith("continue with: ")]
    words = shlex.split(line.removeprefix("continue with: "))
    assert words[:-1] == ["nacre", "chat", *given, "--session"]
    assert words[-1].startswith("session_")


def test_the_id_of_a_session_that_is_not_there_is_refused_with_the_nearest(
    here: Surroundings,
) -> None:
    _, out, _ = here.nacre("run", "--json", "hello")
    session_id = events_in(out)[0]["sessionId"]
    typo = f"{session_id[:-1]}{'0' if session_id[-1] != '0' else '1'}"
    status, _, err = here.nacre("run", "--session", typo, "hello")
    _, sessions, _ = here.nacre("sessions", "list", "--json")
    assert status == 2
    assert f"there is no session {typo!r}; did you mean {session_id}?" in err
    assert len(json.loads(sessions)["sessions"]) == 1


def test_debug_switches_show_their_lines_on_standard_error(here: Surroundings) -> None:
    switches = {"OPENCLAW_DEBUG_CODE_MODE": "1"}
    done = run_nacre("run", "what is 1+1?", environment=switches)
    assert "nacre.debug.code_mode: run run_" in done.stderr
    asked = "nacre.debug.code_mode: model.requested model=demo/demo toolNames=exec,wait toolBytes="
    assert asked in done.stderr
    assert "model.answered model=demo/demo finishReason=stop\n" in done.stderr
    assert "turn.ended status=completed model=demo/demo" in done.stderr


def test_an_approval_without_a_terminal_is_denied_with_a_word(here: Surroundings) -> None:
    status, out, err = here.nacre("run", WRITE_A_FILE)
    assert status == 0
    assert (
        "openclaw:core:write was denied: there is no terminal to ask for an approval; run it" in err
    )
    assert err.count("change the approval settings of this tool") == 1
    assert "there is no terminal to ask" in out
    assert "change the approval settings" not in out
    assert not (here.project / "a.txt").exists()


def test_a_failed_run_says_why(here: Surroundings) -> None:
    with scripted_model(here, [Fail(400, message="no such thing")]):
        status, out, err = here.nacre("run", "go")
    assert (status, out) == (1, "")
    assert "failed: " in err
    assert "no such thing" in err


def test_a_quiet_run_that_fails_says_why_on_standard_error(here: Surroundings) -> None:
    with scripted_model(here, [Fail(400, message="no such thing")]):
        status, out, err = here.nacre("run", "--quiet", "go")
    assert (status, out) == (1, "")
    assert err.startswith("nacre: failed: ")


def test_retries_are_told(here: Surroundings) -> None:
    with scripted_model(here, [Fail(503, retry_after=0), Say("there")]):
        status, out, err = here.nacre("run", "go")
    assert (status, out) == (0, "there\n")
    assert "; retrying in " in err


def test_a_store_that_cannot_be_opened_fails_the_run(here: Surroundings) -> None:
    configure_agents(here, storage={"url": f"sqlite:///{here.config}"})
    status, _, err = here.nacre("run", "hello")
    assert status == 1
    assert "nacre.json5" in err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_aborts_the_run_and_leaves_no_process(
    here: Surroundings, number: signal.Signals
) -> None:
    with start_nacre("run", "--json", ENDLESS) as process:
        out = pipe_of(process.stdout)
        for line in out:
            if json.loads(line)["kind"] == "cell.started":
                break
        workers = workers_of(process)
        process.send_signal(number)
        kinds = [json.loads(line)["kind"] for line in out]
        assert process.wait(PATIENCE_SECONDS) == 128 + number
    assert kinds[-1] == "run.aborted"
    assert workers
    assert still_running(workers) == []


def test_a_reader_that_leaves_ends_the_run(here: Surroundings) -> None:
    with start_nacre("run", "--json", ENDLESS) as process:
        pipe_of(process.stdout).readline()
        pipe_of(process.stdout).close()
        assert process.wait(PATIENCE_SECONDS) == 141


def test_commands_that_are_not_used_import_nothing_heavy() -> None:
    heavy = ("rich", "sqlalchemy", "pydantic", "anyio", "nacre.agent", "nacre.bootstrap")
    code = (
        "import sys, nacre.cli.agent; from nacre.cli.app import run_command; "
        f"run_command(['--version']); print([name for name in {heavy} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[1:] == ["[]"]


def test_the_whole_command_runs_as_a_process(here: Surroundings) -> None:
    done = run_nacre("run", "-q", "-", stdin=b"what is 2*21?", python=sys.executable)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("It returned:\n42\n")


def test_files_of_the_reply_are_shown_as_paths(here: Surroundings) -> None:
    picture = here.project / "pearl.png"
    picture.write_bytes(b"\x89PNG\r\n\x1a\n")
    send = Call("message", {"text": "Here it is.", "attachments": ["pearl.png"]})
    tools = {"codeMode": False}
    with scripted_model(here, [send, Say("Done."), send, Say("Done.")], tools=tools):
        status, out, err = here.nacre("run", "draw")
        quiet = here.nacre("run", "--quiet", "--session", "art", "draw")
        _, shown, _ = here.nacre("sessions", "show", "art")
    assert (status, out) == (0, "Here it is.\nDone.\n")
    assert "  file     pearl.png (image/png, 8 bytes), media_" in shown
    assert f"file: {picture} (image/png, 8 bytes)\n" in err
    assert quiet == (0, f"Done.\n{picture}\n", "")
