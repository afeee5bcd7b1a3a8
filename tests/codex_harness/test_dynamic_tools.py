"""Nacre's tools in a Codex turn: what Codex is told of them, and how their calls run."""

import asyncio
import base64
from dataclasses import replace
from typing import Any, cast

import anyio
import pytest

from nacre.agent import ClientTool
from nacre.codex_harness import dynamic_tools
from nacre.codex_harness.dynamic_tools import DynamicTools
from nacre.codex_harness.tool_specs import assign_codex_names
from nacre.errors import ToolServerError
from nacre.hooks import AfterToolCall, BeforeToolCall, Block, ChangeInput, ChangeResult
from nacre.json_types import JsonObject
from nacre.testing import HeldTool, RecordingTool
from nacre.tools import AllowOnce, Tool, ToolCall
from nacre.tools.definition import ListedServer
from tests.agent.agent_setup import event_of, events_of
from tests.agent.conftest import OpenAgent
from tests.codex_harness.tool_turns import ToolTurns, call_params, names_in, text_of
from tests.contract.requirements import requirement

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(8)).decode()


def make(name: str, result: object = "ok", **fields: Any) -> Tool:
    return RecordingTool(name, result, **fields).tool


class BrokenServer:
    """A server that does not start."""

    name = "docs"
    description = ""
    known_tools = None

    async def tools(self) -> list[Tool]:
        raise ToolServerError("docs does not start", server="docs")


@requirement("codex:dynamic-tools-searchable")
async def test_tools_of_all_sources_are_searchable_without_duplicates_of_native_tools(
    open_service: OpenAgent,
) -> None:
    natives = ("read", "write", "edit", "apply_patch", "exec", "process", "update_plan")
    controls = ("wait", "tool_search", "tool_search_code", "tool_describe", "tool_call")
    tools = [
        *(make(name) for name in (*natives, *controls, "message", "list", "web_fetch", "denied")),
        make("read", owner="reader"),
    ]
    server = ListedServer("docs", [make("find", owner="docs", source="mcp")])
    harness = ToolTurns(exclude=("WEB_FETCH",))
    seen: list[DynamicTools] = []
    harness.act = lambda tools: _append(seen, tools)
    document = {"tools": {"deny": ["denied"]}}
    async with open_service(
        harness=harness, tools=tools, servers=[server], document=document
    ) as setup:
        await setup.turn(client_tools=[ClientTool(name="pick")])
        expected = ["docs__find", "list", "message", "pick", "read"]
        assert names_in(seen[0].specs()) == ([], expected)
        assert seen[0].deferred_names == expected
        harness.options = replace(harness.options, direct_names=frozenset({"message"}))
        await setup.turn()
        assert names_in(seen[1].specs()) == (["message"], ["docs__find", "list", "read"])
        for options in (
            replace(harness.options, loading="direct"),
            replace(harness.options, has_tool_search=False),
        ):
            harness.options = options
            await setup.turn()
            assert names_in(seen[-1].specs()) == (["docs__find", "list", "message", "read"], [])
            assert seen[-1].deferred_names == []
        harness.options = replace(harness.options, has_native_tools=False)
        await setup.turn()
        assert {"read", "write", "process"} <= set(seen[-1].available_names)
        await setup.turn(tools_disabled=True)
        assert seen[-1].specs() == []


async def _append(seen: list[DynamicTools], tools: DynamicTools) -> None:
    seen.append(tools)


async def test_old_versions_get_the_flat_form(open_service: OpenAgent) -> None:
    harness = ToolTurns(version=(0, 136, 0), direct_names=frozenset({"message"}))
    seen: list[DynamicTools] = []
    harness.act = lambda tools: _append(seen, tools)
    async with open_service(harness=harness, tools=[make("message"), make("list")]) as setup:
        await setup.turn()
    common = {"description": "", "inputSchema": {"type": "object"}}
    assert seen[0].specs() == [
        {"name": "list", **common, "namespace": "openclaw", "deferLoading": True},
        {"name": "message", **common},
    ]


def test_names_are_unique_and_accepted_by_codex() -> None:
    tools = [
        make("mcp"),
        make("mcp__x", owner="plugin"),
        make("exec_command", owner="plugin"),
        make("a.b", owner="plugin"),
        make("echo"),
        make("echo", owner="plugin"),
        make("echo", owner="client", source="client"),
        make("echo", owner="docs", source="mcp"),
        make("x", owner="mcp", source="mcp"),
        make("y" * 200, owner="docs", source="mcp"),
    ]
    names = {tool.id: name for name, tool in assign_codex_names(tools).items()}
    assert len(names) == len(tools)
    assert names == {t.id: n for n, t in assign_codex_names(reversed(tools)).items()}
    for name in names.values():
        assert len(name) <= 128
        assert name.replace("-", "_").replace("_", "a").isalnum()
        assert not name.startswith("mcp")
    assert names["openclaw:core:echo"] == "echo"
    assert names["mcp:docs:echo"] == "docs__echo"
    assert names["openclaw:core:mcp"] == "core__mcp"
    assert names["openclaw:plugin:exec_command"] == "plugin__exec_command"


UNUSABLE: dict[str, JsonObject] = {
    "properties": {"type": "object", "properties": {"x": 5}},
    "list": {"type": "object", "properties": []},
    "required": {"type": "object", "required": "x"},
    "names": {"type": "object", "properties": {"x": {"required": [1]}}},
    "items": {"type": "object", "properties": {"x": {"items": 5}}},
    "any": {"type": "object", "properties": {"x": {"anyOf": {}}}},
    "one": {"type": "object", "oneOf": [5]},
    "enum": {"type": "object", "properties": {"x": {"enum": "x"}}},
    "more": {"type": "object", "additionalProperties": 5},
    "ref": {"type": "object", "properties": {"x": {"$ref": 5}}},
}


def nest(levels: int) -> JsonObject:
    schema: JsonObject = {"type": "object"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"x": schema}}
    return schema


@requirement("codex:dynamic-tools-bad-schema")
async def test_an_unusable_schema_costs_its_tool_only(open_service: OpenAgent) -> None:
    schemas = {**UNUSABLE, "deep": nest(60)}
    tools = [make(name, parameters=schema, owner="odd") for name, schema in schemas.items()]
    old_tuple: JsonObject = {
        "type": "object",
        "properties": {"at": {"type": "array", "items": [{"type": "number"}]}},
    }
    harness = ToolTurns()
    seen: list[DynamicTools] = []
    harness.act = lambda tools: _append(seen, tools)
    good = [make("good"), make("tuple", parameters=old_tuple), make("fair", parameters=nest(40))]
    async with open_service(harness=harness, tools=[*tools, *good]) as setup:
        run = await setup.turn()
    assert seen[0].available_names == ["fair", "good", "tuple"]
    problems = {event.data["toolId"]: event.data for event in events_of(run, "tool.unavailable")}
    assert set(problems) == {f"openclaw:odd:{name}" for name in schemas}
    assert problems["openclaw:odd:required"]["problem"] == (
        'its input schema cannot be used: required is no array, but "x"'
    )
    sent: Any = {spec["name"]: spec for spec in cast("Any", seen[0].specs()[0]["tools"])}
    assert sent["tuple"]["inputSchema"]["properties"] == {
        "at": {"type": "array", "items": {"anyOf": [{"type": "number"}]}}
    }
    assert seen[0].drop_refused("dynamic tool input schema is not supported for good: null")
    assert not seen[0].drop_refused("the model is not known")
    assert seen[0].available_names == ["fair", "tuple"]


@requirement("codex:dynamic-tools-registered")
async def test_a_thread_can_be_resumed_while_it_has_all_tools_of_the_turn(
    open_service: OpenAgent,
) -> None:
    schema: JsonObject = {"type": "object", "properties": {"a": {}, "b": {}}}
    turned: JsonObject = {"properties": {"b": {}, "a": {}}, "type": "object"}
    changed: JsonObject = {"type": "object", "properties": {"a": {}}}
    server = ListedServer("docs", [make("find", owner="docs", source="mcp")])
    heartbeat = make("heartbeat_respond")
    harness = ToolTurns(later_tools=[heartbeat])
    results: list[tuple[str, bool]] = []

    async def note(tools: DynamicTools) -> None:
        results.append((tools.fingerprint, tools.can_resume))

    harness.act = note

    async def resume(tools: list[Tool], servers: list[Any], fingerprint: str, **ask: Any) -> bool:
        harness.options = replace(harness.options, thread_fingerprint=fingerprint)
        async with open_service(harness=harness, tools=tools, servers=servers) as setup:
            await setup.turn(**ask)
        return results[-1][1]

    pick = ClientTool(name="pick")
    echo = make("echo", parameters=schema, description="Old text")
    first = [echo, make("list")]
    await resume(first, [server], "", client_tools=[pick])
    fingerprint = results[-1][0]
    same = [make("list"), make("echo", parameters=turned, description="New text")]
    assert await resume(same, [server], fingerprint, client_tools=[pick])
    assert results[-1][0] == fingerprint
    assert await resume([*first, heartbeat], [server], fingerprint, client_tools=[pick])
    assert await resume(first, [server], fingerprint)
    assert await resume(first, [BrokenServer()], fingerprint)
    assert await resume(first, [], "")
    assert not await resume(first, [], fingerprint)
    assert not await resume(first[:1], [server], fingerprint)
    assert not await resume([*first, make("new")], [server], fingerprint)
    others = [make("echo", parameters=changed), make("list")]
    assert not await resume(others, [server], fingerprint)
    harness.options = replace(harness.options, loading="direct")
    assert not await resume(first, [server], fingerprint)


@requirement("codex:dynamic-tools-failures")
async def test_unknown_and_unavailable_tools_fail_with_different_texts(
    open_service: OpenAgent,
) -> None:
    server = ListedServer("docs", [make("find", owner="docs", source="mcp")])
    harness = ToolTurns(later_tools=[make("heartbeat_respond")])
    fingerprints: list[str] = []
    answers: list[JsonObject] = []

    async def note(tools: DynamicTools) -> None:
        fingerprints.append(tools.fingerprint)

    async def ask(tools: DynamicTools) -> None:
        asked = ("nothing", "heartbeat_respond", "docs__find")
        answers.extend([await tools.call(call_params(name)) for name in asked])

    harness.act = note
    async with open_service(harness=harness, tools=[make("echo")], servers=[server]) as setup:
        await setup.turn()
    harness.act = ask
    harness.options = replace(harness.options, thread_fingerprint=fingerprints[0])
    async with open_service(
        harness=harness, tools=[make("echo")], servers=[BrokenServer()]
    ) as setup:
        await setup.turn()
    assert not any(answer["success"] for answer in answers)
    assert [text_of(answer) for answer in answers] == [
        "there is no tool 'nothing'; there are: echo",
        "the tool heartbeat_respond is not available in this turn; continue without it",
        "the tool docs__find is not available in this turn: its server does not answer",
    ]


@requirement("codex:dynamic-tool-hooks")
async def test_calls_run_on_the_call_path_of_all_tools(open_service: OpenAgent) -> None:
    async def before(event: BeforeToolCall) -> object:
        if event.tool_name == "secret":
            return Block("not today")
        return ChangeInput({"text": "changed"}) if event.tool_name == "echo" else None

    async def after(event: AfterToolCall) -> object:
        return ChangeResult("filtered") if event.tool_name == "echo" else None

    echo, secret = RecordingTool("echo", "raw"), RecordingTool("secret")
    strict = RecordingTool(
        "strict", parameters={"type": "object", "properties": {"n": {"type": "integer"}}}
    )
    guarded = RecordingTool("guarded", "done", needs_approval="it costs money")
    broken = RecordingTool("broken", ValueError("no paper left"))
    harness = ToolTurns()
    answers: dict[str, JsonObject] = {}

    async def act(tools: DynamicTools) -> None:
        for name in ("echo", "secret", "guarded", "broken"):
            answers[name] = await tools.call(call_params(name, call_id=f"c_{name}"))
        answers["strict"] = await tools.call(call_params("strict", {"n": "x"}))

    harness.act = act
    recorders = [echo, secret, strict, guarded, broken]
    async with open_service(
        harness=harness,
        tools=[each.tool for each in recorders],
        hooks=[("before_tool_call", before), ("after_tool_call", after)],
    ) as setup:
        run = await setup.start()
        await event_of(run, "approval.requested")
        with anyio.fail_after(30):
            await run.waiting_or_ended()
        assert run.state == "waiting"
        (asked,) = setup.approvals.pending
        setup.approvals.answer(asked.id, AllowOnce())
        result = await run.wait()
    assert result.error == ""
    assert (text_of(answers["echo"]), echo.inputs) == ("filtered", [{"text": "changed"}])
    assert (text_of(answers["secret"]), secret.inputs) == ("not today", [])
    assert (text_of(answers["guarded"]), len(guarded.inputs)) == ("done", 1)
    assert text_of(answers["broken"]) == "no paper left"
    assert answers["strict"]["success"] is False
    assert strict.inputs == []
    ended = {
        event.data["toolCallId"]: event.data["outcome"] for event in events_of(run, "call.ended")
    }
    assert ended["c_echo"] == "completed"
    assert ended["c_secret"] == "failed"


@requirement("codex:dynamic-tool-results")
async def test_results_are_text_and_images_and_long_text_is_cut(open_service: OpenAgent) -> None:
    picture: JsonObject = {
        "content": [
            {"type": "text", "text": "a chart"},
            {"type": "image", "data": PNG, "mimeType": "image/png"},
        ]
    }
    server = ListedServer("docs", [make("draw", picture, owner="docs", source="mcp")])
    harness = ToolTurns()
    answers: list[JsonObject] = []

    async def act(tools: DynamicTools) -> None:
        answers.append(await tools.call(call_params("docs__draw", call_id="c1")))
        answers.append(await tools.call(call_params("long", call_id="c2")))

    harness.act = act
    async with open_service(
        harness=harness, tools=[make("long", "x" * 20_000)], servers=[server]
    ) as setup:
        await setup.turn()
    drawn, long = answers
    assert drawn == {
        "contentItems": [
            {"type": "inputText", "text": "a chart\n[image image/png, 16 bytes]"},
            {"type": "inputImage", "imageUrl": f"data:image/png;base64,{PNG}"},
        ],
        "success": True,
    }
    assert len(text_of(long)) == 16_000
    assert text_of(long).endswith(
        "[cut: the whole result has 20000 characters; ask for less at a time]"
    )


@requirement("codex:dynamic-tool-once")
async def test_the_same_call_twice_is_executed_once(open_service: OpenAgent) -> None:
    held = HeldTool()
    harness = ToolTurns()
    answers: list[JsonObject] = []

    async def act(tools: DynamicTools) -> None:
        async def call() -> None:
            answers.append(await tools.call(call_params("held", {"n": 1})))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            tasks.start_soon(call)
            await held.wait_for_calls()
            held.answer("done")
        answers.append(await tools.call(call_params("held", {"n": 1})))
        answers.append(await tools.call(call_params("held", {"n": 2})))

    harness.act = act
    async with open_service(harness=harness, tools=[held.tool]) as setup:
        await setup.turn()
    assert [text_of(answer) for answer in answers] == ["done"] * 4
    assert held.inputs == [{"n": 1}, {"n": 2}]


@requirement("codex:dynamic-tool-timeouts")
async def test_a_call_that_takes_too_long_fails_and_the_turn_goes_on(
    open_service: OpenAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dynamic_tools, "_ABORT_SECONDS", 0.5)
    monkeypatch.setattr(dynamic_tools, "_SECONDS_TO_END", 0)
    held, stubborn = HeldTool("held"), Stubborn()
    harness = ToolTurns()
    answers: list[JsonObject] = []

    async def act(tools: DynamicTools) -> None:
        for name in ("held", "stubborn"):
            params = call_params(name, {"timeoutMs": 500}, call_id=f"c_{name}")
            answers.append(await tools.call(params))
        answers.append(await tools.call(call_params("echo", call_id="c_echo")))
        stubborn.release.set()

    harness.act = act
    tools = [held.tool, stubborn.tool, make("echo", "still here")]
    async with open_service(harness=harness, tools=tools) as setup:
        run = await setup.turn()
    assert run.state == "completed"
    assert held.cancelled == ["c_held"]
    assert stubborn.was_aborted
    assert [text_of(answer) for answer in answers] == [
        "held took longer than 0.5 seconds",
        "stubborn took longer than 0.5 seconds; it was aborted and has not ended",
        "still here",
    ]
    assert [answer["success"] for answer in answers] == [False, False, True]


class Stubborn:
    """A tool that goes on when it is aborted."""

    def __init__(self) -> None:
        self.release = anyio.Event()
        self.was_aborted = False
        self.tool = Tool(name="stubborn", execute=self._execute)

    async def _execute(self, given: dict[str, Any], call: ToolCall) -> object:
        with anyio.CancelScope(shield=True):
            await call.abort.wait()
            self.was_aborted = True
            await self.release.wait()
        return "too late"


async def test_the_time_of_a_call_stops_while_somebody_is_asked(
    open_service: OpenAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = ToolTurns(call_seconds=60)
    loop = asyncio.get_running_loop()
    real_time = loop.time
    answers: list[JsonObject] = []

    async def act(tools: DynamicTools) -> None:
        answers.append(await tools.call(call_params("pick", {"n": 1})))

    harness.act = act
    async with open_service(harness=harness) as setup:
        run = await setup.start(client_tools=[ClientTool(name="pick")])
        await event_of(run, "client_call.requested")
        # The clock of all timers jumps beyond the limit.
        monkeypatch.setattr(loop, "time", lambda: real_time() + 100)
        await anyio.wait_all_tasks_blocked()
        run.deliver("c1", "picked")
        await run.wait()
    assert text_of(answers[0]) == "picked"


async def test_the_end_of_a_turn_aborts_its_calls(open_service: OpenAgent) -> None:
    held = HeldTool()
    harness = ToolTurns()
    answers: list[JsonObject] = []

    async def act(tools: DynamicTools) -> None:
        answers.append(await tools.call(call_params("held")))
        answers.append(await tools.call(call_params("held", call_id="c2")))

    harness.act = act
    async with open_service(harness=harness, tools=[held.tool]) as setup:
        run = await setup.start()
        await held.wait_for_calls()
        await run.abort("enough")
    assert held.cancelled == ["c1"]
    assert len(held.inputs) == 1
