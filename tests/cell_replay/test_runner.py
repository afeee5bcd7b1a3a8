"""Recorded programs run again and do the same, without calling a tool."""

from typing import Any

import anyio
import pytest

from nacre import AllowOnce, ApprovalQueue, AskApproval, BeforeToolCall, Runtime, Tool, ToolCall
from nacre.cell_replay import replay
from nacre.config import Language
from tests.cell_replay.replays import record_of, replay_all, replay_one
from tests.code_mode.issues_namespace import issues
from tests.code_mode.mcp_servers import LazyServer, listed
from tests.code_mode.outcomes import Recorded, failure_of, value_of, waiting_of
from tests.code_mode.tools import HeldTool, echo_tool

SHORT = {"timeoutMs": 300}


async def _fail(input: dict[str, Any], call: ToolCall) -> object:
    raise ValueError("no luck")


def failing_tool() -> Tool:
    return Tool(name="fail", parameters={"type": "object"}, execute=_fail)


PROGRAMS = {
    "a value": "return {a: 1, b: [true, null, 1.5]}",
    "output": "text('one'); json({two: 2}); text('three'); return 4",
    "a clock": "return [Date.now(), performance.now(), new Date().toISOString()]",
    "a clock that moves": (
        "const seen = []; for (let i = 0; i < 50000; i++) seen.push(Date.now());"
        "return [...new Set(seen)]"
    ),
    "a busy wait": "const start = Date.now(); while (Date.now() - start < 20) {} return start",
    "random numbers": (
        "const bytes = crypto.getRandomValues(new Uint8Array(100));"
        "return [Math.random(), Math.random(), [...bytes], crypto.randomUUID()]"
    ),
    "timers": (
        "const seen = [];"
        "await Promise.all([30, 10, 20].map(ms => new Promise(done =>"
        " setTimeout(() => { seen.push([ms, Date.now()]); done() }, ms))));"
        "return [seen, Math.random()]"
    ),
    "a call": "return await tools.echo({n: 1})",
    "calls one by one": (
        "const seen = []; for (let n = 0; n < 80; n++) seen.push(await tools.echo({n}));"
        "text(String(Date.now())); return seen"
    ),
    "a search": "return [await tools.search('echo'), await tools.describe('openclaw:core:echo')]",
    "a caught error": "return await tools.fail({}).catch(e => [e.name, e.message, e.code])",
    "an unknown tool": "return await tools.call('no:such:tool', {}).catch(e => e.message)",
    "the catalog": "return [ALL_TOOLS, Object.keys(tools), await API.list()]",
    "calls that nobody awaits": "tools.echo({late: true}); return 1",
}


@pytest.mark.parametrize("code", PROGRAMS.values(), ids=PROGRAMS.keys())
async def test_a_replay_does_the_same(runtime: Runtime, code: str) -> None:
    run = runtime.run(tools=[echo_tool(), failing_tool()])
    value = value_of(await run.exec(code))
    replayed = await replay_one(runtime, run.trajectory)
    assert (replayed.difference, replayed.notes) == ("", ())
    assert replayed.end == replayed.recorded_end
    assert replayed.end is not None
    assert replayed.end["status"] == "completed"
    if len(str(value)) < 1_000:
        assert replayed.end["value"] == value


FAILURES = {
    "a thrown error": ("text('before'); throw new Error('bad ' + Math.random())", "guest_error"),
    "a failed call": ("await tools.fail({})", "nested_tool_failed"),
    "a syntax error": ("return (", "syntax_error"),
    "an unhandled rejection": (
        "Promise.reject(new Error('lost')); return 1",
        "unhandled_rejection",
    ),
    "a promise that never settles": ("await new Promise(() => 0)", "never_settles"),
    "too much memory": ("const a = []; for (;;) a.push(new Uint8Array(1e6))", None),
    "too much output": ("for (;;) text('x'.repeat(10000))", "output_limit_exceeded"),
    "a module": ("await import('fs')", "module_access_denied"),
}


@pytest.mark.parametrize(("code", "reason"), FAILURES.values(), ids=FAILURES.keys())
async def test_a_replay_fails_in_the_same_way(
    runtime: Runtime, code: str, reason: str | None
) -> None:
    run = runtime.run(tools=[failing_tool()])
    failed = failure_of(await run.exec(code))
    replayed = await replay_one(runtime, run.trajectory)
    assert replayed.difference == ""
    assert replayed.end is not None
    assert replayed.end == replayed.recorded_end
    assert replayed.end["reason"] == failed.reason
    assert reason in (None, failed.reason)


@pytest.mark.parametrize("language", ["typescript", "javascript"])
async def test_typescript_is_replayed(runtime: Runtime, language: Language) -> None:
    run = runtime.run(tools=[echo_tool()])
    code = "const n: number = Math.random(); return tools.echo({n} as {n: number})"
    await run.exec(code, language=language)
    replayed = await replay_one(runtime, run.trajectory)
    assert replayed.difference == ""
    assert replayed.end is not None
    assert replayed.end["status"] == ("completed" if language == "typescript" else "failed")


async def test_no_tool_is_called_in_a_replay(runtime: Runtime) -> None:
    calls: list[dict[str, Any]] = []

    async def note(input: dict[str, Any], call: ToolCall) -> object:
        calls.append(input)
        return len(calls)

    run = runtime.run(tools=[Tool(name="note", parameters={"type": "object"}, execute=note)])
    value_of(await run.exec("return [await tools.note({}), await tools.note({})]"))
    replayed = await replay_one(runtime, run.trajectory)
    assert (replayed.end, len(calls)) == ({"status": "completed", "value": [1, 2]}, 2)
    assert [call.name for call in replayed.calls] == ["openclaw:core:note"] * 2


async def test_parallel_answers_come_in_their_recorded_order(runtime: Runtime) -> None:
    slow, quick = HeldTool("slow"), echo_tool("quick")
    run = runtime.run(tools=[slow.tool, quick])
    code = (
        "const seen = [];"
        "await Promise.all([tools.slow({}).then(() => seen.push('slow')),"
        " tools.quick({}).then(async () => { seen.push('quick'); await tools.quick({n: 2});"
        " seen.push('quick again'); text('go') })]);"
        "return seen"
    )
    order: Any = None
    async with anyio.create_task_group() as tasks:

        async def release() -> None:
            await slow.wait_for_calls()
            slow.answer(None)

        tasks.start_soon(release)
        order = value_of(await run.exec(code))
    replayed = await replay_one(runtime, run.trajectory)
    assert (replayed.difference, replayed.end) == ("", {"status": "completed", "value": order})


async def test_a_suspended_program_is_replayed_over_all_its_legs(runtime: Runtime) -> None:
    run = runtime.run(tools=[echo_tool()])
    code = (
        "text('first ' + Math.random()); await yield_control('look');"
        "text('second ' + Math.random()); const n = await tools.echo({at: Date.now()});"
        "await yield_control('again'); return [n, Math.random(), crypto.randomUUID()]"
    )
    waiting = waiting_of(await run.exec(code))
    waiting_of(await run.wait(waiting.cell_id))
    value = value_of(await run.wait(waiting.cell_id))
    replayed = await replay_one(runtime, run.trajectory)
    assert (replayed.difference, replayed.end) == ("", {"status": "completed", "value": value})
    assert [step.is_restored for step in replayed.steps] == [False, True, False, True]
    assert [step.yields for step in replayed.steps] == [("look",), (), ("again",), ()]
    assert [answer.name for answer in replayed.steps[1].answers] == ["yield_control"]


async def test_a_program_that_waited_for_a_person_is_replayed(runtime: Runtime) -> None:
    async def ask(event: BeforeToolCall) -> object:
        return AskApproval("echoes are loud") if event.tool_name == "echo" else None

    queue = ApprovalQueue()
    run = runtime.run(tools=[echo_tool()], hooks=[("before_tool_call", ask)], approvals=queue)
    waiting = waiting_of(await run.exec("return [await tools.echo({n: 1}), Math.random()]"))
    (pending,) = queue.pending
    queue.answer(pending.id, AllowOnce())
    value = value_of(await run.wait(waiting.cell_id))
    replayed = await replay_one(runtime, run.trajectory)
    assert (replayed.difference, replayed.end) == ("", {"status": "completed", "value": value})


async def test_a_program_that_still_waits_is_replayed_to_where_it_is(runtime: Runtime) -> None:
    run = runtime.run()
    waiting_of(await run.exec("text('hi'); await yield_control(); return 1"))
    replayed = await replay_one(runtime, run.trajectory)
    assert (replayed.difference, replayed.end) == ("", None)
    assert replayed.notes == ("the record ends before the program",)


async def test_an_aborted_program_is_replayed_to_where_it_was(runtime: Runtime) -> None:
    held = HeldTool()
    run = runtime.run(tools=[held.tool, echo_tool()])
    async with anyio.create_task_group() as tasks:

        async def abort() -> None:
            await held.wait_for_calls()
            await run.abort("enough")

        tasks.start_soon(abort)
        failure_of(await run.exec("text(String(await tools.echo({}))); await tools.held({})"))
    replayed = await replay_one(runtime, run.trajectory)
    assert replayed.difference == ""
    assert [call.name for call in replayed.calls] == ["openclaw:core:echo", "openclaw:core:held"]
    assert "aborted" in " ".join(replayed.notes)


async def test_an_expired_program_is_replayed_to_where_it_was() -> None:
    async with Runtime({"snapshotTtlSeconds": 1}, workers=1) as runtime:
        run = runtime.run()
        expired = Recorded(run, "cell.ended", status="expired")
        waiting_of(await run.exec("await yield_control(); return 1"))
        await expired.wait()
        replayed = await replay_one(runtime, run.trajectory)
    assert (replayed.difference, replayed.notes) == ("", ("the program was expired there",))


async def test_a_program_that_exceeded_its_time_is_replayed() -> None:
    async with Runtime(SHORT, workers=1) as runtime:
        run = runtime.run()
        code = "text('before'); for (;;) {}"
        assert failure_of(await run.exec(code)).reason == "timeout"
        replayed = await replay_one(runtime, run.trajectory)
    assert (replayed.difference, replayed.notes) == ("", ())
    assert replayed.end is not None
    assert replayed.end["reason"] == "timeout"
    assert replayed.steps[0].output == ({"text": "before"},)


async def test_a_snapshot_that_is_too_large_fails_in_the_replay_too() -> None:
    async with Runtime({"maxSnapshotBytes": 65536}, workers=1) as runtime:
        run = runtime.run()
        code = (
            "globalThis.kept = crypto.getRandomValues(new Uint8Array(65536));"
            "globalThis.more = crypto.getRandomValues(new Uint8Array(65536)); await yield_control()"
        )
        assert failure_of(await run.exec(code)).reason == "snapshot_limit_exceeded"
        replayed = await replay_one(runtime, run.trajectory)
    assert replayed.difference == ""
    assert replayed.end == replayed.recorded_end


async def test_calls_of_mcp_servers_and_namespaces_are_replayed(runtime: Runtime) -> None:
    owned = [echo_tool(name, owner="github") for name in ("list_issues", "update_issue")]
    runtime.namespaces.register("github", issues())
    try:
        lazy = LazyServer("files", "read_file")
        run = runtime.run(tools=owned, mcp=[listed("github", "create_issue"), lazy])
        code = (
            "return [await MCP.github.createIssue({title: 'Crash'}),"
            " await MCP.files.readFile({path: 'a'}), await MCP.$search('issue').catch(e => e.name),"
            " await API.read('mcp/github.d.ts'), await Issues.update(4, {state: 'closed'})]"
        )
        await run.exec(code)
        replayed = await replay_one(runtime, run.trajectory)
    finally:
        runtime.namespaces.clear()
    assert replayed.difference == ""
    names = [call.name for call in replayed.calls]
    assert "MCP.github.createIssue" in names
    assert replayed.end == replayed.recorded_end


async def test_all_cells_of_a_run_are_replayed(runtime: Runtime) -> None:
    run = runtime.run(tools=[echo_tool()])
    for number in range(3):
        value_of(await run.exec(f"return tools.echo({{n: {number}}})"))
    replayed = await replay_all(runtime, run.trajectory)
    assert replayed.difference == ""
    assert [cell.end for cell in replayed.cells] == [
        {"status": "completed", "value": {"n": number}} for number in range(3)
    ]
    second = replayed.cells[1].cell_id
    chosen = await replay_all(runtime, run.trajectory, cell_id=second)
    assert [cell.cell_id for cell in chosen.cells] == [second]


async def test_a_replay_ends_after_the_wanted_step(runtime: Runtime) -> None:
    run = runtime.run(tools=[echo_tool()])
    value_of(await run.exec("for (const n of [1, 2, 3]) text((await tools.echo({n})).n + '')"))
    replayed = await replay_one(runtime, run.trajectory, until=2)
    assert (replayed.difference, replayed.end, replayed.recorded_steps) == ("", None, 4)
    assert [step.output for step in replayed.steps] == [(), ({"text": "1"},)]
    assert [step.cause for step in replayed.steps] == ["start", "answers"]


async def test_a_replay_in_another_process_needs_only_the_record(runtime: Runtime) -> None:
    run = runtime.run(tools=[echo_tool()])
    value_of(await run.exec("return [await tools.echo({}), Math.random(), Date.now()]"))
    replayed = await replay(record_of(run.trajectory))
    assert replayed.difference == ""
    assert replayed.cells[0].notes == ()
