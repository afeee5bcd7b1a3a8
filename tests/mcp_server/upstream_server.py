"""An MCP server on stdio for tests: tools that echo, ask a person, and take for ever."""

import subprocess
import sys
from typing import Any

import anyio
import mcp_types as types
from mcp.server import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server


async def list_tools(
    _context: ServerRequestContext[Any, Any], _params: types.PaginatedRequestParams | None
) -> types.ListToolsResult:
    names = ("echo", "ask", "hang")
    tools = [types.Tool(name=name, input_schema={"type": "object"}) for name in names]
    return types.ListToolsResult(tools=tools)


async def call_tool(
    context: ServerRequestContext[Any, Any], params: types.CallToolRequestParams
) -> types.CallToolResult:
    match params.name:
        case "ask":
            schema: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}}
            answer = await context.session.elicit_form("Where?", schema, context.request_id)
            return _structured(answer.model_dump(mode="json"))
        case "hang":
            await context.session.report_progress(1, 3, "hanging")
            await anyio.sleep_forever()
        case _:
            pass
    return _structured(params.arguments or {})


def _structured(value: dict[str, Any]) -> types.CallToolResult:
    text = types.TextContent(type="text", text=str(value))
    return types.CallToolResult(content=[text], structured_content=value)


async def main() -> None:
    server = Server("curious", on_list_tools=list_tools, on_call_tool=call_tool)
    async with stdio_server() as (inbound, outbound):
        await server.run(inbound, outbound, server.create_initialization_options())


def start_stubborn_child() -> None:
    """One that outlives us, and everything but SIGKILL."""
    nothing = subprocess.DEVNULL
    command = ["sh", "-c", "trap '' TERM HUP INT; sleep 600"]
    subprocess.Popen(command, stdin=nothing, stdout=nothing, stderr=nothing)


if __name__ == "__main__":
    if "--stubborn" in sys.argv:
        start_stubborn_child()
    anyio.run(main)
