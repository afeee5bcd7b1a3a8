"""Runs for tests, and what came of their calls."""

from collections.abc import Sequence
from typing import Any

import anyio

from nacre.hooks import HookRunner, Hooks
from nacre.run_context import RunContext
from nacre.sandbox import Failed, Sandbox
from nacre.tool_search import ToolSearchResult, ToolSearchRun, start_run
from nacre.tool_search.tool_search import ConfigInput, run_config_from
from nacre.tools import Approvals, InputValidators, Tool, ToolExecutor, policy_for
from nacre.trajectory import EventKind, TrajectoryEvent, TrajectoryRecorder

CAUGHT = ".catch(e => ({name: e.name, message: e.message, code: e.code, toolId: e.toolId}))"


async def run_with(
    sandbox: Sandbox | None = None,
    *,
    tools: Sequence[Tool] = (),
    config: ConfigInput = None,
    hooks: Sequence[object] = (),
    approvals: Any = None,
    context: RunContext | None = None,
    **options: Any,
) -> ToolSearchRun:
    """A run in a sandbox that the test has open; without one, give `config={"mode": "tools"}`."""
    context = context or RunContext()
    configured = run_config_from(config).tools_for(context)
    executor = ToolExecutor(
        context=context,
        policy=policy_for(configured, context),
        hooks=HookRunner(Hooks(hooks)),
        approvals=Approvals(approvals),
        recorder=TrajectoryRecorder(context),
        validators=InputValidators(),
    )
    return await start_run(
        executor, configured.tool_search, tools=tools, sandbox=sandbox, **options
    )


def value_of(result: ToolSearchResult) -> Any:
    assert not isinstance(result.outcome, Failed), result
    assert not result.is_error, result
    return result.outcome.value


def failure_of(result: ToolSearchResult) -> ToolSearchResult:
    assert result.is_error, result
    return result


def reason_of(result: ToolSearchResult) -> str:
    """Why a program failed."""
    assert isinstance(result.outcome, Failed), result
    return result.outcome.reason


async def program(run: ToolSearchRun, code: str, call_id: str = "") -> ToolSearchResult:
    return await run.call("tool_search_code", {"code": code}, call_id=call_id)


def events_of(run: ToolSearchRun, kind: EventKind) -> list[TrajectoryEvent]:
    return [event for event in run.trajectory.events if event.kind == kind]


class Recorded:
    """Notices when a run records something; made before that can happen."""

    def __init__(self, run: ToolSearchRun, kind: EventKind) -> None:
        self._kind = kind
        self._happened = anyio.Event()
        run.trajectory.subscribe(self._notice)

    async def wait(self) -> None:
        with anyio.fail_after(10):
            await self._happened.wait()

    def _notice(self, event: TrajectoryEvent) -> None:
        if event.kind == self._kind:
            self._happened.set()
