"""An agent service and everything that a test wants to see of it."""

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import anyio
import anyio.to_thread

from nacre.agent import (
    AgentRun,
    AgentService,
    BuiltInHarness,
    FailedTurnWrites,
    Harness,
    RunEvent,
    ServiceContext,
    TurnRequest,
)
from nacre.code_mode import Runtime
from nacre.config.agents import AgentConfig
from nacre.config.system import SystemConfig, system_config_from
from nacre.hooks import ContextRegistry, HookRunner, Hooks
from nacre.messages import Message
from nacre.run_context import RunContext
from nacre.sandbox import KeyRing
from nacre.storage import Store
from nacre.tools import ApprovalQueue, Tool
from nacre.tools.definition import ToolServer
from tests.agent.fake_models import FakeModel, FakeModels

CODE_MODE: Mapping[str, object] = {"tools": {"codeMode": {"enabled": True}}}
TOOL_SEARCH: Mapping[str, object] = {"tools": {"toolSearch": {"mode": "tools"}}}


@dataclass(kw_only=True)
class AgentSetup:
    """What a test holds."""

    service: AgentService
    config: SystemConfig
    model: FakeModel
    spare_model: FakeModel
    store: Store
    runtime: Runtime
    approvals: ApprovalQueue
    hooks: Hooks

    async def start(self, message: str = "hello", **options: Any) -> AgentRun:
        return await self.service.start(TurnRequest(message=message, **options))

    async def turn(self, message: str = "hello", **options: Any) -> AgentRun:
        """A whole turn."""
        run = await self.start(message, **options)
        with anyio.fail_after(30):
            await run.wait()
        return run

    async def kept(self, session_id: str) -> list[Message]:
        return [stored.message for stored in await self.store.messages(session_id)]


class GivenServers:
    """The same servers for every session."""

    def __init__(self, servers: Sequence[ToolServer]) -> None:
        self._servers = servers

    def __call__(
        self, _session_id: str, /, *, is_kept: bool
    ) -> AbstractContextManager[Sequence[ToolServer]]:
        return nullcontext(self._servers)


class GivenTools:
    """The same tools for every run."""

    def __init__(self, tools: Iterable[Tool]) -> None:
        self._tools = tuple(tools)

    def tools(self, agent: AgentConfig, context: RunContext, /) -> Sequence[Tool]:
        return self._tools


@asynccontextmanager
async def open_agent(
    *,
    store: Store,
    folder: Path,
    document: Mapping[str, object] | None = None,
    agent: Mapping[str, object] | None = None,
    tools: Iterable[Tool] = (),
    hooks: Iterable[object] = (),
    servers: Sequence[ToolServer] = (),
    context_tokens: int = 100_000,
    approval_seconds: float = 3600,
    harness: Harness | None = None,
    contexts: ContextRegistry | None = None,
    keys: KeyRing | None = None,
) -> AsyncGenerator[AgentSetup]:
    """Without a document the tools are shown as they are; `agent` are settings of the agent. With
    `keys`, turns and their cells are durable."""
    defaults = {"model": "fake/model", "instructions": "Be good.", **(agent or {})}
    agents = cast("dict[str, Any]", (document or {}).get("agents", {}))
    whole = {
        "models": {"providers": {"fake": {"baseUrl": "http://127.0.0.1:1/v1", "apiKey": "x"}}},
        **(document or {}),
        "agents": {**agents, "defaults": defaults},
    }
    # Looks for folders, so not on the event loop.
    config = await anyio.to_thread.run_sync(
        partial(system_config_from, whole, environment={}, folder=folder)
    )
    model = FakeModel(context_tokens=context_tokens)
    spare = FakeModel("fake/spare")
    models = FakeModels({"fake/model": model, "fake/spare": spare, str(defaults["model"]): model})
    registered = Hooks(hooks)
    approvals = ApprovalQueue()
    async with (
        Runtime(
            whole,
            workers=1,
            approval_seconds=approval_seconds,
            is_lazy=True,
            snapshot_keys=keys,
            cell_store=None if keys is None else store.cells,
        ) as runtime,
        AgentService(
            ServiceContext(
                config=config,
                store=store,
                failed_writes=FailedTurnWrites(store),
                providers=lambda: nullcontext(models),
                tools=GivenTools(tools),
                servers=GivenServers(servers),
                hooks=HookRunner(registered),
                approvals=approvals,
                harness=harness or BuiltInHarness(runtime),
                context_registry=contexts or ContextRegistry(),
                is_durable=keys is not None,
            )
        ) as service,
    ):
        yield AgentSetup(
            service=service,
            config=config,
            model=model,
            spare_model=spare,
            store=store,
            runtime=runtime,
            approvals=approvals,
            hooks=registered,
        )


def kinds(run: AgentRun) -> list[str]:
    return [event.kind for event in run.events.events]


def events_of(run: AgentRun, kind: str) -> list[RunEvent]:
    return [event for event in run.events.events if event.kind == kind]


async def event_of(run: AgentRun, kind: str) -> RunEvent:
    """The first event of this kind, once there is one."""
    with anyio.fail_after(30):
        async for event in run.events.follow():
            if event.kind == kind:
                return event
    raise AssertionError(f"the run ended without {kind}")
