"""Opens the tool surface of a turn: code mode, Tool Search, or all tools as they are."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

import anyio

from nacre.config import RunConfig
from nacre.errors import ToolError, ToolServerError
from nacre.messages import ToolSpec
from nacre.run_context import AbortController
from nacre.tool_search import start_run
from nacre.tools import (
    OPERATION_MARK,
    CallResult,
    CallSite,
    DirectResult,
    InvalidCall,
    ToolExecutor,
    assign_tool_names,
    effective_tools,
    format_error,
    format_result,
    parse_call,
    policy_for,
    verify_payload,
)

if TYPE_CHECKING:
    from collections.abc import Sequence, Set

    from nacre.agent.turn_context import TurnContext
    from nacre.code_mode import Runtime
    from nacre.config import AgentConfig
    from nacre.json_types import JsonObject
    from nacre.messages import SentPayload, ToolCallPart
    from nacre.tools import CallWaits, SurfaceKind, Tool, ToolServer, ToolSurface

logger = logging.getLogger(__name__)


def planned_surface(agent: AgentConfig, *, tools_disabled: bool = False) -> SurfaceKind:
    """The surface that the configuration asks for."""
    if tools_disabled:
        return "direct"
    if agent.tools.code_mode.enabled:
        return "code_mode"
    return "tool_search" if agent.tools.tool_search.enabled else "direct"


async def open_surface(turn: TurnContext, runtime: Runtime) -> ToolSurface:
    """Open the surface of a turn. Raises CatalogError for tools that cannot be in one catalog."""
    settings = turn.agent.tools
    policy = policy_for(settings, turn.identity)
    executor = ToolExecutor(
        context=turn.identity,
        policy=policy,
        hooks=turn.service.hooks,
        approvals=runtime.approvals(turn.service.approvals),
        recorder=turn.trajectory,
        validators=runtime.validators,
    )
    if turn.request.tools_disabled:
        return DirectSurface((), executor)
    servers = [server for server in turn.servers if policy.may_permit_server(server.name)]
    if settings.code_mode.enabled:
        # Namespaces read their own part of the document.
        config = RunConfig(document=turn.service.config.document, tools=settings)
        run = runtime.run_with(executor, config, tools=turn.tools, servers=servers)
        # A run without tools has nothing to put behind `exec`.
        return run if run.is_code_mode else DirectSurface(turn.tools, executor)
    if settings.tool_search.enabled:
        return await start_run(
            executor,
            settings.tool_search,
            tools=turn.tools,
            servers=servers,
            sandbox=runtime.sandbox,
        )
    return DirectSurface([*turn.tools, *await _list_server_tools(servers, turn)], executor)


async def _list_server_tools(servers: Sequence[ToolServer], turn: TurnContext) -> list[Tool]:
    """List the tools of all servers at once. A server that fails has none in this turn."""
    found: dict[str, Sequence[Tool]] = {server.name: () for server in servers}

    async def list_tools(server: ToolServer) -> None:
        try:
            known = server.known_tools
            found[server.name] = await server.tools() if known is None else known
        except ToolServerError as error:
            logger.warning("the tools of %s are not shown: %s", server.name, error)
            turn.run.events.add(
                "server.unavailable", {"server": server.name, "problem": error.message}
            )

    async with anyio.create_task_group() as tasks:
        for server in servers:
            tasks.start_soon(list_tools, server)
    # Providers do not accept the names of operations, such as `$resources.read`.
    return [
        tool
        for listed in found.values()
        for tool in listed
        if not tool.name.startswith(OPERATION_MARK)
    ]


class DirectSurface:
    """Shows the model all tools that policy permits, each with a unique name."""

    def __init__(self, tools: Sequence[Tool], executor: ToolExecutor) -> None:
        self.kind: SurfaceKind = "direct"
        self._tools = assign_tool_names(effective_tools(tools, executor.policy))
        self._executor = executor
        self._abort = AbortController()
        self._call_count = 0
        self.specs: Sequence[ToolSpec] = [
            ToolSpec(name=name, description=tool.description, parameters=tool.parameters)
            for name, tool in self._tools.items()
        ]

    def verify_payload(self, sent: SentPayload, *, instructions: str = "") -> None:
        verify_payload(sent, expected=tuple(self._tools))

    async def execute_call(self, call: ToolCallPart, waits: CallWaits) -> CallResult:
        try:
            given = parse_call(call.name, call.arguments, known=tuple(self._tools))
        except InvalidCall as error:
            return format_error(error.message)
        tool = self._tools[call.name]
        self._call_count += 1
        site = CallSite(call_id=call.call_id, abort=self._abort.signal)
        try:
            value = await self._executor.call_directly(tool, given, site=site)
        except ToolError as error:
            return format_error(error.message)
        return format_result(DirectResult(value=value).json_value, is_mcp=tool.source == "mcp")

    def is_held(self, call: ToolCallPart, *, open_ids: Set[str]) -> bool:
        return call.call_id in open_ids

    async def abort(self, reason: str) -> None:
        self._abort.abort(reason)

    def telemetry(self) -> DirectTelemetry:
        return DirectTelemetry(visible_tools=tuple(self._tools), call_count=self._call_count)


@dataclass(frozen=True, kw_only=True, slots=True)
class DirectTelemetry:
    """The counts of a surface that shows all tools."""

    visible_tools: tuple[str, ...]
    call_count: int

    def to_json(self) -> JsonObject:
        return {"visibleTools": list(self.visible_tools), "callCount": self.call_count}
