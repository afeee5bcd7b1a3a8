"""`tool_search`, `tool_describe` and `tool_call`, and tools that are shown beside them."""

from typing import Any

import pytest

from nacre import ToolCall
from nacre.json_types import JsonObject
from tests.code_mode.mcp_servers import BrokenServer
from tests.code_mode.tools import echo_tool
from tests.contract.requirements import requirement
from tests.tool_search.runs import failure_of, run_with, value_of

TOOLS = {"mode": "tools", "searchDefaultLimit": 2, "maxSearchLimit": 3}
ISSUE: JsonObject = {
    "type": "object",
    "properties": {"title": {"type": "string"}},
    "required": ["title"],
}


@requirement("tool-search:search-describe-call")
async def test_the_three_tools_find_describe_and_call() -> None:
    tool = echo_tool(
        "create_issue", owner="github", parameters=ISSUE, output_schema={"type": "object"}
    )
    run = await run_with(tools=[tool, echo_tool()], config=TOOLS)
    hits = value_of(await run.call("tool_search", {"query": "create an issue", "limit": 1}))
    entry = {
        "id": "openclaw:github:create_issue",
        "name": "create_issue",
        "description": "Return the input of create_issue",
        "source": "openclaw",
        "sourceName": "github",
    }
    assert hits == [entry]
    described = await run.call("tool_describe", '{"id": "openclaw:github:create_issue"}')
    assert value_of(described) == {
        **entry,
        "parameters": ISSUE,
        "outputSchema": {"type": "object"},
    }
    result = await run.call("tool_call", {"id": entry["id"], "args": {"title": "Crash"}})
    assert result.to_json() == {"status": "completed", "value": {"title": "Crash"}}


@pytest.mark.parametrize(("limit", "count"), [(None, 2), (1, 1), (3, 3), (99, 3), (0, 1)])
async def test_a_search_is_kept_within_the_limits(limit: int | None, count: int) -> None:
    run = await run_with(tools=[echo_tool(f"letter_{n}") for n in range(9)], config=TOOLS)
    given: JsonObject = (
        {"query": "letter"} if limit is None else {"query": "letter", "limit": limit}
    )
    assert len(value_of(await run.call("tool_search", given))) == count


async def test_args_may_be_left_out_or_be_json_text() -> None:
    run = await run_with(tools=[echo_tool()], config=TOOLS)
    assert value_of(await run.call("tool_call", {"id": "echo"})) == {}
    assert value_of(await run.call("tool_call", {"id": "echo", "args": '{"a": 1}'})) == {"a": 1}


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("tool_search", {}, "a search needs a query as text"),
        ("tool_search", {"query": "x", "limit": "3"}, "limit as a number from 1 to 3"),
        ("tool_describe", {"id": 5}, "a tool is named by its id, as text"),
        ("tool_call", {"args": {}}, "a tool is named by its id, as text"),
        ("tool_call", {"id": "echo", "args": "{"}, "`args` is text that is not JSON"),
        (
            "tool_call",
            {"id": "echo", "input": {"a": 1}},
            "tool_call takes `id` and `args`; given as well: input. "
            "What the tool takes goes into `args`, as one object",
        ),
        ("tool_call", "[1]", "the arguments are an array; they have to be an object"),
    ],
)
async def test_arguments_that_are_none_are_refused(name: str, given: Any, message: str) -> None:
    run = await run_with(tools=[echo_tool()], config=TOOLS)
    failed = failure_of(await run.call(name, given))
    assert failed.code == "invalid_input"
    assert message in failed.error


async def test_args_that_are_no_object_are_refused_by_the_call_path() -> None:
    run = await run_with(tools=[echo_tool()], config=TOOLS)
    failed = failure_of(await run.call("tool_call", {"id": "echo", "args": [1]}))
    assert (failed.code, failed.error) == (
        "invalid_tool_input",
        "the input is an array; echo takes one object",
    )


async def test_an_unknown_id_is_answered_with_the_nearest() -> None:
    run = await run_with(tools=[echo_tool("create_issue")], config=TOOLS)
    failed = failure_of(await run.call("tool_call", {"id": "create_isue", "args": {}}))
    assert failed.to_json() == {
        "status": "failed",
        "error": (
            "no tool of this run has the id 'create_isue'; nearest: openclaw:core:create_issue; "
            "search for what there is"
        ),
        "code": "unknown_tool",
        "toolId": "create_isue",
        "nearest": ["openclaw:core:create_issue"],
    }


async def test_a_failed_tool_says_what_went_wrong() -> None:
    async def fail(input: dict[str, Any], call: ToolCall) -> object:
        raise ValueError("the disk is full")

    run = await run_with(tools=[echo_tool(execute=fail)], config=TOOLS)
    failed = failure_of(await run.call("tool_call", {"id": "echo", "args": {}}))
    assert (failed.error, failed.code) == ("the disk is full", "tool_failed")
    assert failed.to_json()["errorType"] == "ValueError"


async def test_servers_that_could_not_be_searched_are_named() -> None:
    run = await run_with(tools=[echo_tool()], servers=[BrokenServer()], config=TOOLS)
    result = await run.call("tool_search", {"query": "echo"})
    assert result.to_json()["unavailableServers"] == {
        "broken": "the MCP server broken does not start: no such file"
    }


async def test_a_direct_only_tool_returns_what_json_cannot_hold() -> None:
    picture = object()

    async def draw(input: dict[str, Any], call: ToolCall) -> object:
        return picture

    tool = echo_tool("draw", execute=draw, catalog_mode="direct-only")
    run = await run_with(tools=[echo_tool(), tool], config=TOOLS)
    result = await run.call("draw", {})
    assert value_of(result) is picture
    assert result.to_json() == {"status": "completed", "value": {"type": "object"}}


async def test_a_failed_direct_call_is_a_result() -> None:
    async def fail(input: dict[str, Any], call: ToolCall) -> object:
        raise ValueError("no ink")

    tool = echo_tool("draw", execute=fail, catalog_mode="direct-only")
    run = await run_with(tools=[tool, echo_tool()], config=TOOLS)
    failed = failure_of(await run.call("draw", {}))
    assert (failed.error, failed.code) == ("no ink", "tool_failed")
