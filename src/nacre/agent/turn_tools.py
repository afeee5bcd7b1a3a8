"""The tools of a turn for every harness: their executor, tools of MCP servers, direct calls."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import anyio
import anyio.to_thread

from nacre.agent.replies import add_user_images
from nacre.errors import ToolError, ToolServerError
from nacre.tools import (
    OPERATION_MARK,
    CallResult,
    DirectResult,
    ToolExecutor,
    definition_bytes,
    effective_tools,
    format_direct_result,
    format_error,
    list_known_tools,
    permitted_servers,
    policy_for,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nacre.agent.turn_context import TurnContext
    from nacre.code_mode import Runtime
    from nacre.json_types import JsonObject
    from nacre.tools import CallSite, Tool, ToolPolicy, ToolServer

logger = logging.getLogger(__name__)

_MAX_MEASURED_ON_LOOP: Final = 200


def make_executor(turn: TurnContext, runtime: Runtime) -> ToolExecutor:
    """The executor of a turn's calls, with the policy of its agent."""
    return ToolExecutor(
        context=turn.identity,
        policy=policy_for(turn.agent.tools, turn.identity),
        hooks=turn.service.hooks,
        approvals=runtime.approvals(turn.service.approvals),
        recorder=turn.trajectory,
        validators=runtime.validators,
        on_result=partial(add_user_images, turn.run),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerTools:
    """The tools of the permitted MCP servers of a turn."""

    tools: Sequence[Tool]
    missing_servers: frozenset[str]
    """The servers that could not list their tools."""


async def list_server_tools(turn: TurnContext, policy: ToolPolicy) -> ServerTools:
    """List the tools of the permitted servers, all at once. A server that fails has none."""
    servers = permitted_servers(turn.servers, policy, turn.tools)
    found: dict[str, Sequence[Tool]] = {server.name: () for server in servers}
    missing: set[str] = set()

    async def list_tools(server: ToolServer) -> None:
        try:
            known = server.known_tools
            found[server.name] = await server.tools() if known is None else known
        except ToolServerError as error:
            missing.add(server.name)
            logger.info("the tools of %s are not shown: %s", server.name, error)
            turn.run.events.add(
                "server.unavailable", {"server": server.name, "problem": error.message}
            )

    async with anyio.create_task_group() as tasks:
        for server in servers:
            tasks.start_soon(list_tools, server)
    # Providers do not accept the names of operations, such as `$resources.read`.
    tools = [
        tool
        for listed in found.values()
        for tool in listed
        if not tool.name.startswith(OPERATION_MARK)
    ]
    return ServerTools(tools=tools, missing_servers=frozenset(missing))


async def measure_direct_tools(turn: TurnContext) -> int:
    """The size of the definitions of all tools of the turn, as a request without code mode or tool
    search would carry them. Of MCP servers, the tools count that are known by now."""
    policy = policy_for(turn.agent.tools, turn.identity)
    tools = [*turn.tools]
    if turn.servers:
        tools += list_known_tools(permitted_servers(turn.servers, policy, turn.tools))
    tools = effective_tools(tools, policy)
    if len(tools) <= _MAX_MEASURED_ON_LOOP:
        return sum(map(definition_bytes, tools))
    return await anyio.to_thread.run_sync(lambda: sum(map(definition_bytes, tools)))


async def call_directly(
    executor: ToolExecutor, tool: Tool, given: JsonObject, *, site: CallSite
) -> CallResult:
    """Call a tool for the model itself. A call that fails has a result, too."""
    try:
        value = await executor.call_directly(tool, given, site=site)
    except ToolError as error:
        return format_error(error.message)
    return await format_direct_result(DirectResult(value=value), is_mcp=tool.source == "mcp")
