"""Agents without code mode see their tools directly, including tools of MCP servers."""

from collections.abc import Sequence

from nacre.errors import ToolServerError
from nacre.messages import ToolMessage
from nacre.tools import Tool
from nacre.tools.definition import ListedServer
from tests.agent.agent_setup import events_of
from tests.agent.conftest import OpenAgent
from tests.agent.fake_models import call, say
from tests.agent.tools import echo_tool
from tests.code_mode.simple_tools import simple_tool


class BrokenServer:
    """A server that does not start."""

    name = "broken"
    description = ""
    known_tools: Sequence[Tool] | None = None

    async def tools(self) -> Sequence[Tool]:
        raise ToolServerError("broken does not start", server="broken")


async def test_tools_of_servers_are_shown_and_called(open_service: OpenAgent) -> None:
    async def lookup(given: object, call: object) -> object:
        return {"content": [{"type": "text", "text": "found"}]}

    tool = Tool(name="echo", owner="docs", source="mcp", execute=lookup)
    operation = simple_tool("$resources.read", owner="docs", source="mcp")
    servers = [ListedServer("docs", [tool, operation]), BrokenServer()]
    async with open_service(tools=[echo_tool()], servers=servers) as setup:
        setup.model.will(call("docs__echo"), say("done"))
        run = await setup.turn()
        assert [spec.name for spec in setup.model.requests[0].tools] == ["echo", "docs__echo"]
        result = setup.model.requests[1].messages[-1]
        assert isinstance(result, ToolMessage)
        assert result.content == "found"
        (problem,) = events_of(run, "server.unavailable")
        assert problem.data == {"server": "broken", "problem": "broken does not start"}


async def test_servers_that_policy_rules_out_are_not_asked(open_service: OpenAgent) -> None:
    document = {"tools": {"deny": ["broken"]}}
    async with open_service(servers=[BrokenServer()], document=document) as setup:
        setup.model.will(say("done"))
        run = await setup.turn()
        assert events_of(run, "server.unavailable") == []
