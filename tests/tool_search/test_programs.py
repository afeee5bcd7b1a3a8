"""Programs of Tool Search: calls, time limits, and forged requests."""

import math
from contextlib import nullcontext
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from nacre import AllowOnce, ApprovalQueue, AskApproval, BeforeToolCall, ToolCall
from nacre.errors import HostRequestError
from nacre.json_types import JsonObject
from nacre.sandbox import CellId, HostRequest, Sandbox
from nacre.telemetry import Span
from nacre.tool_search.catalog import CatalogAccess, RunTools
from nacre.tool_search.programs import CodeBridge, ProgramClock
from nacre.tools import Tool
from tests.code_mode.mcp_servers import BrokenServer, LazyServer, mcp_tool
from tests.code_mode.tools import ANY_OBJECT, HeldTool, echo_tool
from tests.contract.requirements import requirement
from tests.tool_search.runs import (
    CAUGHT,
    Recorded,
    events_of,
    failure_of,
    program,
    reason_of,
    run_with,
    value_of,
)

ISSUE: JsonObject = {
    "type": "object",
    "properties": {"title": {"type": "string"}},
    "required": ["title"],
}
SHORT = {"codeTimeoutMs": 1_000}


async def ask_for_echo(event: BeforeToolCall) -> object:
    return AskApproval("echoes are loud") if event.tool_name == "echo" else None


HOOKS = [("before_tool_call", ask_for_echo)]


@requirement("tool-search:search-describe-call")
async def test_a_program_finds_describes_and_calls_a_tool(sandbox: Sandbox) -> None:
    tool = echo_tool("create_issue", description="Create a GitHub issue", parameters=ISSUE)
    run = await run_with(sandbox, tools=[tool, echo_tool("weather")])
    result = await program(
        run,
        """
        const hits = await openclaw.tools.search("create a GitHub issue", {limit: 1});
        const tool = await openclaw.tools.describe(hits[0].id);
        return [hits, tool.parameters, await openclaw.tools.call(tool.id, {title: "Crash"})];
        """,
    )
    hits, parameters, called = value_of(result)
    assert hits == [
        {
            "id": "openclaw:core:create_issue",
            "name": "create_issue",
            "description": "Create a GitHub issue",
            "source": "openclaw",
        }
    ]
    assert (parameters, called) == (ISSUE, {"title": "Crash"})


@requirement("tool-search:all-sources")
async def test_tools_of_all_sources_are_found_and_called(sandbox: Sandbox) -> None:
    tools = [
        echo_tool("send_letter"),
        echo_tool("letter_box", owner="app", source="client"),
        mcp_tool("letter_list", "post"),
    ]
    run = await run_with(sandbox, tools=tools, servers=[LazyServer("mail", "letter_search")])
    result = await program(
        run,
        """
        const ids = (await openclaw.tools.search("letter")).map((hit) => hit.id).sort();
        return [ids, await Promise.all(ids.map((id) => openclaw.tools.call(id, {n: 1})))];
        """,
    )
    ids, values = value_of(result)
    assert ids == [
        "client:app:letter_box",
        "mcp:mail:letter_search",
        "mcp:post:letter_list",
        "openclaw:core:send_letter",
    ]
    native: JsonObject = {"content": [], "structuredContent": {"n": 1}}
    assert values == [{"n": 1}, native, native, {"n": 1}]


@requirement("tool-search:program-sees")
async def test_a_program_has_the_bridge_and_the_console_and_nothing_of_code_mode(
    sandbox: Sandbox,
) -> None:
    run = await run_with(sandbox, tools=[echo_tool()])
    names = (
        "tools ALL_TOOLS MCP API namespaces yield_control exec wait tool_call process fetch Deno "
        "WebAssembly Worker XMLHttpRequest std os"
    )
    result = await program(
        run,
        f"""
        const seen = "{names}".split(" ").filter((name) => typeof globalThis[name] !== "undefined");
        console.log("out"); console.warn("warned"); console.error("wrong");
        text("said"); json({{ a: 1 }});
        return [seen, Object.keys(openclaw), Object.keys(openclaw.tools)];
        """,
    )
    assert value_of(result) == [[], ["tools"], ["search", "describe", "call"]]
    assert result.to_json()["output"] == [
        {"type": "text", "text": "out"},
        {"type": "text", "text": "warned"},
        {"type": "text", "text": "wrong"},
        {"type": "text", "text": "said"},
        {"type": "json", "value": {"a": 1}},
    ]


@requirement("tool-search:program-sees")
@pytest.mark.parametrize("code", ["await import('fs')", "require('child_process')"])
async def test_a_program_loads_no_modules(sandbox: Sandbox, code: str) -> None:
    run = await run_with(sandbox, tools=[echo_tool()])
    assert reason_of(await program(run, code)) == "module_access_denied"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("search()", "openclaw.tools.search: a search needs a query as text"),
        ("search({query: 'x'})", "openclaw.tools.search: a search needs a query as text"),
        (
            "search('x', 5)",
            "openclaw.tools.search: the options of a search are an object, such as {limit: 5}",
        ),
        (
            "search('x', {limit: '5'})",
            "openclaw.tools.search: a search takes limit as a number from 1 to 20",
        ),
        ("describe()", "openclaw.tools.describe: a tool is named by its id, as text"),
        ("call({id: 'x'})", "openclaw.tools.call: a tool is named by its id, as text"),
    ],
)
async def test_wrong_arguments_are_refused_by_name(
    sandbox: Sandbox, call: str, message: str
) -> None:
    run = await run_with(sandbox, tools=[echo_tool()])
    caught = value_of(await program(run, f"return await openclaw.tools.{call}{CAUGHT}"))
    assert (caught["name"], caught["message"]) == ("TypeError", message)


async def test_a_search_is_kept_within_the_limits(sandbox: Sandbox) -> None:
    tools = [echo_tool(f"letter_{number}") for number in range(30)]
    config = {"searchDefaultLimit": 3, "maxSearchLimit": 5}
    run = await run_with(sandbox, tools=tools, config=config)
    counts = "[{}, {limit: 4}, {limit: 1e9}, {limit: -1}, null]"
    code = (
        f"return Promise.all({counts}.map("
        "async (options) => (await openclaw.tools.search('letter', options)).length))"
    )
    assert value_of(await program(run, code)) == [3, 4, 5, 1, 3]


async def test_a_search_answers_in_few_words_whatever_a_server_says(sandbox: Sandbox) -> None:
    said = "letter\n\n\t" + "very  " * 200_000
    tool = mcp_tool("letter", "loud", description=said, label="label " * 100)
    run = await run_with(sandbox, tools=[tool])
    code = "return [await openclaw.tools.search('letter')]"
    [[hit]] = value_of(await program(run, code))
    assert hit["description"].startswith("letter very very")
    assert (len(hit["description"]), len(hit["label"])) == (401, 101)


async def test_a_server_that_could_not_be_searched_is_named_in_the_result(
    sandbox: Sandbox,
) -> None:
    run = await run_with(sandbox, tools=[echo_tool()], servers=[BrokenServer()])
    result = await program(run, "return (await openclaw.tools.search('echo')).length")
    assert result.to_json() == {
        "status": "completed",
        "value": 1,
        "unavailableServers": {"broken": "the MCP server broken does not start: no such file"},
    }
    caught = value_of(
        await program(run, f"return await openclaw.tools.call('mcp:broken:x', {{}}){CAUGHT}")
    )
    assert caught["code"] == "server_unavailable"


# Ends.


@requirement("tool-search:killed-on-timeout")
async def test_a_program_that_never_stops_is_ended(sandbox: Sandbox) -> None:
    run = await run_with(sandbox, tools=[echo_tool()], config=SHORT)
    code = "console.log('started'); await openclaw.tools.call('echo', {}); while (true) {}"
    with anyio.fail_after(30):
        failed = failure_of(await program(run, code))
    assert (failed.code, reason_of(failed)) == ("timeout", "timeout")
    assert failed.error == "the program exceeded its time limit (codeTimeoutMs is 1000)"
    assert failed.to_json()["output"] == [{"type": "text", "text": "started"}]


@requirement("tool-search:killed-on-timeout")
async def test_a_program_that_waits_for_a_slow_tool_is_ended_and_the_tool_with_it(
    sandbox: Sandbox,
) -> None:
    held = HeldTool()
    run = await run_with(sandbox, tools=[echo_tool(), held.tool], config=SHORT)
    code = "await openclaw.tools.call('echo', {}); return await openclaw.tools.call('held', {})"
    with anyio.fail_after(30):
        failed = failure_of(await program(run, code, "call_1"))
    assert failed.error == "the program exceeded its time limit (codeTimeoutMs is 1000)"
    assert (failed.code, failed.to_json()["unfinishedCalls"]) == ("timeout", ["held"])
    with anyio.fail_after(30):
        while not held.cancelled:
            await anyio.lowlevel.checkpoint()
    assert held.cancelled == ["call_1.2"]


@requirement("tool-search:killed-on-timeout")
async def test_a_program_that_only_sets_timers_is_ended(sandbox: Sandbox) -> None:
    run = await run_with(sandbox, tools=[echo_tool()], config=SHORT)
    with anyio.fail_after(30):
        failed = failure_of(await program(run, "await new Promise((go) => setTimeout(go, 1e9))"))
    assert failed.code == "timeout"


async def test_a_slow_server_costs_searches_no_time_of_the_program(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The first search waits longer than the program may run.
    monkeypatch.setattr("nacre.tools.servers._FIRST_WAIT_SECONDS", 1.3)
    slow = LazyServer("slow", "echo_later", is_held=True)
    run = await run_with(sandbox, tools=[echo_tool()], servers=[slow], config=SHORT)
    code = (
        "const search = async () => (await openclaw.tools.search('echo')).map((tool) => tool.id);"
        "return [await search(), await search(), await search()]"
    )
    with anyio.fail_after(30):
        result = await program(run, code)
    assert value_of(result) == [["openclaw:core:echo"]] * 3
    assert result.unavailable_servers == {
        "slow": "the MCP server slow is still starting; try again later"
    }


async def test_a_program_that_waits_for_a_person_is_waited_for(sandbox: Sandbox) -> None:
    queue = ApprovalQueue()
    run = await run_with(sandbox, tools=[echo_tool()], hooks=HOOKS, approvals=queue)
    suspended, results = Recorded(run, "cell.suspended"), list[Any]()

    async def start() -> None:
        code = "return await Promise.all([1, 2].map((n) => openclaw.tools.call('echo', {n})))"
        results.append(await program(run, code))

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(start)
            await suspended.wait()
            for request in queue.pending:
                queue.answer(request.id, AllowOnce())
    assert value_of(results[0]) == [{"n": 1}, {"n": 2}]


async def test_more_questions_than_calls_at_once_are_all_waited_for(sandbox: Sandbox) -> None:
    queue = ApprovalQueue()
    run = await run_with(sandbox, tools=[echo_tool()], hooks=HOOKS, approvals=queue)
    suspended, results = Recorded(run, "cell.suspended"), list[Any]()

    async def start() -> None:
        code = (
            "const calls = Array.from({length: 20}, (_, n) => openclaw.tools.call('echo', {n}));"
            "return (await Promise.all(calls)).length"
        )
        results.append(await program(run, code))

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(start)
            await suspended.wait()
            for _ in range(20):
                while not queue.pending:
                    await queue.wait_for_change()
                queue.answer(queue.pending[0].id, AllowOnce())
    assert value_of(results[0]) == 20


async def test_an_abort_ends_a_program_that_waits_for_a_person(sandbox: Sandbox) -> None:
    queue = ApprovalQueue()
    run = await run_with(sandbox, tools=[echo_tool()], hooks=HOOKS, approvals=queue)
    suspended, results = Recorded(run, "cell.suspended"), list[Any]()

    async def start() -> None:
        results.append(await program(run, "return await openclaw.tools.call('echo', {})"))

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(start)
            await suspended.wait()
            await run.abort("the session ended")
        while queue.pending:
            await queue.wait_for_change()
    assert reason_of(results[0]) == "aborted"


@requirement("tool-search:killed-on-timeout")
async def test_a_program_that_goes_on_after_a_person_has_no_more_time_than_it_had(
    sandbox: Sandbox,
) -> None:
    queue, held = ApprovalQueue(), HeldTool()
    run = await run_with(
        sandbox, tools=[echo_tool(), held.tool], hooks=HOOKS, approvals=queue, config=SHORT
    )
    suspended, results = Recorded(run, "cell.suspended"), list[Any]()

    async def start() -> None:
        code = """
            await openclaw.tools.call('echo', {});
            console.log('asked');
            return await openclaw.tools.call('held', {});
        """
        results.append(await program(run, code))

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(start)
            await suspended.wait()
            queue.answer(queue.pending[0].id, AllowOnce())
    failed = failure_of(results[0])
    assert (failed.code, failed.to_json()["unfinishedCalls"]) == ("timeout", ["held"])
    assert failed.to_json()["output"] == [{"type": "text", "text": "asked"}]


@requirement("tool-search:killed-on-timeout")
async def test_a_program_cannot_work_without_end_while_a_person_thinks(sandbox: Sandbox) -> None:
    queue = ApprovalQueue()
    run = await run_with(sandbox, tools=[echo_tool()], hooks=HOOKS, approvals=queue, config=SHORT)
    code = """
        const call = openclaw.tools.call('echo', {});
        const burn = () => {
          for (const end = Date.now() + 100; Date.now() < end;);
          setTimeout(burn, 1);
        };
        burn();
        return await call;
    """
    with anyio.fail_after(30):
        assert failure_of(await program(run, code)).code == "timeout"
        while queue.pending:
            await queue.wait_for_change()


async def test_calls_that_a_program_does_not_await_finish_before_its_result(
    sandbox: Sandbox,
) -> None:
    run = await run_with(sandbox, tools=[echo_tool()])
    code = "openclaw.tools.call('echo', {}).then(() => console.log('echoed')); return 'done'"
    assert (await program(run, code)).to_json() == {
        "status": "completed",
        "value": "done",
        "output": [{"type": "text", "text": "echoed"}],
    }


async def test_calls_that_nobody_awaits_are_named_if_they_do_not_finish_in_time(
    sandbox: Sandbox,
) -> None:
    held = HeldTool()
    run = await run_with(sandbox, tools=[held.tool], config=SHORT)
    result = await program(run, "openclaw.tools.call('held', {}); return 'done'", "call_1")
    assert result.to_json() == {
        "status": "completed",
        "value": "done",
        "unfinishedCalls": ["held"],
    }
    (ended,) = [event for event in run.trajectory.events if event.kind == "cell.ended"]
    assert ended.data["abortedCalls"] == ["held"]
    with anyio.fail_after(30):
        while not held.cancelled:
            await anyio.lowlevel.checkpoint()


async def test_an_abort_ends_a_program_at_once(sandbox: Sandbox) -> None:
    held = HeldTool()
    run = await run_with(sandbox, tools=[held.tool])
    results: list[Any] = []

    async def start() -> None:
        results.append(await program(run, "console.log(1); await openclaw.tools.call('held')"))

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(start)
            await held.wait_for_calls()
            await run.abort("the session ended")
    failed = failure_of(results[0])
    assert (failed.error, reason_of(failed)) == ("the session ended", "aborted")
    assert failed.to_json()["output"] == [{"type": "text", "text": "1"}]
    assert events_of(run, "cell.ended")[0].data["status"] == "aborted"
    again = failure_of(await program(run, "return 1"))
    assert (again.error, again.code) == ("the session ended", "aborted")


async def test_a_cancelled_caller_leaves_no_program_behind(sandbox: Sandbox) -> None:
    held = HeldTool()
    run = await run_with(sandbox, tools=[held.tool])
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(program, run, "await openclaw.tools.call('held')", "call_1")
            await held.wait_for_calls()
            tasks.cancel_scope.cancel()
    ended = events_of(run, "cell.ended")[0].data
    assert (ended["status"], ended["reason"]) == ("aborted", "the caller was cancelled")
    with anyio.fail_after(30):
        while not held.cancelled:
            await anyio.lowlevel.checkpoint()


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("return (", "syntax_error"),
        ("throw new Error('no')", "guest_error"),
        ("return 'x'.repeat(100000)", "output_limit_exceeded"),
        ("await openclaw.tools.call('nothing', {})", "nested_tool_failed"),
    ],
)
async def test_a_program_that_goes_wrong_says_how(sandbox: Sandbox, code: str, reason: str) -> None:
    run = await run_with(sandbox, tools=[echo_tool()])
    assert reason_of(await program(run, code)) == reason


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "takes a JavaScript program as `code`"),
        ({"code": 5}, "takes a JavaScript program as `code`"),
        ({"code": " \n"}, "takes a JavaScript program as `code`"),
        ({"code": "```js\nreturn 1\n```"}, "the code is fenced as Markdown"),
        ("{", "the arguments are not JSON"),
        ([], "the arguments are an array; they have to be an object"),
    ],
)
async def test_what_is_no_program_is_refused(sandbox: Sandbox, given: Any, message: str) -> None:
    run = await run_with(sandbox, tools=[echo_tool()])
    failed = failure_of(await run.call("tool_search_code", given))
    assert failed.code == "invalid_input"
    assert message in failed.error


async def test_forged_requests_reach_nothing(sandbox: Sandbox) -> None:
    called: list[Any] = []

    async def note(input: dict[str, Any], call: ToolCall) -> object:
        called.append(input)
        return None

    run = await run_with(sandbox, tools=[echo_tool("note", execute=note, parameters=ANY_OBJECT)])
    # What a program does to the objects it was given, it does to itself.
    result = await program(
        run,
        """
        openclaw.tools.call = () => 'forged';
        openclaw.tools.steal = openclaw.tools.describe;
        return [openclaw.tools.call('note', {}), (await openclaw.tools.steal('note')).id];
        """,
    )
    assert value_of(result) == ["forged", "openclaw:core:note"]
    assert called == []


async def bridge(*tools: Tool) -> CodeBridge:
    run = await run_with(tools=tools or [echo_tool()], config={"mode": "tools"})
    run_tools: RunTools = run._tools  # pyright: ignore[reportPrivateUsage]
    return CodeBridge(CatalogAccess(run_tools), clock=ProgramClock(5), call_id="c", span=Span())


def request(payload: Any) -> HostRequest:
    return HostRequest(id=1, method="namespace", payload=payload, cell_id=CellId("r"))


@pytest.mark.parametrize(
    "payload",
    [
        None,
        [],
        {},
        {"namespace": "openclaw"},
        {"namespace": "openclaw", "path": "tools.search", "args": ["echo"]},
        {"namespace": "openclaw", "path": ["tools"], "args": ["echo"]},
        {"namespace": "openclaw", "path": ["tools", "search", "x"], "args": ["echo"]},
        {"namespace": "openclaw", "path": ["tools", ["search"]], "args": ["echo"]},
        {"namespace": "openclaw", "path": ["tools", "__proto__"], "args": ["echo"]},
        {"namespace": "other", "path": ["tools", "search"], "args": ["echo"]},
    ],
)
async def test_a_path_that_there_is_not_is_refused(payload: Any) -> None:
    with pytest.raises(HostRequestError, match=r"openclaw\.tools has search, describe and call"):
        await (await bridge())(request(payload))


@pytest.mark.parametrize("args", [None, {}, "echo", [], [None], [["echo"]], [{"id": "echo"}]])
@pytest.mark.parametrize("function", ["search", "describe", "call"])
async def test_arguments_that_are_none_are_refused(function: str, args: Any) -> None:
    payload = {"namespace": "openclaw", "path": ["tools", function], "args": args}
    with pytest.raises(HostRequestError, match=f"openclaw.tools.{function}: a ") as refusal:
        await (await bridge())(request(payload))
    assert refusal.value.name == "TypeError"


async def test_a_call_that_is_cancelled_stays_unfinished_and_is_shown_in_few_words() -> None:
    held = HeldTool("held")
    opened = await bridge(held.tool)

    async def call(tool_id: str) -> None:
        payload = {"namespace": "openclaw", "path": ["tools", "call"], "args": [tool_id]}
        await opened(request(payload))

    with pytest.raises(HostRequestError):
        await call("x" * 500)
    assert opened.unfinished == []
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call, "held")
            await held.wait_for_calls()
            tasks.cancel_scope.cancel()
    assert opened.unfinished == ["held"]


class Time:
    """Stands still until a test moves it."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    time = Time()
    monkeypatch.setattr("anyio.current_time", time)
    return time


async def test_it_runs_from_the_first_request_on(time: Time) -> None:
    clock = ProgramClock(10)
    assert clock.scope.deadline == math.inf
    clock.start()
    time.now += 3
    clock.start()
    assert clock.scope.deadline == 110


async def test_it_stands_still_while_anybody_is_asked(time: Time) -> None:
    clock = ProgramClock(10)
    clock.start()
    time.now += 4
    with clock.pause(nullcontext):
        time.now += 1_000
        with clock.pause(nullcontext):
            time.now += 1_000
        assert clock.scope.deadline == math.inf
    assert clock.scope.deadline == time.now + 6


async def test_it_goes_on_when_asking_fails(time: Time) -> None:
    clock = ProgramClock(10)
    clock.start()
    with pytest.raises(KeyError), clock.pause(nullcontext):
        time.now += 50
        raise KeyError
    assert clock.scope.deadline == time.now + 10
