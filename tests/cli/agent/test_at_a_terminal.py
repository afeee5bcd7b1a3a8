"""`nacre run` and `nacre chat` with a person at the terminal."""

import sys
from pathlib import Path

import pytest

from tests.cli.agent.pseudo_terminal import CTRL_C, CTRL_D, person_at
from tests.cli.agent.setup import ENDLESS, WRITE_A_FILE, program
from tests.cli.mcp.setup import Surroundings

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
        person.reads("why you are asked: it changes files of the workspace")
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
        person.reads("allowed before, for always")
        assert person.leaves() == 0
        assert person.screen.count(QUESTION) == 1


def test_a_call_that_is_denied_tells_the_program_why(here: Surroundings) -> None:
    with person_at("run", WRITE_A_FILE) as person:
        person.reads(QUESTION)
        person.types("d\n")
        person.reads("why?")
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
        person.reads("why?")
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
        person.types("/new\n")
        person.reads("a turn runs; /abort ends it")
        person.types("/abort\n")
        person.reads("aborted: aborted at the terminal")
        person.reads("> ")
        person.types("/quit\n")
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
