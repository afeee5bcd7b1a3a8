"""One call through the one call path, from the servers that it needs to what comes of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from nacre.cli.tool_catalog import named_tool, open_catalog, servers_to_ask
from nacre.cli.tool_input import input_for
from nacre.cli.tools.outcomes import failure_of, outcome_of
from nacre.cli.tools.terminal_approver import ask_at_terminal
from nacre.errors import ToolError
from nacre.hooks import HookRunner
from nacre.tools import Approvals, CallSite, InputValidators, ToolExecutor
from nacre.trajectory import TrajectoryRecorder

if TYPE_CHECKING:
    from nacre.cli.tool_catalog import ConfiguredTools, OpenCatalog
    from nacre.cli.tool_input import ToolInput
    from nacre.run_context import AbortSignal
    from nacre.tool_search import ToolSearchResult

_CALL_ID: Final = "call_1"


async def call_tool(
    configured: ConfiguredTools,
    id_or_name: str,
    given: ToolInput,
    *,
    timeout_seconds: float,
    abort: AbortSignal,
) -> ToolSearchResult:
    """What comes of the call. Raises UsageProblem for input that the tool does not take."""
    names = servers_to_ask(configured, id_or_name)
    site = CallSite(call_id=_CALL_ID, abort=abort)
    try:
        async with open_catalog(
            configured, names, timeout_seconds=timeout_seconds, abort=abort
        ) as catalog:
            tool = named_tool(catalog, id_or_name).tool
            executor = _executor(catalog)
            value = await executor.call_directly(tool, input_for(tool, given), site=site)
            return outcome_of(tool, value)
    except ToolError as error:
        return failure_of(error)


def _executor(catalog: OpenCatalog) -> ToolExecutor:
    configured = catalog.configured
    return ToolExecutor(
        context=configured.context,
        policy=configured.policy,
        hooks=HookRunner(catalog.hooks),
        approvals=Approvals(ask_at_terminal),
        recorder=TrajectoryRecorder(configured.context),
        validators=InputValidators(),
    )
