"""`nacre chat` asks the person at the terminal, who may be typing at the same time."""

import sys
from pathlib import Path

import pytest

from tests.cli.agent.pseudo_terminal import CTRL_C, CTRL_D, Person, person_at
from tests.cli.agent.setup import ENDLESS, WRITE_A_FILE, configure_agents, program
from tests.cli.mcp.setup import Surroundings
from tests.cli.tools.setup import calling_server

QUESTION = "[a] allow once"
# The questions of a test are short: nobody waits an hour for one to expire.
_IMPATIENT = """\
from nacre.code_mode.runtime import Runtime
Runtime.__init__.__kwdefaults__["approval_seconds"] = 1.0
"""


def asks(person: Person, message: str) -> None:
    """Send it, and read on to the question that comes of it."""
    person.reads("> ")
    # What readline takes as pasted may have several lines.
    person.types(f"\x1b[200~{message}\x1b[201~\n")
    person.reads(QUESTION)


def leaves_well(person: Person) -> None:
    """The chat goes on after the question, and can be left."""
    person.reads("> ")
    person.types("what is 2+3?\n")
    person.reads("It returned:")
    person.reads("> ")
    person.types("/quit\n")
    assert person.leaves() == 0
    assert "Traceback" not in person.screen


def content(here: Surroundings) -> str | None:
    file = here.project / "a.txt"
    return file.read_text(encoding="utf-8") if file.exists() else None


def test_a_call_of_a_chat_is_made_when_it_is_allowed(here: Surroundings) -> None:
    with person_at("chat") as person:
        asks(person, WRITE_A_FILE)
        person.types("a\n")
        person.reads("allowed (once)")
        leaves_well(person)
    assert content(here) == "one\ntwo\n"


def test_a_call_of_a_chat_is_not_made_when_it_is_denied(here: Surroundings) -> None:
    with person_at("chat") as person:
        asks(person, WRITE_A_FILE)
        person.types("d\n")
        person.reads("why?")
        person.types("not on a Sunday\n")
        person.reads("the approval was denied: not on a Sunday")
        leaves_well(person)
    assert content(here) is None


def test_a_call_of_a_chat_is_made_with_the_edited_input(here: Surroundings, tmp_path: Path) -> None:
    editor = tmp_path / "editor.py"
    editor.write_text(
        "import json, pathlib, sys\n"
        "file = pathlib.Path(sys.argv[1])\n"
        "given = json.loads(file.read_text())\n"
        "assert input() == 'for the editor'\n"
        "file.write_text(json.dumps({**given, 'content': 'three'}))\n",
        encoding="utf-8",
    )
    with person_at("chat", EDITOR=f"{sys.executable} {editor}") as person:
        asks(person, WRITE_A_FILE)
        person.types("e\n")
        person.types("for the editor\n")
        person.reads("allowed (edited)")
        leaves_well(person)
    assert content(here) == "three"


def test_ctrl_c_at_a_question_of_a_chat_ends_the_turn_alone(here: Surroundings) -> None:
    with person_at("chat") as person:
        asks(person, WRITE_A_FILE)
        person.types(CTRL_C)
        person.reads("aborted: aborted by SIGINT")
        leaves_well(person)
    assert content(here) is None


def test_the_end_of_the_input_at_a_question_of_a_chat_is_a_no(here: Surroundings) -> None:
    with person_at("chat") as person:
        asks(person, WRITE_A_FILE)
        person.types(CTRL_D)
        person.reads("gave no answer")
        leaves_well(person)
    assert content(here) is None


def test_a_question_of_a_chat_that_expires_lets_the_turn_go_on(
    here: Surroundings, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(_IMPATIENT, encoding="utf-8")
    with person_at("chat", PYTHONPATH=str(tmp_path)) as person:
        asks(person, WRITE_A_FILE)
        person.reads("the approval is expired")
        leaves_well(person)
    assert content(here) is None


def test_words_before_and_after_a_question_reach_the_turn(here: Surroundings) -> None:
    # It goes on after the question until somebody ends it.
    endless = WRITE_A_FILE.replace("return await", "await").replace(
        "\n```", " while (true) {}\n```"
    )
    with person_at("chat") as person:
        asks(person, endless)
        person.types("this is no answer\n")
        person.reads("is not an answer")
        person.types("a\n")
        person.reads("allowed (once)")
        person.types("be quick\n")
        person.reads("steered: be quick")
        person.types("/abort\n")
        person.reads("aborted: aborted at the terminal")
        leaves_well(person)
    assert content(here) == "one\ntwo\n"


@pytest.mark.parametrize(("answer", "outcome"), [("a", "✓"), ("d no", "✗")])
def test_tools_of_a_server_are_asked_about_one_after_the_other(
    here: Surroundings, answer: str, outcome: str
) -> None:
    entry = {**calling_server(), "requireApproval": True}
    configure_agents(here, mcp={"servers": {"small": entry}})
    both = program('await Promise.allSettled(["x", "y"].map((text) => MCP.small.echo({text})));')
    with person_at("chat") as person:
        asks(person, both)
        person.types(f"{answer}\n")
        person.reads(QUESTION)
        person.types(f"{answer}\n")
        person.reads("└ ✓ completed")
        assert person.screen.count(f"├ {outcome} mcp:small:echo") == 2
        leaves_well(person)


def test_what_is_typed_reaches_the_turn_also_where_the_chat_names_a_model(
    here: Surroundings,
) -> None:
    with person_at("chat", "--model", "demo/demo") as person:
        person.reads("> ")
        person.types(f"\x1b[200~{ENDLESS}\x1b[201~\n")
        person.reads("● exec")
        person.types("and be quick\n")
        person.reads("steered: and be quick")
        person.types("/abort\n")
        person.reads("aborted: aborted at the terminal")
