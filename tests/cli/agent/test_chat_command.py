"""`nacre chat` with lines from a pipe."""

import io
import sys

import pytest

from nacre.testing.script import Fail, Say
from tests.cli.agent.setup import scripted_model, told
from tests.cli.mcp.setup import Surroundings


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


def test_an_unknown_command_is_answered_with_those_there_are(
    here: Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe(monkeypatch, b"/nope", b"/abort", b"/help")
    status, out, err = here.nacre("chat")
    assert (status, out) == (0, "")
    assert "there is no command /nope\n" in err
    assert "no turn is running\n" in err
    assert err.count("/new    begin a new session") == 2


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
