"""The tools of a server: listed once, updated when they change, repaired when broken."""

import pytest

from nacre.errors import ToolServerError
from nacre.mcp_client import McpServer
from tests.mcp_client.conftest import Opening
from tests.mcp_client.peers import call, raw, text_of


def names_of(server: McpServer) -> list[str]:
    return [tool.name for tool in server.known_tools or ()]


async def test_tools_are_listed_once(opening: Opening) -> None:
    server = await opening.one(raw())
    first = await server.tools()
    assert await server.tools() is first
    assert server.known_tools is first
    assert first[0].id == "mcp:plain:ask"


async def test_a_changed_list_is_listed_again(opening: Opening) -> None:
    server = await opening.one(raw())
    before = await server.tools()
    await call(server, "grow")
    after = await server.tools()
    assert after is not before
    assert {tool.name for tool in after} - {tool.name for tool in before} == {"grown0"}


async def test_an_equal_list_of_a_new_process_is_the_same_object(opening: Opening) -> None:
    server = await opening.one(raw())
    before = await server.tools()
    with pytest.raises(ToolServerError):
        await call(server, "exit", status=1)
    await call(server, "echo")
    assert await server.tools() is before


async def test_five_thousand_tools_are_listed_page_by_page(opening: Opening) -> None:
    server = await opening.one(raw("many"))
    tools = await server.tools()
    assert [tool.name for tool in tools] == [f"tool{number}" for number in range(5_000)]
    assert server.status().tool_count == 5_000


async def test_a_list_in_a_circle_ends(opening: Opening) -> None:
    server = await opening.one(raw("circle"))
    await server.tools()
    assert names_of(server) == ["first", "second"]
    assert server.status().problem == "its list repeats a cursor"


async def test_a_list_without_end_is_cut(opening: Opening) -> None:
    server = await opening.one(raw("endless"))
    await server.tools()
    assert len(names_of(server)) == 1_000
    assert server.status().problem == "its list has more than 1,000 pages"


async def test_one_broken_tool_does_not_spoil_the_list(opening: Opening) -> None:
    server = await opening.one(raw("crooked"))
    tools = {tool.name: tool for tool in await server.tools()}
    assert list(tools) == [
        "sound",
        "no_schema",
        "text_schema",
        "array_schema",
        "huge_schema",
        "bad_output",
        "__proto__",
        "liar",
    ]
    for name in ("no_schema", "text_schema", "array_schema", "huge_schema"):
        assert tools[name].parameters == {"type": "object"}
    assert tools["bad_output"].output_schema is None
    assert server.status().state == "ready"
    assert server.status().problem.startswith(
        "tool 'no_schema': its input schema does not describe an object; any object is accepted; "
    )
    assert server.status().problem.endswith("; and 5 more")
    assert text_of(await call(server, "no_schema", a=1)) == '{"a": 1}'
    assert any("'with space': left out" in note for note in server.left_out)


async def test_allow_and_deny_choose_tools_by_their_own_names(opening: Opening) -> None:
    connections = await opening.all(
        raw(name="some", allow=("e*", "hold"), deny=("error",)), raw(name="none", allow=())
    )
    some, none = connections.servers(with_emptied=True)
    assert [tool.name for tool in await some.tools()] == ["echo", "environment", "exit", "hold"]
    assert await none.tools() == ()
    assert none.status().problem == ""


async def test_a_pattern_that_matches_no_tool_is_told(opening: Opening) -> None:
    server = await opening.one(
        raw(
            allow=("ECHO", "*", "no_such"), deny=("mcp:plain:isError",), require_approval=("gone*",)
        )
    )
    await server.tools()
    assert server.status().problem == (
        "`allow` has 'no_such', which matches no tool of this server; "
        "`deny` has 'mcp:plain:isError', which matches no tool of this server; "
        "`requireApproval` has 'gone*', which matches no tool of this server"
    )
