"""`nacre chat`, with lines from a pipe and at a terminal."""

import io
import sys
from pathlib import Path

import pytest

from nacre.testing.script import Fail, Say
from tests.cli.agent_setup import ENDLESS, WRITE_A_FILE, program, scripted_model, told
from tests.cli.pseudo_terminal import CTRL_C, CTRL_D, person_at
from tests.cli.surroundings import Surroundings


def pipe(monkeypatch: pytest.MonkeyPatch, *lines: bytes) -> None:
    content = io.BytesIO(b"\n".join(lines))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(content, encoding="utf-8"))


def test_every_line_is_answered_in_one_session(
    here: Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe(monkeypatch, b"first", b"", b"second")
    with scripted_model(here, [Say("one"), Say("two")]) as provider:
        status, out, err = here.nacre("chat")
    assert (status, out) == (0, "one\ntwo\n")
    assert told(provider.requests[-1])[-3:] == [
        "first",
        "one",
        "second",
    ]
    assert "continue with: nacre chat --session session_" in err


def test_a_new_session_knows_nothing_of_the_old_one(
    here: Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe(monkeypatch, b"first", b"/new", b"second")
    with scripted_model(here, [Say("one"), Say("two")]) as provider:
        here.nacre("chat", "--session", "work")
    said = told(provider.requests[-1])
    assert "second" in said
    assert "first" not in said


def test_nothing_is_read_after_quit(here: Surroundings, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe(monkeypatch, b"/quit", b"hello")
    status, out, err = here.nacre("chat")
    assert (status, out) == (0, "")
    assert "continue with" not in err


def test_a_mistyped_command_is_answered_with_the_right_one(
    here: Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe(monkeypatch, b"/halp", b"/abort", b"/help")
    status, out, err = here.nacre("chat")
    assert status == 0
    assert "There is no command /halp. Did you mean /help?" in out
    assert "No turn is running.\n" in out
    assert "/new [message]" in out
    assert "Leave the chat, like Ctrl-D" in out
    # No session was made for it.
    assert "continue with" not in err


def test_a_model_that_is_chosen_in_the_chat_replaces_the_option(
    here: Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe(monkeypatch, b"one", b"/model", b"/status", b"/model local/other", b"two")
    with scripted_model(here, [Say("first"), Say("second")]) as provider:
        status, out, _ = here.nacre("chat", "--model", "local/given")
    assert status == 0
    assert "Model: local/given (chosen by your client)" in out
    assert [request.body["model"] for request in provider.requests] == ["given", "other"]


@pytest.mark.parametrize("line", [b"/etc/hosts is what?", b" /new"])
def test_a_message_may_look_like_a_command(
    here: Surroundings, monkeypatch: pytest.MonkeyPatch, line: bytes
) -> None:
    pipe(monkeypatch, line)
    with scripted_model(here, [Say("one")]) as provider:
        here.nacre("chat")
    assert told(provider.requests[0])[-1] == line.decode()


def test_a_failed_turn_does_not_end_the_chat_but_fails_it(
    here: Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe(monkeypatch, b"first", b"second")
    with scripted_model(here, [Fail(400, message="no such thing"), Say("two")]):
        status, out, err = here.nacre("chat")
    assert (status, out) == (1, "two\n")
    assert "no such thing" in err


def test_a_line_that_is_not_utf8_is_asked_with_marks(
    here: Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe(monkeypatch, b"caf\xe9")
    with scripted_model(here, [Say("one")]) as provider:
        here.nacre("chat")
    assert told(provider.requests[0])[-1] == "caf\ufffd"


QUESTION = "[a] allow once"
CHAT_IS_READY = "/quit leaves"


def written(here: Surroundings) -> str:
    return (here.project / "a.txt").read_text(encoding="utf-8")


def test_a_call_that_is_allowed_once_is_made_and_asked_about_again(here: Surroundings) -> None:
    twice = program(
        'for (const text of ["x", "y"]) '
        '{ await tools.call("openclaw:core:write", {path: "a.txt", content: text}); }'
    )
    with person_at("run", twice) as person:
        person.reads('"content": "x"')
        person.reads("tool: openclaw:core:write")
        person.reads(QUESTION)
        person.types("a\n")
        person.reads('"content": "y"')
        person.reads(QUESTION)
        person.types("a\n")
        person.reads("completed in")
        assert person.leaves() == 0
    assert written(here) == "y"


def test_the_whole_input_is_shown_line_by_line(here: Surroundings) -> None:
    with person_at("run", WRITE_A_FILE) as person:
        person.reads('  "path": "a.txt"\n')
        person.reads('  "content":\n    | one\n    | two\n    | \n')
        person.reads("reason: it changes files of the workspace")
        person.reads(QUESTION)
        person.types("a\n")
        assert person.leaves() == 0
    assert written(here) == "one\ntwo\n"


def test_a_call_that_is_allowed_for_always_is_asked_about_once(here: Surroundings) -> None:
    twice = program(
        "for (const time of [1, 2]) "
        '{ await tools.call("openclaw:core:write", {path: "a.txt", content: "x"}); }'
    )
    with person_at("run", twice) as person:
        person.reads(QUESTION)
        person.types("A\n")
        person.reads("always allowed")
        assert person.leaves() == 0
        assert person.screen.count(QUESTION) == 1


def test_a_call_that_is_denied_tells_the_program_why(here: Surroundings) -> None:
    with person_at("run", WRITE_A_FILE) as person:
        person.reads(QUESTION)
        person.types("d\n")
        person.reads("reason for the agent")
        person.types("not on a Sunday\n")
        person.reads("the approval was denied: not on a Sunday")
        assert person.leaves() == 0
    assert not (here.project / "a.txt").exists()


def test_a_reason_may_stand_behind_the_no(here: Surroundings) -> None:
    with person_at("run", WRITE_A_FILE) as person:
        person.reads(QUESTION)
        person.types("d never\n")
        person.reads("the approval was denied: never")
        assert person.leaves() == 0


def test_words_that_are_no_answer_allow_nothing(here: Surroundings) -> None:
    with person_at("run", WRITE_A_FILE) as person:
        person.reads(QUESTION)
        person.types("also write another file\n")
        person.reads("is not an answer")
        person.types(CTRL_D)
        person.reads("gave no answer")
        assert person.leaves() == 0
    assert not (here.project / "a.txt").exists()


def test_an_edited_input_is_what_is_called(here: Surroundings, tmp_path: Path) -> None:
    editor = tmp_path / "editor.py"
    editor.write_text(
        "import json, pathlib, sys\n"
        "file = pathlib.Path(sys.argv[1])\n"
        "given = json.loads(file.read_text())\n"
        "file.write_text(json.dumps({**given, 'content': 'three'}))\n",
        encoding="utf-8",
    )
    with person_at("run", WRITE_A_FILE, EDITOR=f"{sys.executable} {editor}") as person:
        person.reads(QUESTION)
        person.types("e\n")
        person.reads("allowed (edited)")
        assert person.leaves() == 0
    assert written(here) == "three"


def test_an_edited_input_that_does_not_fit_leaves_the_question_open(
    here: Surroundings, tmp_path: Path
) -> None:
    editor = tmp_path / "editor.py"
    code = "import sys, pathlib; pathlib.Path(sys.argv[1]).write_text('{}')"
    editor.write_text(code, encoding="utf-8")
    with person_at("run", WRITE_A_FILE, EDITOR=f"{sys.executable} {editor}") as person:
        person.reads(QUESTION)
        person.types("e\n")
        person.reads("the edited input is invalid")
        person.types("a\n")
        person.reads("allowed")
        assert person.leaves() == 0
    assert written(here)


def test_an_editor_that_fails_leaves_the_question_open(here: Surroundings) -> None:
    with person_at("run", WRITE_A_FILE, EDITOR="no-such-editor") as person:
        person.reads(QUESTION)
        person.types("e\n")
        person.reads("the editor 'no-such-editor' cannot be started")
        person.types("d\n")
        person.reads("reason for the agent")
        person.types("\n")
        assert person.leaves() == 0
    assert not (here.project / "a.txt").exists()


def test_control_characters_of_an_input_do_not_reach_the_terminal(here: Surroundings) -> None:
    hostile = program(
        'return await tools.call("openclaw:core:write", '
        '{path: "a.txt", content: "\\u001b[2J\\u202eevil\\nsecond"});'
    )
    with person_at("run", hostile) as person:
        person.reads("| \\u001b[2J\\u202eevil")
        person.reads(QUESTION)
        person.types("d no\n")
        assert person.leaves() == 0
        assert "\x1b[2J" not in person.raw
        assert "\u202e" not in person.raw


def test_ctrl_c_aborts_the_run(here: Surroundings) -> None:
    with person_at("run", ENDLESS) as person:
        person.reads("● exec")
        person.types(CTRL_C)
        person.reads("aborted: aborted by SIGINT")
        assert person.leaves() == 130


def test_ctrl_c_at_a_question_aborts_the_run(here: Surroundings) -> None:
    with person_at("run", WRITE_A_FILE) as person:
        person.reads(QUESTION)
        person.types(CTRL_C)
        person.reads("aborted: aborted by SIGINT")
        assert person.leaves() == 130
    assert not (here.project / "a.txt").exists()


def test_programs_are_in_colours_and_calls_below_them(here: Surroundings) -> None:
    with person_at("run", "list the files") as person:
        person.reads("● exec")
        person.reads('  │ return await tools.call("openclaw:core:list", {"path": "."});')
        person.reads('  ├ ✓ openclaw:core:list {"path":"."}')
        person.reads("  └ ✓ completed")
        assert person.leaves() == 0
        assert "\x1b[94;49mreturn\x1b[0m" in person.raw


def test_no_color_is_respected(here: Surroundings) -> None:
    with person_at("run", "list the files", NO_COLOR="1") as person:
        person.reads("  │ return await tools.call")
        assert person.leaves() == 0
        assert "\x1b[94" not in person.raw


def test_a_chat_answers_line_by_line_and_keeps_its_lines(here: Surroundings) -> None:
    with person_at("chat") as person:
        person.reads(CHAT_IS_READY)
        person.reads("> ")
        person.types("what is 2+3?\n")
        person.reads("It returned:")
        person.reads("> ")
        person.types("/quit\n")
        person.reads("continue with: nacre chat --session session_")
        assert person.leaves() == 0
    history = here.home / ".local" / "state" / "nacre" / "chat_history"
    assert "what is 2+3?" in history.read_text(encoding="utf-8")
    assert history.stat().st_mode & 0o777 == 0o600


def test_what_is_typed_while_a_turn_runs_steers_it(here: Surroundings) -> None:
    with person_at("chat") as person:
        person.reads("> ")
        # What readline takes as pasted may have several lines.
        person.types(f"\x1b[200~{ENDLESS}\x1b[201~\n")
        person.reads("● exec")
        person.types("and be quick\n")
        person.reads("steered: and be quick")
        person.types("/status\n")
        person.reads("Running turn: run_")
        person.types("/new\n")
        person.reads("aborted: the session was left with /new")
        person.reads("This is a new session")
        person.reads("> ")
        person.types(f"\x1b[200~{ENDLESS}\x1b[201~\n")
        person.reads("● exec")
        person.types("/abort\n")
        person.reads("aborted: stopped with /stop")
        person.reads("> ")
        # The Tab key completes it.
        person.types("/qui\t\n")
        assert person.leaves() == 0


@pytest.mark.parametrize("way_out", [CTRL_D, "/quit\n"])
def test_a_chat_is_left_without_a_word(here: Surroundings, way_out: str) -> None:
    with person_at("chat") as person:
        person.reads("> ")
        person.types(way_out)
        assert person.leaves() == 0


def test_ctrl_c_in_a_chat_ends_the_turn_and_then_the_chat(here: Surroundings) -> None:
    with person_at("chat") as person:
        person.reads("> ")
        person.types(f"\x1b[200~{ENDLESS}\x1b[201~\n")
        person.reads("● exec")
        person.types(CTRL_C)
        person.reads("aborted: aborted by SIGINT")
        person.reads("> ")
        person.types(CTRL_C)
        person.reads("continue with: nacre chat --session")
        assert person.leaves() == 130


@pytest.mark.parametrize("command", ["run", "mcp"])
def test_the_first_compilation_of_the_sandbox_is_shown_on_a_terminal(
    here: Surroundings, tmp_path: Path, command: str
) -> None:
    arguments = ["hi", "--model", "demo/demo"] if command == "run" else []
    with person_at(command, *arguments, NACRE_CACHE_DIR=str(tmp_path / "empty")) as person:
        person.reads("compiling the cell image of the sandbox; this takes some seconds")
        person.types(CTRL_D)
        assert person.leaves() == 0
    assert person.screen.count("compiling") == 1
