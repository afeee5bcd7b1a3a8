"""`nacre tools call`: the input, the call, and the printed result."""

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager

import pytest

from nacre.cli.tools_calls import write_outcome
from nacre.json_types import JsonValue
from nacre.tools import DirectResult
from tests.cli.nacre_process import (
    PATIENCE_SECONDS,
    ended_with_the_block,
    run_nacre,
    start_nacre,
    still_running,
    workers_of,
)
from tests.cli.surroundings import Surroundings, small_server
from tests.cli.tools_setup import calling_server, own_tools
from tests.forked_python import FORKED_PYTHON


def echoed(surroundings: Surroundings, *arguments: str) -> object:
    """What the server was called with."""
    status, out, err = surroundings.nacre("tools", "call", "mcp:one:echo", *arguments, "--json")
    assert (status, err) == (0, "")
    return json.loads(out)["value"]["structuredContent"]


@pytest.fixture
def one(surroundings: Surroundings) -> Surroundings:
    surroundings.configure({"one": calling_server()})
    return surroundings


# The input.


def test_json_object_is_sent_as_it_is(one: Surroundings) -> None:
    assert echoed(one, '{"text": "é", "other": [1, null]}') == {"text": "é", "other": [1, None]}


def test_no_arguments_are_an_empty_object(one: Surroundings) -> None:
    assert echoed(one) == {}


def test_pairs_are_read_as_the_schema_has_them(one: Surroundings) -> None:
    given = echoed(one, "text=12", "count=12", 'tags=["a"]', "either=12")

    assert given == {"text": "12", "count": 12, "tags": ["a"], "either": 12}
    assert echoed(one, "either=null", "text=a=b") == {"either": None, "text": "a=b"}
    assert echoed(one, "either=[1", "text=") == {"either": "[1", "text": ""}
    assert echoed(one, "either=[1]") == {"either": "[1]"}


def test_standard_input_is_json(one: Surroundings) -> None:
    done = run_nacre(
        "tools", "call", "mcp:one:echo", "-", stdin=b'{"count": 3}', python=sys.executable
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, '{\n  "count": 3\n}\n', "")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (['{"a": }'], "the input is not JSON: Expecting value: line 1 column 7"),
        (["[1]"], "the input is a list; write one object"),
        (["text"], "'text' is not a valid input; write a JSON object, key=value pairs"),
        (["=1"], "'=1' is not a valid input"),
        (["count=1", "{}"], "'{}' is not a valid input"),
        (["count=1", "count=2"], "'count' is given twice"),
        (
            ["cuont=1"],
            "has no parameter 'cuont'; did you mean 'count'? Parameters: text, count, tags",
        ),
        (["[" * 100_000], "the input is nested more than"),
    ],
)
def test_input_that_is_none_is_bad_usage(
    one: Surroundings, arguments: list[str], problem: str
) -> None:
    status, out, err = one.nacre("tools", "call", "mcp:one:echo", *arguments)

    assert (status, out) == (2, "")
    assert problem in err
    assert len(err) < 400


def test_empty_standard_input_is_bad_usage(one: Surroundings) -> None:
    done = run_nacre("tools", "call", "mcp:one:echo", "-", stdin=b" \n")

    assert (done.returncode, done.stdout) == (2, "")
    assert "standard input is empty" in done.stderr


def test_input_that_does_not_fit_the_schema_is_a_failed_call(one: Surroundings) -> None:
    status, out, err = one.nacre("tools", "call", "mcp:one:echo", "count=many")

    assert (status, out) == (1, "")
    assert '`$.count`: is the string "many"; allowed: integer' in err
    assert err.endswith("  code invalid_tool_input\n")


# What is printed.


def test_values_of_ones_own_tools(surroundings: Surroundings) -> None:
    own = own_tools(surroundings, "called_tools")

    added = surroundings.nacre("tools", "call", "add", "a=3", "-t", own)
    greeted = surroundings.nacre("tools", "call", "greet", "name=Ada", "-t", own)
    nothing = surroundings.nacre("tools", "call", "forget", "-t", own)
    document = surroundings.nacre("tools", "call", "forget", "-t", own, "--json")

    assert [it[:2] for it in (added, greeted)] == [(0, "5\n"), (0, "hello Ada\n")]
    assert nothing[:2] == (0, "")
    assert json.loads(document[1]) == {"status": "completed", "value": None}


def test_words_and_data_of_a_result_are_both_shown(one: Surroundings) -> None:
    status, out, _ = one.nacre("tools", "call", "mcp:one:both")

    assert (status, out) == (0, '3 files\n{\n  "files": 3\n}\n')


def test_failed_call_says_why_with_its_code(surroundings: Surroundings) -> None:
    own = own_tools(surroundings, "failing_tools")

    failed = surroundings.nacre("tools", "call", "explode", "-t", own)
    _, document, _ = surroundings.nacre("tools", "call", "explode", "-t", own, "--json")

    assert failed == (1, "", "failed: no such table\n  code tool_failed\n")
    assert json.loads(document) == {
        "status": "failed",
        "error": "no such table",
        "code": "tool_failed",
        "toolId": "openclaw:core:explode",
        "errorType": "ValueError",
    }


def test_error_result_of_a_server_is_a_failed_call(one: Surroundings) -> None:
    failed = one.nacre("tools", "call", "mcp:one:fail")
    _, document, _ = one.nacre("tools", "call", "mcp:one:fail", "--json")

    assert failed == (1, "", "failed: the disk is full\n  code tool_failed\n")
    assert json.loads(document)["result"]["isError"] is True


def test_unknown_and_unreachable_tools(surroundings: Surroundings) -> None:
    surroundings.configure({"one": calling_server(), "exits": small_server("--exit")})

    unknown = surroundings.nacre("tools", "call", "mcp:one:ecko")
    missing = surroundings.nacre("tools", "call", "mcp:exits:a")

    assert unknown[0] == 1
    assert "there is no tool 'mcp:one:ecko'; nearest: mcp:one:echo" in unknown[2]
    assert missing[0] == 1
    assert "no such database" in missing[2]


# Who may call.


def test_denied_tool_is_refused(surroundings: Surroundings) -> None:
    surroundings.configure({"one": calling_server()}, tools={"deny": ["echo"]})

    status, _, err = surroundings.nacre("tools", "call", "mcp:one:echo")

    assert status == 1
    assert err.endswith('`tools.deny` has "echo"\n  code denied_by_policy\n')


def test_without_a_terminal_what_needs_an_approval_is_refused(surroundings: Surroundings) -> None:
    surroundings.configure({"one": calling_server(requireApproval=["echo"])})

    done = run_nacre("tools", "call", "mcp:one:echo", "count=1")

    assert (done.returncode, done.stdout) == (1, "")
    assert "there is no terminal to ask for an approval" in done.stderr
    assert done.stderr.endswith("  code approval_denied\n")


class AskedPerson:
    """Somebody at a terminal who has just been asked about a call."""

    def __init__(self, terminal: int, process: subprocess.Popen[bytes]) -> None:
        self.terminal = terminal
        self.process = process
        self.shown = b""
        while b"[y/N]" not in self.shown:
            self.shown += os.read(self.terminal, 4096)

    def end(self) -> tuple[int, bytes]:
        """The exit status and what was printed."""
        printed, _ = self.process.communicate(timeout=PATIENCE_SECONDS)
        return self.process.returncode, printed


@contextmanager
def asked_person() -> Generator[AskedPerson]:
    command = [FORKED_PYTHON, "-m", "nacre.cli.main", "tools", "call", "mcp:one:echo", "count=1"]
    terminal, theirs = pty.openpty()
    process = subprocess.Popen(command, stdin=theirs, stderr=theirs, stdout=subprocess.PIPE)
    os.close(theirs)
    try:
        with ended_with_the_block(process):
            yield AskedPerson(terminal, process)
    finally:
        os.close(terminal)


@pytest.mark.parametrize(
    ("typed", "end"),
    [(b"y\n", (0, b'{\n  "count": 1\n}\n')), (b"\n", (1, b"")), (b"\4", (1, b""))],
)
def test_at_a_terminal_the_person_is_asked(
    surroundings: Surroundings, typed: bytes, end: tuple[int, bytes]
) -> None:
    surroundings.configure({"one": calling_server(requireApproval=["echo"])})
    with asked_person() as person:
        os.write(person.terminal, typed)

        assert person.end() == end
    assert b"waiting for 1 server: one" in person.shown
    assert b"mcp:one:echo needs your approval: " in person.shown
    assert b'input: {"count":1}' in person.shown


def test_signal_is_an_answer_to_the_question_too(surroundings: Surroundings) -> None:
    surroundings.configure({"one": calling_server(requireApproval=["echo"])})
    with asked_person() as person:
        person.process.send_signal(signal.SIGINT)

        assert person.end() == (130, b"")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_aborts_the_call_and_ends_the_server(
    one: Surroundings, number: signal.Signals
) -> None:
    started = one.project / "started"
    os.mkfifo(started)
    with start_nacre("tools", "call", "mcp:one:hang", "--json") as process:
        started.read_text(encoding="utf-8")
        servers = workers_of(process)

        process.send_signal(number)
        out, err = process.communicate(timeout=PATIENCE_SECONDS)

    assert (process.returncode, err) == (128 + number, b"nacre: aborted\n")
    assert json.loads(out)["code"] == "aborted"
    assert servers
    assert still_running(servers) == []


def test_signal_while_a_server_starts_ends_the_command(surroundings: Surroundings) -> None:
    surroundings.configure({"hangs": small_server("--hang", "--tell")})
    started = surroundings.project / "started"
    os.mkfifo(started)
    with start_nacre("tools", "list") as process:
        started.read_text(encoding="utf-8")

        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE_SECONDS)

    assert (process.returncode, out, err) == (130, b"", b"nacre: aborted\n")


def words(text: str) -> list[JsonValue]:
    return [{"type": "text", "text": text}]


@pytest.mark.parametrize(
    ("value", "printed"),
    [
        ({"content": words("hi")}, "hi\n"),
        ({"content": words("hi\n"), "structuredContent": {"result": "hi\n"}}, "hi\n"),
        ({"content": words("[1]"), "structuredContent": {"items": [1]}}, "[1]\n"),
        ({"content": words('{"a":1}'), "structuredContent": {"a": 1}}, '{\n  "a": 1\n}\n'),
        ({"content": words("hi"), "structuredContent": {"a": None}}, 'hi\n{\n  "a": null\n}\n'),
        ({"content": [], "structuredContent": {"a": 1}}, '{\n  "a": 1\n}\n'),
        ({"content": []}, ""),
        (
            {"content": [{"type": "image", "mimeType": "image/png", "data": "AAAA"}]},
            "[image image/png, 3 bytes]\n",
        ),
        ({"content": "plain"}, '{\n  "content": "plain"\n}\n'),
        ({"content": [1]}, '{\n  "content": [\n    1\n  ]\n}\n'),
        ({"content": [], "title": 1}, '{\n  "content": [],\n  "title": 1\n}\n'),
        ([1], "[\n  1\n]\n"),
        ("text", "text\n"),
        (False, "false\n"),
        (None, ""),
    ],
)
def test_value_for_a_person(
    capsys: pytest.CaptureFixture[str], value: JsonValue, printed: str
) -> None:
    status = write_outcome(DirectResult(value=value), is_json=False)

    assert (status, capsys.readouterr().out) == (0, printed)


def test_failure_says_its_code(capsys: pytest.CaptureFixture[str]) -> None:
    status = write_outcome(DirectResult(error="no", code="tool_failed"), is_json=False)

    assert (status, capsys.readouterr()) == (1, ("", "failed: no\n  code tool_failed\n"))
