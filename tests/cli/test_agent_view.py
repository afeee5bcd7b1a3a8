"""Shows the events of a run as lines for people."""

from collections.abc import Callable

import pytest

from nacre.agent import AgentRun, RunEventKind
from nacre.cli.agent_screen import Screen
from nacre.cli.agent_view import LiveView, create_highlighter, program_lines
from nacre.json_types import JsonObject

Show = Callable[..., tuple[str, str]]


@pytest.fixture
def show(capsys: pytest.CaptureFixture[str]) -> Show:
    """Have events shown where there is no terminal; what is then on both streams."""

    def shown(*events: tuple[RunEventKind, JsonObject]) -> tuple[str, str]:
        run = AgentRun(id="run_1", session_id="session_1", agent_id="main")
        view = LiveView(Screen(), code_mode_command="nacre config set tools.codeMode true")
        for kind, data in events:
            run.events.add(kind, data)
            view.add(run, run.events.events[-1])
        captured = capsys.readouterr()
        return captured.out, captured.err

    return shown


def started(call_id: str, name: str, *, parent: str = "", **given: str) -> JsonObject:
    data: JsonObject = {
        "toolCallId": call_id,
        "toolId": f"openclaw:core:{name}",
        "toolName": name,
        "input": {**given},
    }
    return {**data, "parentToolCallId": parent} if parent else data


def ended(call_id: str, **more: str) -> JsonObject:
    return {"toolCallId": call_id, "outcome": "completed", "durationMs": 5, **more}


async def test_calls_of_two_programs_at_once_stand_under_their_own(show: Show) -> None:
    _, err = show(
        ("call.started", started("a", "exec", code="first()")),
        ("call.started", started("b", "exec", code="second()")),
        ("call.started", started("a.1", "read", parent="a", path="x")),
        ("call.started", started("b.1", "read", parent="b", path="y")),
        ("call.ended", ended("b.1")),
        ("call.ended", ended("a.1")),
    )
    assert err.splitlines() == [
        "● exec first()",
        "● exec second()",
        '  ├ ✓ openclaw:core:read {"path":"y"}  5.0 ms',
        "● exec first()",
        '  ├ ✓ openclaw:core:read {"path":"x"}  5.0 ms',
    ]


async def test_calls_at_once_that_are_no_programs_stand_under_their_own(show: Show) -> None:
    _, err = show(
        ("call.started", started("a", "tool_call", id="x")),
        ("call.started", started("b", "tool_call", id="y")),
        ("call.started", started("a.1", "read", parent="a", path="x")),
        ("call.started", started("a.1.1", "stat", parent="a.1", path="x")),
        ("call.started", started("b.1", "read", parent="b", path="y")),
        ("call.ended", ended("a.1.1")),
        ("call.ended", ended("a.1")),
        ("call.ended", ended("a")),
        ("call.ended", ended("b.1")),
        ("call.ended", ended("b")),
    )
    assert err.splitlines() == [
        '● tool_call {"id":"x"}',
        '● tool_call {"id":"y"}',
        '● tool_call {"id":"x"}',
        '  │ ├ ✓ openclaw:core:stat {"path":"x"}  5.0 ms',
        '  ├ ✓ openclaw:core:read {"path":"x"}  5.0 ms',
        "  └ ✓ completed  5.0 ms",
        '● tool_call {"id":"y"}',
        '  ├ ✓ openclaw:core:read {"path":"y"}  5.0 ms',
        "  └ ✓ completed  5.0 ms",
    ]


async def test_what_goes_on_of_a_program_stands_under_the_wait(show: Show) -> None:
    waiting: JsonObject = {"status": "waiting", "reason": "approval", "telemetry": {}}
    done: JsonObject = {"status": "completed", "value": [1], "telemetry": {}}
    _, err = show(
        ("call.started", started("a", "exec", code="first()")),
        ("cell.suspended", {"toolCallId": "a", "reason": "approval", "snapshotBytes": 2048}),
        ("call.ended", {**ended("a"), "result": waiting}),
        ("call.started", started("b", "wait", runId="run_7")),
        ("cell.resumed", {"toolCallId": "a"}),
        ("call.ended", {**ended("b"), "result": done}),
    )
    assert err.splitlines() == [
        "● exec first()",
        "  ├ suspended: approval (2.0 kB)",
        "  └ … waiting: approval  5.0 ms",
        '● wait {"runId":"run_7"}',
        "  ├ resumed",
        "  └ ✓ completed  5.0 ms  [1]",
    ]


async def test_a_failed_call_says_why(show: Show) -> None:
    failed = {**ended("a"), "outcome": "failed", "error": "no\nfile", "errorCode": "tool_failed"}
    _, err = show(("call.started", started("a", "read", path="x")), ("call.ended", failed))
    assert err.splitlines() == [
        '● read {"path":"x"}',
        "  └ ✗ failed  5.0 ms  tool_failed: no file",
    ]


async def test_a_changed_input_is_shown_as_it_was_called(show: Show) -> None:
    _, err = show(
        ("call.started", started("a", "exec", code="first()")),
        ("call.started", started("a.1", "read", parent="a", path="x")),
        ("call.changed", {"toolCallId": "a.1", "input": {"path": "y"}}),
        ("call.ended", ended("a.1")),
    )
    assert err.splitlines()[-1] == '  ├ ✓ openclaw:core:read {"path":"y"} (changed)  5.0 ms'


async def test_an_end_without_a_beginning_is_no_trouble(show: Show) -> None:
    assert show(("call.ended", ended("a")), ("call.updated", {"toolCallId": "a"})) == ("", "")


async def test_calls_inside_of_calls_are_indented_up_to_a_depth(show: Show) -> None:
    events: list[tuple[RunEventKind, JsonObject]] = [
        ("call.started", started("0", "exec", code="first()"))
    ]
    for depth in range(1, 30):
        nested = started(str(depth), "read", parent=str(depth - 1))
        events.append(("call.started", nested))
    _, err = show(*events, ("call.ended", ended("29")))
    assert err.splitlines()[-1] == f"  {'│ ' * 7}├ ✓ openclaw:core:read  5.0 ms"


async def test_answers_of_a_model_that_does_not_stream_are_printed(show: Show) -> None:
    out, _ = show(
        ("model.started", {"model": "m"}),
        ("message.completed", {"text": "all at once"}),
        ("model.started", {"model": "m"}),
        ("text.delta", {"text": "word "}),
        ("text.delta", {"text": "by word"}),
        ("message.completed", {"text": "word by word"}),
    )
    assert out == "all at once\nword by word\n"


async def test_messages_to_the_person_are_printed_like_answers(show: Show) -> None:
    assert show(("message.sent", {"text": "half done"})) == ("half done\n", "")


async def test_thoughts_are_for_terminals_only(show: Show) -> None:
    assert show(("thinking.delta", {"text": "hm"})) == ("", "")


@pytest.mark.parametrize(
    ("kind", "data", "line"),
    [
        (
            "retry",
            {"attempt": 2, "delaySeconds": 1.5, "problem": "busy"},
            "attempt 2 failed: busy; retrying in 1.5 s",
        ),
        (
            "retry",
            {"model": "b/b", "failedModel": "a/a", "problem": "gone"},
            "a/a failed: gone; trying b/b",
        ),
        ("steered", {"text": "be quick"}, "steered: be quick"),
        (
            "codex_app_server.lifecycle",
            {"phase": "thread_replaced", "note": "another process has it open"},
            "another process has it open",
        ),
        ("steered", {"text": "old", "dropped": "the cap is 1"}, "dropped: old (the cap is 1)"),
        (
            "steered",
            {"followupRunId": "run_2"},
            "too late for this turn; it starts a new one",
        ),
        ("compaction.ended", {"messageCount": 3, "summary": "s"}, "summarized 3 older messages"),
        (
            "compaction.ended",
            {"messageCount": 1, "error": "no"},
            "cannot summarize 1 older message: no",
        ),
        (
            "server.unavailable",
            {"server": "files", "problem": "it ended"},
            "the tools of files are missing: it ended",
        ),
        (
            "tool.unavailable",
            {"toolId": "mcp:docs:find", "problem": "its schema is odd"},
            "the tool mcp:docs:find is missing: its schema is odd",
        ),
        ("run.failed", {"error": "no money"}, "failed: no money"),
        ("run.aborted", {"error": "by hand"}, "aborted: by hand"),
        (
            "run.queued",
            {"after": "run_0"},
            "queued until the running turn ends",
        ),
        ("approval.answered", {"answer": "allow", "how": "once"}, "  ├ the call: allowed (once)"),
        ("approval.answered", {"answer": "expired"}, "  ├ the call: the approval is expired"),
    ],
)
async def test_what_happens_besides_is_told_in_a_line(
    show: Show, kind: RunEventKind, data: JsonObject, line: str
) -> None:
    _, err = show((kind, data))
    assert err.splitlines()[-1] == line


async def test_output_of_programs_is_one_line_without_a_terminal(show: Show) -> None:
    _, err = show(
        ("call.started", started("a", "exec", code="first()")),
        ("cell.output", {"toolCallId": "a", "text": "one\ntwo\nthree"}),
        ("cell.output", {"toolCallId": "a", "result": {"n": 1}}),
    )
    assert err.splitlines()[1:] == ["  ├ » one", "  ├ » … 2 more lines", '  ├ » {"n":1}']


def test_a_program_is_coloured_line_by_line() -> None:
    lines = program_lines("\nconst a: number = 1;\nreturn `a\nb`;\n", colours=create_highlighter())
    assert len(lines) == 3
    assert lines[0].startswith("\x1b[94")
    assert all("\x1b" not in line or line.endswith("\x1b[0m") for line in lines)


def test_escapes_of_a_program_do_not_pass() -> None:
    lines = program_lines("a\x1b[2J\u202eb\r\n\tc", colours=None)
    assert lines == ["a\\u001b[2J\\u202eb", "  c"]


def test_of_a_long_program_the_beginning_is_shown() -> None:
    lines = program_lines("\n".join(f"line{number}" for number in range(100)), colours=None)
    assert lines[-2:] == ["line59", "… 40 more lines"]
    assert len(program_lines("x" * 10_000, colours=None)[0]) == 401


async def test_many_direct_tools_are_reported_once_with_the_setting_that_changes_it(
    show: Show,
) -> None:
    many: JsonObject = {
        "model": "demo/demo",
        "surface": "direct",
        "toolNames": [f"tool_{number}" for number in range(54)],
        "toolBytes": 24_600,
    }
    _, err = show(("model.started", many), ("model.started", many))
    assert err == (
        "the model gets 54 tools (24.6 kB) with every request; with code mode it gets two: "
        "nacre config set tools.codeMode true\n"
    )
    few: JsonObject = {**many, "toolNames": ["read", "write"]}
    behind_search: JsonObject = {**many, "surface": "tool_search"}
    assert show(("model.started", few), ("model.started", behind_search)) == ("", "")


async def test_a_question_of_the_agent_is_shown_with_its_end(show: Show) -> None:
    _, err = show(
        ("input.requested", {"inputId": "input_1", "text": "Which colour?\n1. Red\n2. Blue"}),
        ("run.waiting", {}),
        ("input.answered", {"inputId": "input_1", "how": "expired"}),
    )
    assert err.splitlines() == ["Which colour?", "1. Red", "2. Blue", "the question is expired"]
