"""Asks for approvals at the terminal: the shown input, the editor, and the answers."""

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from nacre.cli.agent_approvals import EditError, edit_input, format_input_lines
from nacre.display import UnshowableInputError
from tests.cli.agent_setup import ENDLESS, WRITE_A_FILE, configure_agents, program
from tests.cli.pseudo_terminal import CTRL_C, CTRL_D, Person, person_at
from tests.cli.surroundings import Surroundings
from tests.cli.tools_setup import calling_server

if TYPE_CHECKING:
    from nacre.json_types import JsonObject, JsonValue


def test_members_are_lines_and_texts_of_several_lines_stand_behind_a_bar() -> None:
    assert format_input_lines({"path": "a", "text": "one\n\ttwo", "more": {"n": [1]}}) == [
        '"path": "a"',
        '"text":',
        "  | one",
        "  |     two",
        '"more": {',
        '  "n": [',
        "    1",
        "  ]",
        "}",
    ]


def test_a_text_cannot_pretend_to_be_another_member() -> None:
    lines = format_input_lines({"text": 'a\n"path": "/etc/passwd"'})
    assert lines == ['"text":', "  | a", '  | "path": "/etc/passwd"']


def test_what_is_not_seen_is_spelled_out_in_keys_and_values() -> None:
    lines = format_input_lines({"a\u202e": "b\u200b", "c": "\x1b[1m\n\x9b"})
    assert lines == ['"a\\u202e": "b\\u200b"', '"c":', "  | \\u001b[1m", "  | \\u009b"]


def test_of_a_long_input_texts_are_cut_and_nothing_else() -> None:
    given: JsonObject = {"long": "x\n" * 5000, "short": "y"}
    lines = format_input_lines(given)
    assert len(lines) == 2
    assert '"short":"y"' in lines[0]
    assert "cut: 10000 characters in all" in lines[0]
    assert "`e` shows the whole input" in lines[1]


def test_an_input_of_many_short_lines_is_shown_on_one() -> None:
    lines = format_input_lines({"text": "x\n" * 300})
    assert lines == ['{"text":"' + "x\\n" * 300 + '"}']


def test_an_input_of_too_many_parts_cannot_be_shown() -> None:
    deep: JsonValue = []
    for _ in range(200):
        deep = [deep]
    with pytest.raises(UnshowableInputError):
        format_input_lines({"deep": deep})


def test_no_input_is_said_to_be_none() -> None:
    assert format_input_lines({}) == ["(no input)"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where files for the editor are made."""
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def use_editor(monkeypatch: pytest.MonkeyPatch, folder: Path, code: str) -> None:
    """An editor that does this with `file`, the path that it is given."""
    script = folder / "editor.py"
    script.write_text(f"import pathlib, sys\nfile = pathlib.Path(sys.argv[1])\n{code}\n")
    monkeypatch.setenv("EDITOR", f"{sys.executable} {script}")


async def test_an_input_that_nobody_changes_comes_back_as_it_was(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_editor(monkeypatch, folder, "")
    given: JsonObject = {"text": "a\u202e\u2028\n", "n": [1, None, True], "é": {}}
    assert await edit_input(given) == given


async def test_nothing_is_left_behind(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_editor(monkeypatch, folder, "")
    await edit_input({"password": "x"})
    assert names_in(folder) == ["editor.py"]


async def test_the_file_is_for_its_owner_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "file.write_text('{\"mode\": %d}' % (file.stat().st_mode & 0o777))"
    use_editor(monkeypatch, folder, code)
    assert await edit_input({}) == {"mode": 0o600}


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("file.write_text('{')", "is not JSON"),
        ("file.write_text('[1]')", "must be a JSON object"),
        ("file.unlink()", "cannot be read"),
        ("sys.exit(3)", "ended with status 3"),
    ],
)
async def test_what_is_no_input_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, code: str, problem: str
) -> None:
    use_editor(monkeypatch, folder, code)
    with pytest.raises(EditError, match=problem):
        await edit_input({"a": 1})
    assert names_in(folder) == ["editor.py"]


@pytest.mark.parametrize("command", ["no-such-editor", "'unfinished"])
async def test_an_editor_that_cannot_be_started_is_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("EDITOR", command)
    with pytest.raises(EditError, match=f"{command}.* cannot be started"):
        await edit_input({})
    assert names_in(folder) == []


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
        person.reads("reason for the agent")
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
    with person_at("chat", is_forked=False, PYTHONPATH=str(tmp_path)) as person:
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
        person.reads("✓")
        person.types("be quick\n")
        person.reads("steered: be quick")
        person.types("/abort\n")
        person.reads("aborted: stopped with /stop")
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
        person.reads("aborted: stopped with /stop")
