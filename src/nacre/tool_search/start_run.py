"""How a run with Tool Search comes to be: policy, surface, sandbox or not, catalog, call path."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from nacre.run_context import AbortController
from nacre.telemetry import CatalogCounters
from nacre.tool_search.catalog_access import RunTools
from nacre.tool_search.live_catalog import LiveCatalog
from nacre.tool_search.model_surface import (
    direct_surface,
    is_tool_search_active,
    searchable_surface,
)
from nacre.tool_search.programs import Programs
from nacre.tool_search.run import ToolSearchRun
from nacre.tools import InputValidators, ToolExecutor, effective_tools
from nacre.trajectory import TrajectoryRecorder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nacre.config.tool_search import ToolSearchConfig
    from nacre.hooks import HookRunner
    from nacre.run_context import RunContext
    from nacre.sandbox import Sandbox
    from nacre.tools import Approvals, Tool, ToolPolicy
    from nacre.tools.tool_servers import ToolServer

logger = logging.getLogger(__name__)


async def start_run(
    *,
    tools: Sequence[Tool],
    servers: Sequence[ToolServer] = (),
    sandbox: Sandbox | None,
    config: ToolSearchConfig,
    policy: ToolPolicy,
    context: RunContext,
    hooks: HookRunner,
    approvals: Approvals,
    is_code_mode: bool = False,
    tools_disabled: bool = False,
    validators: InputValidators | None = None,
) -> ToolSearchRun:
    """A run over what policy leaves of its tools. `sandbox` is one that is open; it may be shared.

    Where code is asked for and no worker starts, the model is shown the structured tools instead.
    Raises CatalogError for tools that cannot be together.
    """
    allowed = [] if tools_disabled else effective_tools(tools, policy)
    is_active = is_tool_search_active(
        config, is_code_mode=is_code_mode, tools=allowed, has_servers=bool(servers)
    )
    problem = ""
    if is_active and config.mode == "code":
        problem = await _problem_with(sandbox)
    mode = "tools" if problem else config.mode
    surface = (
        searchable_surface(allowed, mode=mode, server_names=[server.name for server in servers])
        if is_active
        else direct_surface(allowed)
    )
    trajectory = TrajectoryRecorder(context)
    run_tools = RunTools(
        catalog=LiveCatalog(
            tools if is_active else (), servers=servers if is_active else (), policy=policy
        ),
        executor=ToolExecutor(
            context=context,
            policy=policy,
            hooks=hooks,
            approvals=approvals,
            recorder=trajectory,
            validators=validators or InputValidators(),
        ),
        counters=CatalogCounters(),
        config=config,
    )
    programs = None
    if surface.mode == "code" and sandbox is not None:
        programs = Programs(sandbox, run_tools, context=context, recorder=trajectory)
    return ToolSearchRun(
        surface=surface,
        tools=run_tools,
        programs=programs,
        context=context,
        trajectory=trajectory,
        abort=AbortController(),
        fallback_reason=problem,
    )


async def _problem_with(sandbox: Sandbox | None) -> str:
    """Why no program can run; empty if one can."""
    problem = "there is no sandbox" if sandbox is None else (await sandbox.check()).problem
    if problem:
        logger.warning("Tool Search shows no code, as no sandbox can be started: %s", problem)
    return problem
