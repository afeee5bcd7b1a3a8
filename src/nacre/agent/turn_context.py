"""What all harnesses share: the context of a service and of a turn, its budget and its tools."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

import anyio
import anyio.to_thread

from nacre.agent.context_engine import TurnEngine
from nacre.agent.heartbeat import TRIGGER, heartbeat_tool
from nacre.agent.replies import add_user_images, choose_reply_mode
from nacre.agent.transcript import Transcript
from nacre.agent.turn_state import DurableTurn, can_be_stored
from nacre.errors import NacreError, ToolError, ToolServerError
from nacre.hooks import NO_ENGINES, ContextRegistry
from nacre.messages import Usage
from nacre.run_context import AbortController, RunContext
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
from nacre.trajectory import TrajectoryRecorder

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence, Set
    from contextlib import AbstractContextManager

    from nacre.agent.model_step import ProviderSource
    from nacre.agent.run import AgentRun
    from nacre.agent.session_queue import QueuedTurn, SessionQueue
    from nacre.agent.transcript import FailedTurnWrites
    from nacre.agent.turn_request import TurnRequest
    from nacre.agent.turn_state import StoredTurn
    from nacre.code_mode import Runtime
    from nacre.config import AgentConfig, SystemConfig, VisibleReplies
    from nacre.hooks import HookRunner
    from nacre.json_types import JsonObject, JsonValue
    from nacre.messages import FinishReason, Message
    from nacre.run_context import AbortSignal
    from nacre.storage import Store, ThreadRecord
    from nacre.tools import ApprovalQueue, CallSite, Tool, ToolPolicy, ToolServer

logger = logging.getLogger(__name__)

ProvidersInUse: TypeAlias = "Callable[[], AbstractContextManager[ProviderSource]]"

_MAX_MEASURED_ON_LOOP: Final = 200


class ServersInUse(Protocol):
    """The MCP servers of a session, by its id; they stay open until the context manager exits, and
    end then if the session is not stored."""

    def __call__(
        self, session_id: str, /, *, is_kept: bool
    ) -> AbstractContextManager[Sequence[ToolServer]]: ...


class ToolSource(Protocol):
    """The source of an agent's tools: core tools and tools of plugins."""

    def tools(self, agent: AgentConfig, context: RunContext, /) -> Sequence[Tool]:
        """The tools of this run, before policy."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class ServiceContext:
    """Shared by all turns of a service. A change of the configuration makes a new one."""

    config: SystemConfig
    store: Store
    failed_writes: FailedTurnWrites
    providers: ProvidersInUse
    """Opens the models; they stay open until the context manager exits."""
    tools: ToolSource
    servers: ServersInUse
    hooks: HookRunner
    approvals: ApprovalQueue
    harness: Harness
    context_registry: ContextRegistry = field(default_factory=ContextRegistry)
    """The context engines and the guidance of plugins."""
    is_durable: bool = False
    """Whether turns in code mode with `durable: true` are stored while they wait."""
    end_hooks: AbortController = field(default_factory=AbortController)
    """Aborted when closing the service no longer waits for `agent_end` hooks."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnContext:
    """One turn: its request, everything that it uses, and its output.

    The configuration, models, servers and tools stay the same until the turn ends.
    """

    service: ServiceContext
    run: AgentRun
    request: TurnRequest
    agent: AgentConfig
    identity: RunContext
    """Passed to tools and hooks."""
    providers: ProviderSource
    servers: Sequence[ToolServer]
    tools: Sequence[Tool]
    """The tools of the agent and of the client, before policy."""
    reply_mode: VisibleReplies
    """Whether the user sees the answer, or only what is sent with the tool `message`. The answer of
    a heartbeat is never shown."""
    queue: SessionQueue
    engine: TurnEngine | None
    """The context engine; None if none is configured."""
    transcript: Transcript
    trajectory: TrajectoryRecorder
    budget: RunBudget
    waits: ExternalWaits
    output: TurnOutput
    durable: DurableTurn | None = None
    """Stores the turn while it waits; None if it ends with the process."""
    continued: StoredTurn | None = None
    """Set if another process has begun the turn."""

    @property
    def models(self) -> tuple[str, ...]:
        """The first model to call, and its fallbacks."""
        return _models(self.request, self.agent)

    @property
    def stop(self) -> AbortSignal:
        """Aborted when the turn has to end early: by its caller, or at its time limit."""
        return self.run.abort_signal


@contextmanager
def open_turn_context(
    service: ServiceContext, queued: QueuedTurn, queue: SessionQueue, agent: AgentConfig
) -> Generator[TurnContext]:
    """Collect everything for a turn at one moment; models and servers stay open."""
    run, request, continued = queued.run, queued.request, queued.continued
    identity = RunContext(
        agent_id=agent.id,
        session_id=run.session_id,
        session_key=run.session_key,
        run_id=run.id,
        sender=request.sender,
        channel=request.channel,
        trigger=TRIGGER if request.heartbeat else "",
        is_sandboxed=agent.is_sandboxed(run.session_key),
    )
    prompt = request.user_message
    seconds = agent.timeout_seconds
    if request.heartbeat is not None:
        seconds = min(seconds, request.heartbeat.config.timeout_seconds)
    budget = RunBudget(replace(agent, timeout_seconds=seconds))
    if continued is not None:
        budget.restore(
            steps=continued.steps, usage=continued.usage, seconds_left=continued.seconds_left
        )
    durable: DurableTurn | None = None
    is_durable = service.is_durable and run.is_stored and agent.tools.code_mode.durable
    if is_durable and can_be_stored(request):
        version = 0 if continued is None else continued.version
        durable = DurableTurn(run, service.store.cells, version=version)
    servers_in_use = service.servers(run.session_id, is_kept=run.is_stored)
    tools = [*service.tools.tools(agent, identity)]
    if request.client_tools:
        run.client_calls.expiry_seconds = agent.tools.code_mode.snapshot_ttl_seconds
        tools += run.client_calls.as_tools(request.client_tools)
    if request.heartbeat is not None:
        tools.append(heartbeat_tool(request.heartbeat))
    reply_mode = choose_reply_mode(
        service.config,
        agent=agent,
        request=request,
        identity=identity,
        tools=tools,
        model=_models(request, agent)[0],
    )
    is_private = reply_mode == "message_tool" or request.heartbeat is not None
    is_chat = not request.action and request.manual_call is None
    run.events.is_private = is_private and is_chat
    with service.providers() as providers, servers_in_use as servers:
        yield TurnContext(
            service=service,
            run=run,
            request=request,
            agent=agent,
            identity=identity,
            providers=providers,
            servers=servers,
            tools=tools,
            reply_mode=reply_mode,
            queue=queue,
            engine=_find_engine(service),
            transcript=Transcript(
                service.store if run.is_stored else None,
                session_id=run.session_id,
                run_id=run.id,
                given_history=request.history,
            ),
            trajectory=TrajectoryRecorder(
                identity, after=None if continued is None else continued.last_recorded
            ),
            budget=budget,
            waits=ExternalWaits(run, budget, durable),
            output=_restore_output(continued)
            if continued is not None
            else TurnOutput(
                # A command is not part of the conversation.
                messages=[] if prompt is None or request.action else [prompt],
                model=_models(request, agent)[0],
            ),
            durable=durable,
            continued=continued,
        )


def _find_engine(service: ServiceContext) -> TurnEngine | None:
    engine_id = service.config.plugins.context_engine
    return None if engine_id in NO_ENGINES else TurnEngine(service.context_registry, engine_id)


def _restore_output(continued: StoredTurn) -> TurnOutput:
    return TurnOutput(
        messages=[*continued.messages],
        model=continued.model,
        text=continued.text,
        finish_reason=continued.finish_reason,
    )


def _models(request: TurnRequest, agent: AgentConfig) -> tuple[str, ...]:
    chosen = request.model or request.session_model
    return (chosen,) if chosen else (agent.model, *agent.fallback_models)


class BudgetExceededError(NacreError):
    """A run has reached one of its limits; the message names the setting."""


class RunBudget:
    """Counts the model calls, the tokens and the time of a run.

    The clock stops while the run waits for people or clients.
    """

    def __init__(self, agent: AgentConfig) -> None:
        self._agent = agent
        self._seconds_left = agent.timeout_seconds
        self._resumed_at: float | None = None
        self._change = anyio.Event()
        self.steps = 0
        self.usage = Usage()

    def restore(self, *, steps: int, usage: Usage, seconds_left: float) -> None:
        """Continue the counts of another process."""
        self.steps, self.usage = steps, usage
        self._seconds_left = min(self._seconds_left, seconds_left)

    def seconds_left(self) -> float:
        """The time that the run may still take."""
        if self._resumed_at is None:
            return self._seconds_left
        return self._seconds_left - (anyio.current_time() - self._resumed_at)

    def take_step(self) -> None:
        """Count a model call that is about to be made; raises BudgetExceededError."""
        if error := self._find_exceeded(has_steps=True, has_tokens=True):
            raise error
        self.steps += 1

    def note_native_call(self, usage: Usage) -> BudgetExceededError | None:
        """Count a model call that another program has made; returns why it may make no further one.

        Its model loop is its own, so that only limits count that somebody has written.
        """
        self.steps += 1
        self.add(usage)
        agent = self._agent
        return self._find_exceeded(
            has_steps=agent.has_own_max_steps, has_tokens=agent.has_own_max_tokens
        )

    def _find_exceeded(self, *, has_steps: bool, has_tokens: bool) -> BudgetExceededError | None:
        agent = self._agent
        if has_steps and self.steps >= agent.max_steps:
            return BudgetExceededError(
                f"the run has made {self.steps} model calls without an end; "
                f"`maxSteps` of the agent {agent.id} is {agent.max_steps}"
            )
        if has_tokens and self.usage.total_tokens >= agent.max_tokens:
            return BudgetExceededError(
                f"the run has used {self.usage.total_tokens} tokens; "
                f"`maxTokens` of the agent {agent.id} is {agent.max_tokens}"
            )
        return None

    def add(self, usage: Usage) -> None:
        self.usage = self.usage + usage

    def set_running(self, is_running: bool) -> None:
        """Start or stop the clock."""
        now = anyio.current_time()
        if self._resumed_at is not None:
            self._seconds_left -= now - self._resumed_at
        self._resumed_at = now if is_running else None
        change, self._change = self._change, anyio.Event()
        change.set()

    async def time_is_up(self) -> str:
        """Return when the time is used up, with a message that names the limit."""
        while True:
            left = float("inf") if self._resumed_at is None else self.seconds_left()
            if left <= 0:
                agent = self._agent
                return (
                    f"the run took longer than {agent.timeout_seconds:g} seconds; "
                    f"`timeoutSeconds` of the agent {agent.id} says so"
                )
            with anyio.move_on_after(left):
                await self._change.wait()


class ExternalWaits:
    """The open approvals, client calls and questions of a run, and whether the run waits for
    nothing else."""

    def __init__(
        self, run: AgentRun, budget: RunBudget, durable: DurableTurn | None = None
    ) -> None:
        self.closed_count = 0
        """How many of them have been answered or withdrawn."""
        self._run = run
        self._budget = budget
        self._durable = durable
        self._open_before: set[str] = set()
        self._calls: dict[str, Callable[[Set[str]], bool]] = {}
        self._change = anyio.Event()

    def open_ids(self) -> set[str]:
        """The ids of the calls that wait for an approval, an answer or a client's result."""
        asked = {request.call_id for request in self._run.open_approvals}
        if (question := self._run.pending_input) is not None:
            asked.add(question.call_id)
        return asked | {call.call_id for call in self._run.pending_client_calls}

    async def any_closed(self, call_ids: Set[str]) -> None:
        """Return when one of these calls does not wait any more."""
        while self.open_ids().issuperset(call_ids):
            await self._change.wait()

    async def note_begun(self, call_id: str, /) -> None:
        """A call is permitted, and is about to have effects. Raises StorageError."""
        if self._durable is not None:
            await self._durable.note_begun(call_id)

    def begin(self, call_id: str, is_held: Callable[[Set[str]], bool] | None = None) -> None:
        """A call of the model runs.

        `is_held` is given the ids of all waiting calls and returns whether this call can continue
        only when one of them is answered. By default that is so when it is itself one of them.
        """
        self._calls[call_id] = is_held or (lambda open_ids: call_id in open_ids)

    def end(self, call_id: str) -> None:
        self._calls.pop(call_id, None)
        self.look()

    def look(self) -> None:
        """Something has changed: wake `any_closed`, and set whether the run waits."""
        open_ids = self.open_ids()
        self.closed_count += len(self._open_before - open_ids)
        self._open_before = open_ids
        change, self._change = self._change, anyio.Event()
        change.set()
        # Most changes are of calls that do not wait.
        is_held = bool(open_ids and self._calls) and all(
            is_held(open_ids) for is_held in self._calls.values()
        )
        self._set_waiting(is_held)
        if self._durable is not None and is_held:
            self._durable.note_change()

    def _set_waiting(self, is_waiting: bool) -> None:
        if self._run.has_ended or is_waiting == (self._run.state == "waiting"):
            return
        self._run.set_waiting(is_waiting)
        self._budget.set_running(not is_waiting)


class Harness(Protocol):
    """Runs the model loop of turns: calls the model, runs its tools, compacts its context.

    Everything around the loop serves every harness and stays outside of it: the session queue with
    its steering, aborts and the time limit, approvals, the event log, the transcript, the
    trajectory, the `agent_end` hooks and the span of the turn.
    """

    def label(self, model: str, agent: AgentConfig, config: SystemConfig, /) -> str:
        """The name that users see as the runtime of turns with this model."""
        ...

    def plan_surface(self, turn: TurnContext, /) -> str:
        """The kind of tools that the model is going to see; recorded when the turn begins."""
        ...

    def needs_history(self, turn: TurnContext, /) -> bool:
        """Whether to load the messages of the session when the turn begins. Without them, the
        harness calls `turn.transcript.ensure_loaded` when it needs them."""
        ...

    async def run(self, turn: TurnContext, /) -> None:
        """Run the loop until the model has answered; raises if there is no answer.

        - Write to `turn.output` as the answer comes in: a turn that is cut off keeps it.
        - Call `turn.budget.take_step()` before each model call, and add the usage of each answer.
        - Take `turn.queue.take_steered()` before each model call, and once more before the end.
        - Record calls in `turn.trajectory`, and keep `turn.waits` informed of those that run.
        - Return or raise soon after `turn.stop` is aborted; the task is cancelled otherwise.
        """
        ...

    async def compact(self, turn: TurnContext, /) -> str:
        """Shorten the context of the session, for a turn that does nothing else; returns the reply.

        The prompt of the turn is the command, which is not part of the conversation.
        """
        ...

    async def reset(self, session_id: str, /) -> None:
        """Forget everything that the harness itself holds about a session."""
        ...


@dataclass(kw_only=True, slots=True)
class TurnOutput:
    """The output of a turn; valid at every moment, since a turn may be cut off."""

    messages: list[Message]
    """The messages that the turn adds to its session, the user's first."""
    model: str
    """The model that gave the last answer; before that, the first to be called."""
    text: str = ""
    """The last answer; if the turn was cut off, the part that was received."""
    finish_reason: FinishReason = "stop"
    error: str = ""
    """Why the turn failed, if its loop ended without an exception."""
    surface: str = ""
    """The kind of tools that the model sees; empty until it is known."""
    thread: ThreadRecord | None = None
    """The thread of the session in another runtime, if the turn has changed it."""
    data: JsonObject = field(default_factory=dict[str, "JsonValue"])
    """Further members for the record of the turn."""


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
