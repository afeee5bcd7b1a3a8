"""The MCP server as a client sees it: listed tools, results, errors and cancellation."""

from collections.abc import Sequence
from typing import Any

import anyio
import jsonschema_rs
import pytest
from mcp import MCPError
from mcp_types import INVALID_PARAMS, ImageContent, TextContent

from nacre import Completed, DirectResult, Failed, Runtime, Tool, ToolCall
from nacre.mcp_server import CodeModeMcpServer
from nacre.mcp_server.server import code_mode_result, direct_result
from nacre.mcp_server.sessions import share_servers
from nacre.sandbox import ImageOutput
from nacre.tools.definition import ListedServer
from tests.code_mode.tools import HeldTool, echo_tool
from tests.mcp_server.clients import Era, connect, content_of, exec_in, text_of, wait_in


class UntouchedServer:
    """A server that must not be started."""

    name = "lazy"
    description = ""
    known_tools = None

    async def tools(self) -> Sequence[Tool]:
        raise AssertionError("the server was started")


class CancelledTool(HeldTool):
    """Tells when its call is cancelled."""

    def __init__(self) -> None:
        super().__init__()
        self.is_cancelled = anyio.Event()

    async def _execute(self, input: dict[str, Any], call: ToolCall) -> object:
        try:
            return await super()._execute(input, call)
        except anyio.get_cancelled_exc_class():
            self.is_cancelled.set()
            raise


def mcp_echo(server: str = "files") -> ListedServer:
    return ListedServer(server, [echo_tool("read_file", source="mcp", owner=server)])


async def test_a_client_sees_exec_and_wait_and_no_server_is_started_for_it(
    runtime: Runtime, era: Era
) -> None:
    server = CodeModeMcpServer(
        runtime, servers=share_servers([UntouchedServer()]), tools=[echo_tool()]
    )
    async with connect(server, era) as client:
        listed = (await client.list_tools()).tools
    assert [tool.name for tool in listed] == ["exec", "wait"]
    assert "lazy" in (listed[0].description or "")
    assert all(tool.output_schema for tool in listed)


async def test_every_kind_of_result_fits_the_output_schema(runtime: Runtime, era: Era) -> None:
    server = CodeModeMcpServer(runtime, tools=[echo_tool()])
    async with connect(server, era) as client:
        schema = (await client.list_tools()).tools[0].output_schema
        completed = await exec_in(client, "text('hi'); json({a: 1}); return [1, null]")
        waiting = await exec_in(client, "await yield_control('later'); return 2")
        resumed = await wait_in(client, waiting["runId"])
        failed = await client.call_tool("exec", {"code": "throw new Error('no luck')"})
    assert schema is not None
    assert (completed["status"], completed["value"]) == ("completed", [1, None])
    assert (waiting["status"], waiting["yieldReason"]) == ("waiting", "later")
    assert (resumed["status"], resumed["value"]) == ("completed", 2)
    assert failed.is_error
    assert "no luck" in str(content_of(failed)["error"])
    for result in (completed, waiting, resumed, content_of(failed)):
        jsonschema_rs.validate(schema, result)


async def test_programs_call_the_servers_behind(runtime: Runtime, era: Era) -> None:
    server = CodeModeMcpServer(runtime, servers=share_servers([mcp_echo()]))
    async with connect(server, era) as client:
        result = await exec_in(client, "return MCP.files.readFile({path: 'a'})")
    assert result["value"] == {"path": "a"}


async def test_a_direct_only_tool_is_listed_and_gives_what_json_cannot_hold(
    runtime: Runtime, era: Era
) -> None:
    image = {"content": [{"type": "image", "data": "AAAA", "mimeType": "image/png"}]}

    async def draw(given: dict[str, Any], call: ToolCall) -> object:
        return image

    tools = [echo_tool(), Tool(name="draw", catalog_mode="direct-only", execute=draw)]
    async with connect(CodeModeMcpServer(runtime, tools=tools), era) as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        drawn = await client.call_tool("draw", {})
    assert names == ["exec", "wait", "draw"]
    assert drawn.content == [ImageContent(type="image", data="AAAA", mime_type="image/png")]


async def test_a_direct_only_tool_that_fails_is_an_error_with_its_message(
    runtime: Runtime, era: Era
) -> None:
    async def fail(given: dict[str, Any], call: ToolCall) -> object:
        raise ValueError("out of ink")

    tools = [Tool(name="draw", catalog_mode="direct-only", execute=fail)]
    async with connect(CodeModeMcpServer(runtime, tools=tools), era) as client:
        drawn = await client.call_tool("draw", {})
    assert (drawn.is_error, text_of(drawn)) == (True, "out of ink")


async def test_an_unknown_tool_is_an_error_of_the_protocol(runtime: Runtime, era: Era) -> None:
    async with connect(CodeModeMcpServer(runtime, tools=[echo_tool()]), era) as client:
        with pytest.raises(MCPError, match="no tool 'echo'") as caught:
            await client.call_tool("echo", {})
    assert caught.value.code == INVALID_PARAMS


async def test_half_a_surrogate_pair_in_a_result_harms_nobody(runtime: Runtime, era: Era) -> None:
    async with connect(CodeModeMcpServer(runtime, tools=[echo_tool()]), era) as client:
        result = await exec_in(client, "text('\\ud800'); return {'\\udfff': '\\ud83d'}")
        assert result["value"] == {"\ufffd": "\ufffd"}
        assert (await exec_in(client, "return 1"))["value"] == 1


async def test_another_client_cannot_continue_the_program(runtime: Runtime) -> None:
    server = CodeModeMcpServer(runtime, tools=[echo_tool()])
    async with connect(server, "legacy") as first, connect(server, "legacy") as second:
        waiting = await exec_in(first, "await yield_control(); return 1")
        refused = await wait_in(second, waiting["runId"])
        assert (refused["status"], refused["reason"]) == ("failed", "run_scope_mismatch")
        assert (await wait_in(first, waiting["runId"]))["value"] == 1


async def test_a_cancelled_request_aborts_the_cell_and_its_calls(
    runtime: Runtime, era: Era
) -> None:
    held = CancelledTool()
    async with connect(CodeModeMcpServer(runtime, tools=[held.tool]), era) as client:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(exec_in, client, "return tools.held({})")
            await held.wait_for_calls()
            tasks.cancel_scope.cancel()
        with anyio.fail_after(30):
            await held.is_cancelled.wait()


async def test_a_cancelled_wait_aborts_the_cell_too(runtime: Runtime, era: Era) -> None:
    held = CancelledTool()
    async with connect(CodeModeMcpServer(runtime, tools=[held.tool]), era) as client:
        waiting = await exec_in(client, "await yield_control(); return tools.held({})")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait_in, client, waiting["runId"])
            await held.wait_for_calls()
            tasks.cancel_scope.cancel()
        with anyio.fail_after(30):
            await held.is_cancelled.wait()


async def test_when_the_client_goes_its_programs_end(runtime: Runtime, era: Era) -> None:
    async with connect(CodeModeMcpServer(runtime, tools=[echo_tool()]), era) as client:
        assert (await exec_in(client, "await yield_control(); return 1"))["status"] == "waiting"
        assert len(runtime.cells()) == 1
    assert runtime.cells() == []


async def test_calls_of_one_client_run_side_by_side(runtime: Runtime, era: Era) -> None:
    held = HeldTool()
    results: list[object] = []
    async with connect(CodeModeMcpServer(runtime, tools=[held.tool]), era) as client:

        async def slow() -> None:
            results.append((await exec_in(client, "return tools.held({})"))["value"])

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(slow)
            await held.wait_for_calls()
            assert (await exec_in(client, "return 'quick'"))["value"] == "quick"
            assert results == []
            held.answer("slow")
    assert results == ["slow"]


def test_the_text_has_everything_that_the_structured_content_has() -> None:
    result = code_mode_result(Completed(value={"a": [1, None]}), awaited={"howToContinue": "x"})
    content = content_of(result)
    assert (content["value"], content["howToContinue"]) == ({"a": [1, None]}, "x")
    assert not result.is_error


def test_telemetry_is_in_the_metadata_and_not_in_the_text() -> None:
    completed = Completed(value=1)
    result = code_mode_result(completed)
    assert text_of(result) == '{"status":"completed","value":1}'
    assert result.structured_content == {"status": "completed", "value": 1}
    assert result.meta == {"nacre/telemetry": completed.telemetry_json()}


def test_images_of_a_program_are_content_of_their_own() -> None:
    image = ImageOutput(media_type="image/gif", data="R0lGODlh")
    result = code_mode_result(Completed(value=1, output=(image,)))
    text, shown = result.content
    assert isinstance(text, TextContent)
    assert "R0lGODlh" not in text.text
    assert isinstance(shown, ImageContent)
    assert (shown.mime_type, shown.data) == ("image/gif", "R0lGODlh")


def test_a_failed_program_is_an_error_with_its_reason() -> None:
    result = code_mode_result(Failed(error="no such thing", reason="guest_error"))
    assert result.is_error
    content = content_of(result)
    assert (content["error"], content["reason"]) == ("no such thing", "guest_error")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain", "plain"),
        ({"n": 1}, '{"n":1}'),
        (None, "null"),
        (b"bytes", '{"type":"bytes"}'),
        ({"content": "not parts"}, '{"content":"not parts"}'),
        ("\ud800", "?"),
    ],
)
def test_a_direct_value_is_shown_as_text(value: object, text: str) -> None:
    result = direct_result(DirectResult(value=value), has_output_schema=False)
    assert (text_of(result), result.structured_content) == (text, None)


def test_a_direct_value_with_a_schema_is_structured_as_well() -> None:
    result = direct_result(DirectResult(value={"n": 1}), has_output_schema=True)
    assert content_of(result) == {"n": 1}
