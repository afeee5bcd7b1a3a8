"""Lines of several sources on two streams."""

import pytest

from nacre.cli.agent_screen import Screen


async def test_an_answer_in_a_file_is_not_broken_by_what_is_said_meanwhile(
    capsys: pytest.CaptureFixture[str],
) -> None:
    screen = Screen()
    screen.write_answer("one ")
    screen.write_note("a note")
    screen.write_answer("two")
    screen.end_answer()
    screen.end_answer()
    captured = capsys.readouterr()
    assert captured.out == "one two\n"
    assert captured.err == "a note\n"


async def test_a_status_is_for_terminals_only(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen()
    screen.set_status("waiting")
    screen.close()
    assert capsys.readouterr().err == ""
