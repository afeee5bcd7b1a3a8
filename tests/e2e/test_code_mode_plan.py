"""The sixteen steps of the code-mode plan, seen by the provider and by clients."""

import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

import anyio
import openai
import pytest

from nacre.testing import Call, RecordedRequest, Say
from nacre.testing.script import PlainTurn
from tests.contract.requirements import requirement
from tests.e2e.gateways import CODE_MODE, TOKEN, Gateway, Home, time_server
from tests.e2e.outside import PATIENCE_SECONDS

TOOLS: dict[str, Any] = {
    "deny": ["kit_forbidden"],
    "fs": {"ask": "never"},
    "exec": {"enabled": True, "ask": "never"},
}
SHOWN_DIRECTLY = {"read", "write", "edit", "list", "search", "exec", "kit_add", "kit_hold"}
CLIENT_TOOL: Any = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather at the client's place.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}
CATALOG = """
const caught = call => call().catch(error => `refused: ${error.message}`);
return {
  ids: ALL_TOOLS.map(tool => tool.id),
  names: Object.keys(tools),
  forbidden: [
    await caught(() => tools.call("openclaw:kit:kit_forbidden", {})),
    await caught(() => tools.call("kit_forbidden", {})),
    await caught(() => tools.describe("openclaw:kit:kit_forbidden")),
  ],
  forbiddenFound: (await tools.search("forbidden")).map(tool => tool.id),
  controls: [
    await caught(() => tools.call("wait", {runId: "x"})),
    await caught(() => tools.call("tool_search", {query: "x"})),
  ],
};
"""
CALLS = """
const [found] = await tools.search("add two numbers");
const described = await tools.describe(found.id);
const written = await tools.call("openclaw:core:write", {path: "note.txt", content: "kept"});
return {
  found: found.id,
  parameters: Object.keys(described.parameters.properties),
  sum: await tools.call(found.id, {a: 2, b: 40}),
  read: await tools.call("openclaw:core:read", {path: "note.txt"}),
  client: (await tools.describe("weather")).source,
  weather: await tools.call("weather", {city: "Oslo"}),
};
"""
DECLARATIONS = """
const files = await API.list("mcp");
return { paths: files.map(file => file.path), text: await API.read("mcp/time.d.ts") };
"""
MCP_CALL = """
const result = await MCP.time.getCurrentTime({timezone: "UTC"});
const caught = call => call().catch(error => `refused: ${error.message}`);
return {
  result,
  listed: ALL_TOOLS.filter(tool => tool.source === "mcp" || /current_time/.test(tool.id)),
  named: Object.keys(tools).filter(name => /current.?time/i.test(name)),
  byId: await caught(() => tools.call("mcp:time:get_current_time", {timezone: "UTC"})),
};
"""
RESTORED = """
const held = tools.kit_hold({note: "later"});
await yield_control("the answer takes a while");
const answer = await held;
text(`after the restore: ${answer}`);
return answer;
"""


@dataclass(frozen=True, kw_only=True)
class DirectTurn:
    """Steps 1 to 3: what was seen without code mode."""

    request: RecordedRequest
    run: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class WholeTurn:
    """Steps 5 to 11: one turn with tools of every source."""

    requests: list[RecordedRequest]
    client_calls: list[Any]
    answer: str

    def value(self, index: int) -> dict[str, Any]:
        """What the program number so and so returned, as the provider read it."""
        result: Any = self.requests[index + 1].last_object
        assert result["status"] == "completed", result
        return result["value"]


@pytest.fixture(scope="module")
async def direct_turn(shared_home: Home) -> DirectTurn:
    model = shared_home.model
    await shared_home.configure(tools={"codeMode": {"enabled": False}, **TOOLS})
    marker = model.script(Call("kit_add", {"a": 2, "b": 3}), Say("five"))
    async with shared_home.gateway() as gateway:
        run = await gateway.finished(f"add {marker}")
    return DirectTurn(request=model.requests(marker)[0], run=run)


@pytest.fixture(scope="module")
async def gateway(shared_home: Home, direct_turn: DirectTurn) -> AsyncGenerator[Gateway]:
    """Step 4: the same place, started again with code mode."""
    await shared_home.configure(tools={**CODE_MODE, **TOOLS}, mcp=time_server())
    async with shared_home.gateway() as started:
        yield started


@pytest.fixture(scope="module")
async def whole_turn(shared_home: Home, gateway: Gateway) -> WholeTurn:
    programs = (CATALOG, CALLS, DECLARATIONS, MCP_CALL)
    model = shared_home.model
    marker = model.script(*(Call("exec", {"code": code}) for code in programs), Say("all done"))
    messages: list[Any] = [{"role": "user", "content": f"do it all {marker}"}]
    calls: list[Any] = []
    answer: Any = None
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=TOKEN) as client:
        while answer is None or answer.tool_calls:
            completion = await client.chat.completions.create(
                model="nacre",
                messages=messages,
                tools=[CLIENT_TOOL],
                extra_headers={"x-nacre-session-key": "plan"},
            )
            answer = completion.choices[0].message
            messages.append(answer.model_dump(exclude_none=True))
            for call in answer.tool_calls or ():
                calls.append(call)
                messages.append({"role": "tool", "tool_call_id": call.id, "content": "rain"})
    return WholeTurn(requests=model.requests(marker), client_calls=calls, answer=answer.content)


@requirement("e2e:code-mode:1", "e2e:code-mode:2", "e2e:code-mode:3")
async def test_without_code_mode_the_provider_sees_the_tools_themselves(
    direct_turn: DirectTurn,
) -> None:
    shown = set(direct_turn.request.tool_names)
    assert shown >= SHOWN_DIRECTLY
    assert not shown & {"wait", "kit_forbidden", "tool_search_code", "tool_search"}
    assert (direct_turn.run["state"], direct_turn.run["result"]["text"]) == ("completed", "five")


@requirement("e2e:code-mode:4", "e2e:code-mode:5", "e2e:code-mode:6")
async def test_with_code_mode_every_request_has_exactly_exec_and_wait(
    whole_turn: WholeTurn,
) -> None:
    assert [request.tool_names for request in whole_turn.requests] == [("exec", "wait")] * 5
    assert whole_turn.answer == "all done"


@requirement("e2e:code-mode:7")
async def test_all_tools_holds_the_effective_tools(whole_turn: WholeTurn) -> None:
    ids = set(whole_turn.value(0)["ids"])
    core = {f"openclaw:core:{name}" for name in ("read", "write", "list", "exec")}
    assert ids >= core | {"openclaw:kit:kit_add", "openclaw:kit:kit_hold"}
    assert any(id.startswith("client:") and id.endswith("weather") for id in ids)


@requirement("e2e:code-mode:8")
async def test_tools_of_core_plugin_and_client_are_found_described_and_called(
    whole_turn: WholeTurn,
) -> None:
    value = whole_turn.value(1)
    assert (value["found"], value["parameters"], value["sum"]) == (
        "openclaw:kit:kit_add",
        ["a", "b"],
        42,
    )
    assert "kept" in json.dumps(value["read"])
    assert (value["client"], value["weather"]) == ("client", "rain")
    (call,) = whole_turn.client_calls
    assert (call.function.name, json.loads(call.function.arguments)) == (
        "weather",
        {"city": "Oslo"},
    )


@requirement("e2e:code-mode:9")
async def test_declaration_files_describe_the_mcp_tools(whole_turn: WholeTurn) -> None:
    value = whole_turn.value(2)
    assert "mcp/time.d.ts" in value["paths"]
    assert "declare namespace MCP.time {" in value["text"]
    assert "function getCurrentTime(input: { timezone: string })" in value["text"]


@requirement("e2e:code-mode:10")
async def test_mcp_tools_are_called_through_their_namespace_and_nowhere_else(
    whole_turn: WholeTurn,
) -> None:
    value = whole_turn.value(3)
    assert "UTC" in json.dumps(value["result"]["content"])
    assert (value["listed"], value["named"]) == ([], [])
    assert value["byId"].startswith("refused: ")


@requirement("e2e:code-mode:11")
async def test_denied_tools_are_absent_and_no_guessed_id_calls_them(whole_turn: WholeTurn) -> None:
    value = whole_turn.value(0)
    assert not [id for id in value["ids"] if "forbidden" in id]
    assert not [name for name in value["names"] if "forbidden" in name]
    assert value["forbiddenFound"] == []
    assert all(said.startswith("refused: ") for said in value["forbidden"] + value["controls"])


@requirement("e2e:code-mode:12", "e2e:code-mode:13", "e2e:code-mode:14")
async def test_a_call_that_ends_after_exec_has_returned_reaches_the_restored_program(
    shared_home: Home, gateway: Gateway
) -> None:
    is_suspended = anyio.Event()

    def wait(request: RecordedRequest) -> PlainTurn:
        assert request.last_object["status"] == "waiting"
        is_suspended.set()
        return Call("wait", {"runId": request.last_object["runId"]})

    def final(request: RecordedRequest) -> PlainTurn:
        result: Any = request.last_object
        return Say(f"{result['status']}: {result['output'][-1]['text']}")

    marker = shared_home.model.script(Call("exec", {"code": RESTORED}), wait, final)
    run_id = await gateway.start(f"wait {marker}")
    held = await shared_home.outside.call()
    with anyio.fail_after(PATIENCE_SECONDS):
        await is_suspended.wait()
    await held.answer("it was worth it")
    events = await gateway.events(run_id)
    run = await gateway.get(f"/api/runs/{run_id}")
    assert run["result"]["text"] == "completed: after the restore: it was worth it"
    told = [event.kind for event in events if event.kind.startswith("cell.")]
    assert told.index("cell.suspended") < told.index("cell.resumed") < told.index("cell.ended")


@requirement("e2e:code-mode:16", "validation:nested-calls-are-shown")
async def test_an_exported_trajectory_shows_nested_calls_under_their_parent(
    shared_home: Home, gateway: Gateway, whole_turn: WholeTurn
) -> None:
    sessions = (await gateway.get("/api/sessions"))["sessions"]
    (session_id,) = [it["id"] for it in sessions if it["key"] == "plan"]
    exported = await shared_home.nacre("trajectory", "export", session_id)
    events = [json.loads(line) for line in exported.splitlines()]
    started = [event for event in events if event["kind"] == "call.started"]
    parents = [event["toolCallId"] for event in started if not event.get("parentToolCallId")]
    assert len(parents) == 4
    nested = [
        (parents.index(event["parentToolCallId"]), event["data"]["toolId"])
        for event in started
        if event.get("parentToolCallId")
    ]
    assert nested[:4] == [
        (1, "openclaw:core:write"),
        (1, "openclaw:kit:kit_add"),
        (1, "openclaw:core:read"),
        (1, nested[3][1]),
    ]
    assert nested[3][1].endswith(":weather")
    assert nested[4][0] == 3
    shown = await shared_home.nacre("trajectory", "show", session_id)
    assert shown.index("exec") < shown.index("kit_add")
