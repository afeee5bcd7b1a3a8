"""Requests of upstream servers are forwarded to the client, or refused with a reason."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from mcp_types import (
    CreateMessageRequestParams,
    CreateMessageResult,
    ListRootsResult,
    Root,
    TextContent,
)

from nacre import Runtime, Tool, ToolCall
from nacre.json_types import JsonObject, JsonValue, encode_json
from nacre.mcp_client.upstream import UpstreamRefusal, UpstreamRequests
from nacre.mcp_server import CodeModeMcpServer
from nacre.mcp_server.sessions import OpenServers, clean_question
from nacre.tools.definition import ListedServer, ToolServer
from tests.code_mode.tools import HeldTool
from tests.mcp_server.clients import Era, FormFiller, connect, exec_in

FORM: JsonObject = {
    "message": "Which city?",
    "requestedSchema": {"type": "object", "properties": {"city": {"type": "string"}}},
}
MESSAGE: JsonObject = {"role": "user", "content": {"type": "text", "text": "hello"}}
SAMPLE: JsonObject = {"messages": [MESSAGE], "maxTokens": 10}


class CuriousServer:
    """A server whose tool `ask` asks the client what it is told to."""

    def __init__(self) -> None:
        self.client: UpstreamRequests | None = None
        self.refusals: list[str] = []

    def servers(self) -> OpenServers:
        @asynccontextmanager
        async def opened(
            _session_id: str, client: UpstreamRequests
        ) -> AsyncGenerator[Sequence[ToolServer]]:
            self.client = client
            tool = Tool(name="ask", source="mcp", owner="curious", execute=self._execute)
            yield [ListedServer("curious", [tool])]

        return opened

    async def _execute(self, given: dict[str, Any], call: ToolCall) -> object:
        assert self.client is not None
        answers: list[object] = []
        async with anyio.create_task_group() as tasks:
            for _ in range(given.get("times", 1)):
                tasks.start_soon(self._ask, given, answers)
        return answers[0]

    async def _ask(self, given: dict[str, Any], answers: list[object]) -> None:
        ask = getattr(self.client, given["method"])
        try:
            answers.append(await ask("curious", given["params"]))
        except UpstreamRefusal as refusal:
            self.refusals.append(refusal.message)
            answers.append({"refused": refusal.message})


async def asked(
    runtime: Runtime, era: Era, method: str, params: JsonObject, **callbacks: Any
) -> Any:
    curious = CuriousServer()
    server = CodeModeMcpServer(runtime, servers=curious.servers())
    async with connect(server, era, **callbacks) as client:
        given = encode_json({"method": method, "params": params}).decode()
        result = await exec_in(client, f"return MCP.curious.ask({given})")
    assert result["status"] == "completed", result
    return result["value"]


async def sample(_context: object, params: CreateMessageRequestParams) -> CreateMessageResult:
    assert params.max_tokens == 10
    return CreateMessageResult(
        role="assistant", content=TextContent(type="text", text="hi"), model="m"
    )


async def list_roots(_context: object) -> ListRootsResult:
    return ListRootsResult(roots=[Root.model_validate({"uri": "file:///home"})])


async def test_a_form_goes_to_the_client_and_names_the_server(runtime: Runtime, era: Era) -> None:
    person = FormFiller("accept", city="Ulm")
    answer = await asked(runtime, era, "elicit", FORM, elicitation_callback=person)
    assert (answer["action"], answer["content"]) == ("accept", {"city": "Ulm"})
    assert person.messages == ["curious asks: Which city?"]


async def test_sampling_goes_to_the_client(runtime: Runtime, era: Era) -> None:
    answer = await asked(runtime, era, "sample", SAMPLE, sampling_callback=sample)
    assert (answer["model"], answer["content"]["text"]) == ("m", "hi")


async def test_roots_come_from_the_client(runtime: Runtime, era: Era) -> None:
    answer = await asked(runtime, era, "roots", {}, list_roots_callback=list_roots)
    assert answer["roots"] == [{"uri": "file:///home"}]


@pytest.mark.parametrize(
    ("method", "params", "missing"),
    [
        ("elicit", FORM, "cannot show forms"),
        ("elicit", {"mode": "url", "message": "x", "url": "https://x"}, "cannot open pages"),
        ("sample", SAMPLE, "has no sampling"),
        ("roots", {}, "has no roots"),
    ],
)
async def test_what_the_client_cannot_do_is_refused(
    runtime: Runtime, era: Era, method: str, params: JsonObject, missing: str
) -> None:
    answer = await asked(runtime, era, method, params)
    assert missing in answer["refused"]


async def test_sampling_with_tools_needs_a_client_that_has_it(runtime: Runtime, era: Era) -> None:
    params: JsonObject = {**SAMPLE, "toolChoice": {"mode": "auto"}}
    answer = await asked(runtime, era, "sample", params, sampling_callback=sample)
    assert "has no sampling with tools" in answer["refused"]


async def test_a_malformed_question_is_refused_and_harms_nobody(runtime: Runtime, era: Era) -> None:
    person = FormFiller("accept")
    bad: JsonObject = {"message": "x", "requestedSchema": 5}
    answer = await asked(runtime, era, "elicit", bad, elicitation_callback=person)
    assert "malformed" in answer["refused"]
    assert person.asked == []


async def test_what_a_server_asks_cannot_steer_a_screen(runtime: Runtime, era: Era) -> None:
    person = FormFiller("accept", city="Ulm")
    form: JsonObject = {**FORM, "message": "\x1b[2JWhich\u202e city?"}
    await asked(runtime, era, "elicit", form, elicitation_callback=person)
    assert person.messages == ["curious asks: [2JWhich city?"]


@pytest.mark.parametrize(("method", "params"), [("elicit", FORM), ("sample", SAMPLE)])
async def test_a_server_asks_only_so_often_in_a_call(
    runtime: Runtime, era: Era, method: str, params: JsonObject
) -> None:
    curious, person = CuriousServer(), FormFiller("accept", city="Ulm")
    server = CodeModeMcpServer(runtime, servers=curious.servers())
    given = encode_json({"method": method, "params": params, "times": 23}).decode()
    async with connect(
        server, era, elicitation_callback=person, sampling_callback=sample
    ) as client:
        for _ in range(2):
            await exec_in(client, f"return MCP.curious.ask({given})")
            assert len(curious.refusals) == 3
            assert "the limit of 20 questions in one call is reached" in curious.refusals[0]
            curious.refusals.clear()
    assert len(person.asked) == (40 if method == "elicit" else 0)


async def test_a_server_asks_only_so_often_without_a_call_of_its_own(runtime: Runtime) -> None:
    curious, held = CuriousServer(), HeldTool()
    person = FormFiller("accept", city="Ulm")
    server = CodeModeMcpServer(runtime, servers=curious.servers(), tools=[held.tool])
    async with (
        connect(server, "legacy", elicitation_callback=person) as client,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(exec_in, client, "return tools.held({})")
        await held.wait_for_calls()
        assert curious.client is not None
        for _ in range(20):
            await curious.client.elicit("curious", FORM)
        with pytest.raises(UpstreamRefusal, match="20 questions"):
            await curious.client.elicit("curious", FORM)
        held.answer(None)


async def test_outside_of_a_call_nobody_can_be_asked(runtime: Runtime) -> None:
    curious = CuriousServer()
    server = CodeModeMcpServer(runtime, servers=curious.servers())
    person = FormFiller("accept")
    async with connect(server, "legacy", elicitation_callback=person) as client:
        await client.list_tools()
        assert curious.client is not None
        assert curious.client.capabilities == {"elicitation": {"form": {}, "url": {}}}
        with pytest.raises(UpstreamRefusal, match="during a call"):
            await curious.client.elicit("curious", FORM)


async def test_a_person_may_take_longer_than_a_program_may_run(era: Era) -> None:
    # One leg of the program ends long before the answer; the model is not bothered with that.
    curious, results = CuriousServer(), list[Any]()
    is_asked, is_suspended = anyio.Event(), anyio.Event()

    class SlowPerson(FormFiller):
        async def __call__(self, context: Any, params: Any) -> Any:
            is_asked.set()
            await is_suspended.wait()
            return await super().__call__(context, params)

    person = SlowPerson("accept", city="Ulm")
    async with Runtime({"timeoutMs": 1000}, workers=1) as runtime:
        server = CodeModeMcpServer(runtime, servers=curious.servers())
        async with connect(server, era, elicitation_callback=person) as client:

            async def run() -> None:
                form = encode_json({"method": "elicit", "params": FORM}).decode()
                results.append(await exec_in(client, f"return MCP.curious.ask({form})"))

            with anyio.fail_after(60):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(run)
                    await is_asked.wait()
                    while not any(cell.state == "waiting" for cell in runtime.cells()):
                        await anyio.lowlevel.checkpoint()
                    is_suspended.set()
    (result,) = results
    assert (result["status"], result["value"]["content"]) == ("completed", {"city": "Ulm"})


def form(name: str, schema: JsonObject) -> JsonObject:
    properties: JsonObject = {name: schema}
    return {"message": "m", "requestedSchema": {"type": "object", "properties": properties}}


def test_words_lose_what_nobody_sees() -> None:
    city: JsonObject = {
        "type": "string",
        "title": "Ci\u200bty",
        "description": "two\r\nlines\x07",
        "enum": ["a"],
        "enumNames": ["A\u202e"],
    }
    shown = clean_question({**form("city", city), "message": "\x1b[2JWhere?\nNow"})
    assert shown == {
        **form(
            "city",
            {
                "type": "string",
                "title": "City",
                "description": "two\nlines",
                "enum": ["a"],
                "enumNames": ["A"],
            },
        ),
        "message": "[2JWhere?\nNow",
    }


@pytest.mark.parametrize(
    "params",
    [
        form("ci\u200bty", {"type": "string"}),
        form("city", {"enum": ["a\x1b"]}),
        form("title", {"oneOf": [{"const": "\u202ea", "title": "a"}]}),
        {"mode": "url", "message": "m", "url": "https://a\u202e.example"},
    ],
)
def test_a_name_or_value_that_cannot_be_seen_is_refused(params: JsonObject) -> None:
    with pytest.raises(UpstreamRefusal, match="invisible characters"):
        clean_question(params)


def test_a_default_of_several_lines_is_kept() -> None:
    params = form("text", {"type": "string", "default": "a\n\tb"})
    assert clean_question(params) == params


def test_a_question_that_is_too_long_or_too_deep_is_refused() -> None:
    with pytest.raises(UpstreamRefusal, match="the limit is 65536"):
        clean_question({"message": "x" * 100_000})
    deep: JsonValue = 1
    for _ in range(20):
        deep = [deep]
    with pytest.raises(UpstreamRefusal, match="16 levels"):
        clean_question({"message": "m", "requestedSchema": deep})
