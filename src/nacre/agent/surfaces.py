"""Opens the tool surface of a run: code mode, Tool Search, or all tools as they are."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import anyio

from nacre.agent.code_mode_surface import CodeModeSurface
from nacre.agent.tool_search_surface import ToolSearchSurface
from nacre.agent.tool_surface import (
    CallResult,
    assign_tool_names,
    format_error_result,
    format_result,
    parse_arguments,
    unknown_tool,
    verify_names,
)
from nacre.code_mode import DirectResult
from nacre.code_mode.run_config import RunConfig
from nacre.errors import ToolError, ToolServerError
from nacre.hooks import HookRunner
from nacre.messages import SentPayload, ToolSpec
from nacre.run_context import AbortController
from nacre.tool_search import start_run
from nacre.tools import (
    OPERATION_MARK,
    ApprovalQueue,
    CallSite,
    Tool,
    ToolExecutor,
    ToolPolicy,
    ToolServer,
    effective_tools,
    policy_for,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence, Set

    from nacre.agent.tool_surface import SurfaceKind, ToolSurface
    from nacre.agent.turn_context import ExternalWaits
    from nacre.code_mode import Runtime
    from nacre.config import AgentConfig
    from nacre.hooks import Hooks
    from nacre.json_types import JsonObject
    from nacre.messages import ToolCallPart
    from nacre.run_context import RunContext
    from nacre.trajectory import TrajectoryRecorder


class DirectSurface:
    """Tools that policy left, each under a name of its own."""

    def __init__(
        self, tools: Sequence[Tool], *, executor: ToolExecutor, trajectory: TrajectoryRecorder
    ) -> None:
        self.kind: SurfaceKind = "direct"
        self._tools = assign_tool_names(tools)
        self._executor = executor
        self._abort = AbortController()
        self._call_count = 0
        self.trajectory = trajectory
        self.specs: Sequence[ToolSpec] = [
            ToolSpec(name=name, description=tool.description, parameters=tool.parameters)
            for name, tool in self._tools.items()
        ]

    def verify(self, sent: SentPayload) -> None:
        verify_names(sent.tool_names, expected=tuple(self._tools))

    async def call(self, call: ToolCallPart) -> CallResult:
        tool = self._tools.get(call.name)
        if tool is None:
            return unknown_tool(call.name, tuple(self._tools))
        arguments = parse_arguments(call.arguments)
        if isinstance(arguments, CallResult):
            return arguments
        self._call_count += 1
        site = CallSite(call_id=call.call_id, abort=self._abort.signal)
        try:
            value = await self._executor.call_directly(tool, arguments, site=site)
        except ToolError as error:
            return format_error_result(error.message)
        # What JSON cannot hold is named by its type.
        shown = DirectResult(value=value).to_json()["value"]
        return format_result(shown, is_mcp=tool.source == "mcp")

    def is_held(self, call: ToolCallPart, *, open_ids: Set[str]) -> bool:
        return call.call_id in open_ids

    async def abort(self, reason: str) -> None:
        self._abort.abort(reason)

    def telemetry(self) -> JsonObject:
        return {"visibleTools": list(self._tools), "callCount": self._call_count}


logger = logging.getLogger(__name__)


class SurfaceFactory:
    """Opens the surfaces of a service's runs."""

    def __init__(self, *, runtime: Runtime, hooks: Hooks, approvals: ApprovalQueue) -> None:
        self._runtime = runtime
        self._hooks = hooks
        self._hook_runner = HookRunner(hooks)
        self._approvals = approvals

    async def open(
        self,
        agent: AgentConfig,
        *,
        document: Mapping[str, object],
        tools: Sequence[Tool],
        servers: Sequence[ToolServer],
        context: RunContext,
        outside: ExternalWaits,
        trajectory: TrajectoryRecorder,
        instructions: str,
        tools_disabled: bool,
        on_unavailable: Callable[[str, str], None],
    ) -> ToolSurface:
        """Raises CatalogError for tools that cannot be together.

        `document` is for namespaces, which read their own part of it. `on_unavailable` is called
        for servers whose tools the model does not see, with the reason.
        """
        policy = policy_for(agent.tools, context)
        servers = [server for server in servers if policy.may_permit_server(server.name)]
        code_mode, tool_search = agent.tools.code_mode, agent.tools.tool_search
        if tools_disabled:
            return self._direct([], policy, trajectory)
        if code_mode.enabled:
            run = self._runtime.run(
                tools=tools,
                context=context,
                hooks=self._hooks,
                approvals=self._approvals,
                mcp=servers,
                config=RunConfig(document=document, tools=agent.tools),
                trajectory=trajectory,
            )
            if not run.is_code_mode:
                # Nothing is left that could be hidden.
                return self._direct(tools, policy, trajectory)
            return CodeModeSurface(
                run, outside=outside, snapshot_ttl_seconds=code_mode.snapshot_ttl_seconds
            )
        if tool_search.enabled:
            searching = await start_run(
                tools=tools,
                servers=servers,
                sandbox=self._runtime.sandbox,
                config=tool_search,
                policy=policy,
                context=context,
                hooks=self._hook_runner,
                approvals=self._runtime.approvals(self._approvals),
                validators=self._runtime.validators,
                trajectory=trajectory,
            )
            return ToolSearchSurface(searching, instructions=instructions)
        listed = await _list_server_tools(servers, on_unavailable)
        return self._direct([*tools, *listed], policy, trajectory)

    def _direct(
        self, tools: Sequence[Tool], policy: ToolPolicy, trajectory: TrajectoryRecorder
    ) -> DirectSurface:
        executor = ToolExecutor(
            context=trajectory.context,
            policy=policy,
            hooks=self._hook_runner,
            approvals=self._runtime.approvals(self._approvals),
            recorder=trajectory,
            validators=self._runtime.validators,
        )
        allowed = effective_tools(tools, policy)
        return DirectSurface(allowed, executor=executor, trajectory=trajectory)


def planned_surface(agent: AgentConfig, *, tools_disabled: bool = False) -> SurfaceKind:
    """The surface that the configuration asks for."""
    if tools_disabled:
        return "direct"
    if agent.tools.code_mode.enabled:
        return "code_mode"
    return "tool_search" if agent.tools.tool_search.enabled else "direct"


async def _list_server_tools(
    servers: Sequence[ToolServer], on_unavailable: Callable[[str, str], None]
) -> list[Tool]:
    """What the servers offer, all asked at once; one that does not answer has none for this run."""
    found: dict[str, Sequence[Tool]] = {server.name: () for server in servers}

    async def ask(server: ToolServer) -> None:
        try:
            known = server.known_tools
            found[server.name] = await server.tools() if known is None else known
        except ToolServerError as error:
            logger.warning("the tools of %s are not shown: %s", server.name, error)
            on_unavailable(server.name, error.message)

    async with anyio.create_task_group() as tasks:
        for server in servers:
            tasks.start_soon(ask, server)
    # What a server offers besides tools has no name that a provider would take.
    return [
        tool
        for listed in found.values()
        for tool in listed
        if not tool.name.startswith(OPERATION_MARK)
    ]
