"""What is left of a run for those who look at it later: calls as a tree, counts, spans."""

import json
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from nacre import CodeModeRun, Runtime, Tool, ToolCall
from nacre.trajectory import export_json_lines, import_json_lines, project
from tests.code_mode.outcomes import events_of, failure_of, value_of, waiting_of
from tests.code_mode.tools import HeldTool, echo_tool
from tests.contract.requirements import requirement

SECRET = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789"


async def _fail(input: dict[str, Any], call: ToolCall) -> object:
    raise ValueError("no luck")


def everything_in(run: CodeModeRun) -> str:
    return "\n".join(export_json_lines(run.trajectory.events))


# The record.


@requirement("validation:nested-calls-are-shown")
async def test_nested_calls_stand_under_the_call_of_exec(runtime: Runtime) -> None:
    run = runtime.run(tools=[echo_tool(), Tool(name="fail", execute=_fail)])
    await run.exec("await tools.echo({n: 1}); await tools.fail({}).catch(() => 0)", call_id="c1")
    (root,) = project(run.trajectory.events)
    assert (root.call_id, root.tool_id, root.tool_name, root.outcome) == (
        "c1",
        "code_mode:exec",
        "exec",
        "completed",
    )
    echo, fail = root.children
    assert (echo.tool_id, echo.parent_id, echo.input, echo.outcome, echo.result) == (
        "openclaw:core:echo",
        "c1",
        {"n": 1},
        "completed",
        {"n": 1},
    )
    assert (fail.tool_id, fail.outcome, fail.error, fail.error_code) == (
        "openclaw:core:fail",
        "failed",
        "no luck",
        "tool_failed",
    )
    shown = echo.to_json()
    assert (shown["parentToolCallId"], shown["toolId"]) == ("c1", "openclaw:core:echo")


@requirement("validation:nested-calls-are-shown")
async def test_a_call_made_after_a_wait_stands_under_the_exec_that_began_the_program(
    runtime: Runtime,
) -> None:
    run = runtime.run(tools=[echo_tool()])
    code = "await yield_control(); return tools.echo({})"
    waiting = waiting_of(await run.exec(code, call_id="c1"))
    value_of(await run.wait(waiting.cell_id, call_id="c2"))
    began, resumed = project(run.trajectory.events)
    assert (began.tool_name, [child.tool_id for child in began.children]) == (
        "exec",
        ["openclaw:core:echo"],
    )
    assert (resumed.call_id, resumed.tool_name, resumed.children) == ("c2", "wait", [])


async def test_the_life_of_a_cell_is_recorded(runtime: Runtime) -> None:
    run = runtime.run(tools=[echo_tool()])
    waiting = waiting_of(await run.exec("text('hi'); await yield_control(); json({n: 1})"))
    value_of(await run.wait(waiting.cell_id))
    life = [event for event in run.trajectory.events if event.kind.startswith("cell.")]
    assert [event.kind for event in life] == [
        "cell.started",
        "cell.output",
        "cell.suspended",
        "cell.resumed",
        "cell.output",
        "cell.ended",
    ]
    assert all(event.data["runId"] == waiting.cell_id for event in life)
    assert (life[1].data["text"], life[4].data["result"]) == ("hi", {"n": 1})
    assert life[5].data["status"] == "completed"


async def test_a_program_that_failed_is_recorded_with_its_reason(runtime: Runtime) -> None:
    run = runtime.run(tools=[echo_tool()])
    failure_of(await run.exec("throw Error('no')"))
    (ended,) = events_of(run, "cell.ended")
    assert (ended.data["status"], ended.data["reason"]) == ("failed", "guest_error")


async def test_secrets_are_not_recorded(runtime: Runtime) -> None:
    async def leak(input: dict[str, Any], call: ToolCall) -> object:
        call.update({"token": SECRET})
        return {"session_token": SECRET, "note": f"the key is {SECRET}"}

    run = runtime.run(tools=[Tool(name="leak", parameters={"type": "object"}, execute=leak)])
    result = await run.exec(
        f"const got = await tools.leak({{apiKey: 'plain words', text: '{SECRET}'}});"
        "text(got.note); json(got); return got.note"
    )
    # The program gets what the tool returned.
    assert SECRET in value_of(result)
    recorded = everything_in(run)
    assert SECRET not in recorded
    assert "plain words" not in recorded.replace("apiKey: 'plain words'", "")
    assert SECRET not in json.dumps(result.telemetry.to_json())


async def test_a_record_can_be_exported_and_read_again(runtime: Runtime) -> None:
    run = runtime.run(tools=[echo_tool()])
    value_of(await run.exec("return tools.echo({text: 'é\\u2028'})"))
    events = import_json_lines(everything_in(run))
    assert events == run.trajectory.events
    assert project(events) == project(run.trajectory.events)


# Counts.


@requirement("validation:nested-calls-are-shown")
async def test_results_count_what_the_run_did_so_far(runtime: Runtime) -> None:
    tools = [
        echo_tool(),
        echo_tool("pick", owner="app", source="client"),
        echo_tool("create", owner="github", source="mcp"),
    ]
    run = runtime.run(tools=tools)
    await run.exec("await tools.search('echo'); await tools.describe('echo'); await tools.echo({})")
    result = await run.exec("await tools.echo({}); await tools.pick({})")
    told = result.telemetry.to_json()
    expected = {
        "catalogSize": 3,
        "sources": {"openclaw": 1, "mcp": 1, "client": 1},
        "visibleTools": ["exec", "wait"],
        "execCount": 2,
        "waitCount": 0,
        "searchCount": 1,
        "describeCount": 1,
        "callCount": 3,
        "calledTools": {"openclaw:core:echo": 2, "client:app:pick": 1},
    }
    assert expected.items() <= told.items()


async def test_programs_that_ended_at_a_limit_are_counted() -> None:
    async with Runtime({"timeoutMs": 100}, workers=1) as runtime:
        run = runtime.run(tools=[echo_tool()])
        failed = failure_of(await run.exec("while (true) {}"))
    assert failed.reason == "timeout"
    assert failed.telemetry.limit_failures == {"timeout": 1}


# Spans.


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    # The library lets a provider be set only once per process.
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    return exporter


def attribute(item: ReadableSpan, key: str) -> object:
    return (item.attributes or {}).get(key)


def parent_of(item: ReadableSpan, spans: tuple[ReadableSpan, ...]) -> ReadableSpan | None:
    found = [
        each
        for each in spans
        if item.parent and each.context and each.context.span_id == item.parent.span_id
    ]
    return found[0] if found else None


def tool_span(spans: tuple[ReadableSpan, ...], tool_id: str) -> ReadableSpan:
    (found,) = [each for each in spans if attribute(each, "nacre.tool.id") == tool_id]
    return found


async def test_spans_show_cells_calls_and_waits_and_no_inputs(
    runtime: Runtime, exporter: InMemorySpanExporter
) -> None:
    held = HeldTool()
    run = runtime.run(tools=[echo_tool(), held.tool])
    waiting = waiting_of(
        await run.exec(
            "await tools.echo({text: 'private'}); const call = tools.held({text: 'private'});"
            "await yield_control('private'); return call"
        )
    )
    held.answer("private")
    value_of(await run.wait(waiting.cell_id))
    spans = exporter.get_finished_spans()
    by_name = {each.name: each for each in spans}
    assert set(by_name) == {"nacre.cell", "nacre.tool_call", "nacre.suspend", "nacre.resume"}
    cell = by_name["nacre.cell"]
    assert attribute(cell, "nacre.cell.id") == waiting.cell_id
    assert attribute(cell, "nacre.cell.status") == "completed"
    for child in (
        by_name["nacre.suspend"],
        by_name["nacre.resume"],
        tool_span(spans, "openclaw:core:echo"),
        tool_span(spans, "openclaw:core:held"),
    ):
        assert parent_of(child, spans) is cell
    assert parent_of(cell, spans) is tool_span(spans, "code_mode:exec")
    assert "private" not in "".join(each.to_json() for each in spans)


async def test_the_span_of_a_call_that_failed_says_so_by_its_code(
    runtime: Runtime, exporter: InMemorySpanExporter
) -> None:
    run = runtime.run(tools=[Tool(name="fail", execute=_fail)])
    failure_of(await run.exec("return tools.fail({})"))
    failed = tool_span(exporter.get_finished_spans(), "openclaw:core:fail")
    assert not failed.status.is_ok
    assert "no luck" not in failed.to_json()
