"""A Codex model finds and calls Nacre's tools, in the real app-server."""

from typing import Any

import anyio

from nacre.agent import ClientTool
from nacre.hooks import BeforeToolCall, Block
from nacre.testing import Call, RecordingTool, Say, ScriptedProvider, Stall
from nacre.testing.script import PlainTurn, RecordedRequest
from nacre.tools import AllowOnce
from nacre.tools.definition import ListedServer
from tests.agent.agent_setup import event_of
from tests.agent.conftest import OpenAgent
from tests.agent.tools import HeldTool
from tests.codex_harness.codex_setup import skip_old_codex
from tests.contract.requirements import requirement

PNG = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJg"
    "gg=="
)


def outputs_of(request: RecordedRequest) -> dict[str, Any]:
    """The outputs of the calls so far, by call id."""
    items: Any = request.body["input"]
    return {item["call_id"]: item["output"] for item in items if "output" in item}


@requirement("codex:dynamic-tools-searchable", "codex:dynamic-tool-hooks")
async def test_a_model_finds_tools_with_its_search_and_calls_them(
    open_codex: OpenAgent,
) -> None:
    picture = {
        "content": [
            {"type": "text", "text": "a chart"},
            {"type": "image", "data": PNG, "mimeType": "image/png"},
        ]
    }
    echo, secret = RecordingTool("echo", "hello"), RecordingTool("secret")
    guarded = RecordingTool("guarded", "paid", needs_approval="it costs money")
    denied, message = RecordingTool("denied"), RecordingTool("message", "sent")
    draw = RecordingTool("draw", picture, owner="docs", source="mcp")

    async def before(event: BeforeToolCall) -> object:
        return Block("not today") if event.tool_name == "secret" else None

    def call(name: str) -> Call:
        return Call(name, {"n": 1}, f"c_{name}", namespace="openclaw")

    names = ("echo", "docs__draw", "secret", "guarded", "pick", "denied")
    script = [
        Call(
            "tool_search", {"query": " ".join(names), "limit": 20}, "c_search", kind="tool_search"
        ),
        [call(name) for name in names],
        Call("message", {"text": "hi"}, "c_message"),
        Say("done"),
    ]
    tools = [each.tool for each in (echo, secret, guarded, denied, message)]
    async with ScriptedProvider(script) as model:
        async with open_codex(
            model.openai_url,
            tools=tools,
            servers=[ListedServer("docs", [draw.tool])],
            hooks=[("before_tool_call", before)],
            document={
                "tools": {"deny": ["denied"]},
                "messages": {"visibleReplies": "message_tool"},
            },
        ) as setup:
            run = await setup.start(client_tools=[ClientTool(name="pick", description="A tool.")])
            await event_of(run, "approval.requested")
            setup.approvals.answer(setup.approvals.pending[0].id, AllowOnce())
            await event_of(run, "client_call.requested")
            run.deliver("c_pick", "picked")
            with anyio.fail_after(60):
                await run.wait()
        first, second, *_, last = model.requests
        assert "message" in first.tool_names
        assert not {"echo", "openclaw.echo", "exec", "read"} & set(first.tool_names)
        found = second.tool_results[0]
        for name in names[:-1]:
            assert f'"name":"{name}"' in found
        assert '"denied"' not in found
        outputs = outputs_of(last)
    assert (outputs["c_echo"], echo.inputs) == ("hello", [{"n": 1}])
    assert (outputs["c_secret"], secret.inputs) == ("not today", [])
    assert (outputs["c_guarded"], guarded.inputs) == ("paid", [{"n": 1}])
    assert outputs["c_pick"] == "picked"
    assert "denied" in outputs["c_denied"]
    assert denied.inputs == []
    assert (outputs["c_message"], message.inputs) == ("sent", [{"text": "hi"}])
    text, image = outputs["c_docs__draw"]
    assert text["text"] == "a chart\n[image image/png, 70 bytes]"
    assert image["image_url"] == f"data:image/png;base64,{PNG}"
    assert run.state == "completed"


@requirement("codex:dynamic-tools-searchable")
@skip_old_codex("has no code mode")
async def test_programs_of_newer_models_call_tools(
    open_codex: OpenAgent,
) -> None:
    program = """
        const names = ALL_TOOLS.map((tool) => tool.name);
        const { openclaw__echo: echo, openclaw__echo_now: now } = tools;
        const both = await Promise.all([echo({ n: 1 }), now({ n: 2 })]);
        text(JSON.stringify([names.includes("openclaw__echo"), both]));
    """
    script = [Call("exec", program, "c1", kind="custom", namespace="functions"), Say("done")]
    echo, now = RecordingTool("echo", {"said": "hello"}), RecordingTool("echo_now", "now")
    async with ScriptedProvider(script) as model:
        async with open_codex(
            model.openai_url, model="mock/gpt-6.1-sol", tools=[echo.tool, now.tool]
        ) as setup:
            await setup.turn()
        output = outputs_of(model.requests[-1])["c1"]
    assert output[-1]["text"] == '[true,["{\\"said\\":\\"hello\\"}","now"]]'
    assert (echo.inputs, now.inputs) == ([{"n": 1}], [{"n": 2}])


@requirement("codex:large-catalogue", "codex:results-are-not-chat")
async def test_a_large_catalogue_keeps_its_thread_and_its_results_out_of_the_chat(
    open_codex: OpenAgent,
) -> None:
    tools = [RecordingTool(f"tool_{number}", f"result-{number}") for number in range(600)]
    script = [Call("tool_555", {"n": 1}, namespace="openclaw"), Say("done"), Say("again")]
    async with ScriptedProvider(script) as model:
        async with open_codex(model.openai_url, tools=[it.tool for it in tools]) as setup:
            run = await setup.turn(session_key="main")
            before = await setup.store.thread(run.session_id)
            await setup.turn(session_key="main")
            after = await setup.store.thread(run.session_id)
            stored = [it.message for it in await setup.store.messages(run.session_id)]
        assert "result-555" in model.requests[-1].tool_results
        # The model has a search instead of 600 definitions.
        assert len(model.requests[0].tool_names) < 50
    assert run.result is not None
    assert (run.result.error, run.result.text) == ("", "done")
    assert before is not None
    assert after is not None
    assert before.thread_id == after.thread_id
    assert "result-555" not in str(stored)
    shown = [event.data for event in run.events.events if event.kind == "text.delta"]
    assert "".join(str(data["text"]) for data in shown) == "done"


@requirement("codex:dynamic-tools-searchable")
async def test_a_model_without_a_search_sees_all_tools(
    open_codex: OpenAgent,
) -> None:
    echo = RecordingTool("echo", "hello")
    async with ScriptedProvider([Call("echo", call_id="c1"), Say("done")]) as model:
        async with open_codex(
            model.openai_url, model="mock/gpt-unheard-of", tools=[echo.tool]
        ) as setup:
            await setup.turn()
        first, last = model.requests
        assert "echo" in first.tool_names
        assert "tool_search" not in first.tool_names
        assert outputs_of(last)["c1"] == "hello"


@requirement("codex:dynamic-tools-registered")
async def test_a_session_keeps_its_thread_without_tools_and_in_a_turn_without_them(
    open_codex: OpenAgent,
) -> None:
    echo = RecordingTool("echo")
    usual: dict[str, Any] = {"session_key": "main"}
    plain: dict[str, Any] = {**usual, "tools_disabled": True}
    lone: dict[str, Any] = {"session_key": "lone", "tools_disabled": True}
    async with (
        ScriptedProvider(lambda _request: Say("done")) as model,
        open_codex(model.openai_url, tools=[echo.tool]) as setup,
    ):
        threads: list[list[str]] = []
        for turns in ([usual, plain, usual], [lone, lone]):
            found: list[str] = []
            for options in turns:
                run = await setup.turn(**options)
                record = await setup.store.thread(run.session_id)
                assert record is not None
                found.append(record.thread_id)
            threads.append(found)
        users = [
            it.text.rpartition("\n")[2] for it in model.requests[-1].messages if it.role == "user"
        ]
    assert [len(set(found)) for found in threads] == [1, 1]
    assert users.count("hello") == 2


def delegate(request: RecordedRequest, *child: PlainTurn) -> PlainTurn:
    """Start an agent and wait for it; the agent itself says `child`, one after the other."""
    items: Any = request.body["input"]
    tasks = [
        number
        for number, item in enumerate(items)
        if "SUBTASK" in str(item) and item.get("name") != "spawn_agent"
    ]
    # Newer versions give an agent the history of its parent, too.
    own = items[tasks[-1] :] if tasks else items
    calls = [item.get("name") for item in own if "call_id" in item and "name" in item]
    if tasks:
        return child[len(calls)]
    if "wait_agent" in calls:
        return Say("done")
    group = "collaboration"
    if "spawn_agent" in calls:
        return Call("wait_agent", {"timeout_ms": 60_000}, namespace=group)
    return Call("spawn_agent", {"message": "SUBTASK", "task_name": "sub"}, namespace=group)


@requirement("codex:started-agents")
@skip_old_codex("has other tools to start agents")
async def test_an_agent_that_codex_starts_calls_tools_and_asks_people(
    open_codex: OpenAgent,
) -> None:
    program = 'text(await tools.openclaw__pay({ text: "child" }));'
    child = (Call("exec", program, kind="custom", namespace="functions"), Say("child done"))
    pay = RecordingTool("pay", "paid", needs_approval="it costs money")
    async with ScriptedProvider(lambda request: delegate(request, *child)) as model:
        async with open_codex(
            model.openai_url, model="mock/gpt-6.1-sol", tools=[pay.tool]
        ) as setup:
            run = await setup.start("hello")
            await event_of(run, "approval.requested")
            setup.approvals.answer(setup.approvals.pending[0].id, AllowOnce())
            with anyio.fail_after(60):
                result = await run.wait()
        outputs = [text for request in model.requests for text in request.tool_results]
    assert (result.error, result.text) == ("", "done")
    assert pay.inputs == [{"text": "child"}]
    assert any("paid" in output for output in outputs)


@requirement("codex:abort")
async def test_an_abort_ends_a_running_call_and_the_thread_goes_on(open_codex: OpenAgent) -> None:
    held = HeldTool()
    script = [Call("held", {"text": "x"}, "c_held"), Say("Again.")]
    async with (
        ScriptedProvider(script) as model,
        open_codex(
            model.openai_url, codex={"codexDynamicToolsLoading": "direct"}, tools=[held.tool]
        ) as setup,
    ):
        run = await setup.start(session_key="main")
        with anyio.fail_after(60):
            await held.started.wait()
            before = await setup.store.thread(run.session_id)
            assert await run.abort("enough")
        assert run.result is not None
        assert (run.state, run.result.error) == ("aborted", "enough")
        assert held.was_cancelled
        (ended,) = [event.data for event in run.events.events if event.kind == "call.ended"]
        assert (ended["toolCallId"], ended["errorCode"]) == ("c_held", "aborted")
        again = await setup.turn(session_key="main")
        assert again.result is not None
        assert (again.result.error, again.result.text) == ("", "Again.")
        after = await setup.store.thread(run.session_id)
    assert before is not None
    assert after is not None
    assert after.thread_id == before.thread_id
    assert held.call_count == 1


@requirement("codex:started-agents")
@skip_old_codex("has other tools to start agents")
async def test_an_abort_ends_the_agents_that_codex_has_started(open_codex: OpenAgent) -> None:
    is_asked = anyio.Event()

    def answer(request: RecordedRequest) -> PlainTurn:
        turn = delegate(request, [Say("I begin "), Stall()])
        if isinstance(turn, list):
            is_asked.set()
        return turn

    async with (
        ScriptedProvider(answer) as model,
        open_codex(model.openai_url, model="mock/gpt-6.1-sol") as setup,
    ):
        run = await setup.start("hello")
        with anyio.fail_after(60):
            await is_asked.wait()
        assert await run.abort("enough")
        with anyio.fail_after(60):
            outcomes = [await request.wait_until_over() for request in model.requests]
    assert "abandoned" in outcomes
