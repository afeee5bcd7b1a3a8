"""The Codex harness: what the turns of all sessions share, and what happens outside of turns.

Codex owns the thread, the model loop, its own tools and compaction. Nacre owns the session, its own
tools, approvals, delivery and the mirror of what was said.
"""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final, cast
from weakref import WeakKeyDictionary

import anyio

from nacre.agent import heartbeat_tool, make_executor
from nacre.codex_harness.account import find_hook_ban, list_models, log_in
from nacre.codex_harness.app_server import AppServers
from nacre.codex_harness.client import is_unsupported
from nacre.codex_harness.codex_turn import SURFACE, CodexTurn, ThreadGuard, note_phase
from nacre.codex_harness.dynamic_tools import DynamicToolOptions, open_dynamic_tools
from nacre.codex_harness.hook_relay import make_generation, make_relay_id, open_hook_relay
from nacre.codex_harness.model_route import find_route, find_thread_route, find_tier
from nacre.codex_harness.native_hooks import NativeHooks, NativeScope
from nacre.codex_harness.observations import Observations
from nacre.codex_harness.permissions import NativeApprovals, resolve_permissions
from nacre.codex_harness.threads import LiveThread, ThreadBinding, ThreadBindings
from nacre.errors import AppServerError, CodexError
from nacre.telemetry import codex_turn_span
from nacre.tools import policy_for
from nacre.trajectory import TrajectoryRecorder

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Collection
    from contextlib import AbstractAsyncContextManager

    from anyio.abc import TaskGroup, TaskStatus

    from nacre.agent import CommandCall, ServiceContext, TurnContext
    from nacre.code_mode import Runtime
    from nacre.codex_harness.client import AppServerClient
    from nacre.codex_harness.dynamic_tools import DynamicTools
    from nacre.codex_harness.hook_relay import HookRelay
    from nacre.codex_harness.model_route import ModelRoute
    from nacre.config import AgentConfig, SystemConfig
    from nacre.json_types import JsonObject
    from nacre.run_context import AbortSignal
    from nacre.storage import SessionRecord, Store
    from nacre.telemetry import Span

# How long hooks may wait for the end of a compaction that was requested.
_COMPACTION_SECONDS: Final = 600.0


@asynccontextmanager
async def open_codex_harness(runtime: Runtime, store: Store) -> AsyncGenerator[CodexHarness]:
    """A harness whose app-servers and hook relay end with the block."""
    tasks = anyio.create_task_group()
    await tasks.__aenter__()
    try:
        async with AppServers() as servers:
            yield CodexHarness(runtime, store, servers=servers, tasks=tasks)
    finally:
        tasks.cancel_scope.cancel()
        # The group would only wrap what the block raised.
        await tasks.__aexit__(None, None, None)


class CodexHarness:
    """Runs the turns of all sessions that Codex is chosen for."""

    def __init__(
        self, runtime: Runtime, store: Store, *, servers: AppServers, tasks: TaskGroup
    ) -> None:
        self.servers = servers
        self.bindings = ThreadBindings(store)
        self._runtime = runtime
        self._tasks = tasks
        self._relay: HookRelay | None = None
        self._approvals: NativeApprovals | None = None
        self._known_models: WeakKeyDictionary[AppServerClient, frozenset[str]] = WeakKeyDictionary()
        self._logged_in: WeakKeyDictionary[AppServerClient, str] = WeakKeyDictionary()
        self._hook_bans: WeakKeyDictionary[AppServerClient, str] = WeakKeyDictionary()
        self._compactions: set[anyio.Event] = set()
        self._lock = anyio.Lock()

    def label(self, _model: str, _agent: AgentConfig, _config: SystemConfig, /) -> str:
        return "OpenAI Codex"

    def plan_surface(self, _turn: TurnContext, /) -> str:
        return SURFACE

    def needs_history(self, turn: TurnContext, /) -> bool:
        """The thread has the history; only hooks are given all messages of the session."""
        hooks = turn.service.hooks
        return hooks.has_hooks("llm_input") or hooks.has_hooks("before_prompt_build")

    async def run(self, turn: TurnContext, /) -> None:
        """Raises CodexError if there is no answer, and ProviderError if the model has failed."""
        turn.output.surface = SURFACE
        turn = _with_session_settings(turn)
        with codex_turn_span(turn.models[0], context=turn.identity) as span:
            try:
                await self._run(turn, find_route(turn.models[0], turn.service.config.models), span)
            except ExceptionGroup as group:
                raise _find_cause(group) from None

    async def compact(self, turn: TurnContext, /) -> str:
        """Start the native compaction of the session's thread; it goes on without the turn."""
        binding = await self.bindings.find(turn.run.session_id)
        if binding is None:
            raise CodexError("this session has no Codex thread yet: there is nothing to compact")
        turn = _with_session_settings(turn)
        config = turn.service.config
        # The process that has the thread: the next turn may be one of another provider.
        route = find_thread_route(
            turn.models[0], config.models, key=binding.provider, thread_model=binding.model
        )
        async with (
            self.servers.use(config.codex, turn.agent.id, route.provider_key) as client,
            # The next turn of the thread needs its hooks, and older versions load it only once.
            self._guard(NativeScope.of_turn(turn), turn.agent, turn.service, binding) as guard,
        ):
            live = LiveThread.find(client, binding.thread_id)
            if live is None:
                live = await self.open_thread(client, binding, route, stop=turn.stop, guard=guard)
            else:
                await _update_settings(client, live, route, guard)
            observations = Observations(turn, model=turn.models[0])
            live.on_idle_notification = observations.see_compaction
            started: JsonObject = {"threadId": binding.thread_id}
            await client.request("thread/compact/start", started, abort=turn.stop)
            live.expect_turn()
            # The model may not know any more what it was told; the next turn says it again.
            await self.bindings.put(turn.run.session_id, replace(binding, seen_prompt={}))
            self._tasks.start_soon(self._observe_compaction, observations, client)
        return f"Codex compacts its thread {binding.thread_id} now; you can go on."

    async def _observe_compaction(
        self, observations: Observations, client: AppServerClient
    ) -> None:
        async def close_with_client() -> None:
            await client.wait_closed()
            observations.close()

        ended = anyio.Event()
        self._compactions.add(ended)
        try:
            with anyio.move_on_after(_COMPACTION_SECONDS):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(close_with_client)
                    await observations.run()
                    tasks.cancel_scope.cancel()
        finally:
            self._compactions.remove(ended)
            ended.set()

    async def wait_for_compactions(self) -> None:
        """Wait for the end of all compactions: they would end with the process that runs them."""
        for ended in [*self._compactions]:
            await ended.wait()

    async def open_thread(
        self,
        client: AppServerClient,
        binding: ThreadBinding,
        route: ModelRoute,
        *,
        stop: AbortSignal,
        guard: ThreadGuard,
    ) -> LiveThread:
        """Load the thread of a session outside of a turn, with the settings of this moment.

        Raises AppServerError, and CodexError if its native calls could not be checked.
        """
        await self._require_hooks(client, guard)
        params: JsonObject = {
            "threadId": binding.thread_id,
            "model": route.model,
            "modelProvider": route.provider_key or None,
            **guard.thread_params(client.version),
            "config": {**route.thread_config(), **guard.thread_config()},
        }
        live = LiveThread.find(client, binding.thread_id)
        if live is not None:
            await live.unload(stop=stop)
        await client.request("thread/resume", params, abort=stop)
        return LiveThread(client, binding.thread_id, params=params)

    @asynccontextmanager
    async def guard_thread(
        self, call: CommandCall, binding: ThreadBinding
    ) -> AsyncGenerator[ThreadGuard]:
        """Let policy and hooks check the native calls of a command within the block."""
        scope = NativeScope(
            hooks=call.service.hooks,
            identity=call.identity,
            stop=call.run.abort_signal,
            trajectory=TrajectoryRecorder(call.identity),
        )
        service = apply_session_settings(call.service, call.session)
        async with self._guard(scope, call.agent, service, binding) as guard:
            yield guard

    @asynccontextmanager
    async def _guard(
        self,
        scope: NativeScope,
        agent: AgentConfig,
        service: ServiceContext,
        binding: ThreadBinding | None,
        *,
        dynamic_names: Collection[str] = (),
    ) -> AsyncGenerator[ThreadGuard]:
        codex = service.config.codex
        policy = policy_for(agent.tools, scope.identity)
        approvals = self._approvals = self._approvals or NativeApprovals(
            service.approvals, ttl_seconds=self._runtime.approval_seconds
        )
        hooks = NativeHooks(scope, policy=policy, approvals=approvals, dynamic_names=dynamic_names)
        relay = await self._open_relay()
        registration = relay.register(
            hooks,
            relay_id=make_relay_id(agent.id, scope.identity.session_id),
            generation=(binding.relay_generation if binding else "") or make_generation(),
            config=codex.hook_relay,
        )
        has_call_hooks = scope.hooks.has_hooks("before_tool_call")
        try:
            yield ThreadGuard(
                permissions=resolve_permissions(
                    codex.app_server, agent, has_call_hooks=has_call_hooks
                ),
                policy=policy,
                approvals=approvals,
                hooks=hooks,
                registration=registration,
                service_tier=codex.app_server.service_tier,
            )
        finally:
            relay.unregister(registration)

    async def reset(self, session_id: str, /) -> None:
        """Forget the thread of a session, and end the commands that it runs in the background."""
        live = await self.find_live(session_id)
        if live is not None:
            live.end_commands()
        await self.bindings.clear(session_id)

    async def find_live(self, session_id: str) -> LiveThread | None:
        """The thread of a session, if an app-server has it open."""
        binding = await self.bindings.find(session_id)
        client = binding and self.servers.find_by_thread(binding.thread_id)
        return LiveThread.find(client, binding.thread_id) if binding and client else None

    async def _run(self, turn: TurnContext, route: ModelRoute, span: Span) -> None:
        note_phase(turn, "startup")
        async with self._connect(turn, route) as client:
            begun = turn.transcript.begun
            bound = None if begun is None else begun.thread
            binding = None if bound is None else ThreadBinding.from_record(bound)
            problem = await self._run_on_thread(turn, route, client, binding, span)
            if problem:
                # At most once: a turn on a new thread is not repeated.
                note_phase(turn, "thread_ready_retry", reason=problem)
                turn.run.events.add("retry", {"attempt": 1, "delaySeconds": 0, "problem": problem})
                await self._run_on_thread(turn, route, client, None, span)

    async def _run_on_thread(
        self,
        turn: TurnContext,
        route: ModelRoute,
        client: AppServerClient,
        binding: ThreadBinding | None,
        span: Span,
    ) -> str:
        """Run the turn on the thread of its session, or a new one; as `CodexTurn.run`."""
        async with (
            self._open_tools(turn, route, client, binding) as tools,
            self._guard(
                NativeScope.of_turn(turn),
                turn.agent,
                turn.service,
                binding,
                dynamic_names=tools.registered_names,
            ) as guard,
        ):
            await self._require_hooks(client, guard)
            return await CodexTurn(
                turn,
                route=route,
                client=client,
                tools=tools,
                guard=guard,
                bindings=self.bindings,
                binding=binding,
                span=span,
            ).run()

    @asynccontextmanager
    async def _connect(
        self, turn: TurnContext, route: ModelRoute
    ) -> AsyncGenerator[AppServerClient]:
        """The app-server of a turn, ready for its model. Raises AbortedError."""
        async with AsyncExitStack() as stack:
            with turn.stop.cancelling():
                client = await stack.enter_async_context(
                    self.servers.use(turn.service.config.codex, turn.agent.id, route.provider_key)
                )
                await self._prepare(client, turn, route)
            turn.stop.raise_if_aborted()
            yield client

    def _open_tools(
        self,
        turn: TurnContext,
        route: ModelRoute,
        client: AppServerClient,
        binding: ThreadBinding | None,
    ) -> AbstractAsyncContextManager[DynamicTools]:
        codex = turn.service.config.codex
        options = DynamicToolOptions(
            version=client.version,
            loading=codex.tools_loading,
            exclude=codex.tools_exclude,
            has_tool_search=self._has_tool_search(client, route),
            direct_names=frozenset(("message",) if turn.reply_mode == "message_tool" else ()),
            # Every turn of a thread has the same tools, and a later one may be a heartbeat.
            later_tools=[heartbeat_tool(None)],
            thread_fingerprint=binding.tools_fingerprint if binding else "",
        )
        executor = make_executor(turn, self._runtime)
        return open_dynamic_tools(turn, executor, options, tasks=self._tasks)

    async def _prepare(self, client: AppServerClient, turn: TurnContext, route: ModelRoute) -> None:
        """Once for each process: log in, and ask for the models."""
        codex = turn.service.config.codex
        async with self._lock:
            key = route.provider.api_key
            if not route.provider_key and self._logged_in.get(client) != key:
                await log_in(client, key, may_store=not codex.app_server.uses_home_of_user)
                self._logged_in[client] = key
            if client not in self._known_models:
                self._known_models[client] = await list_models(client, codex)

    async def _require_hooks(self, client: AppServerClient, guard: ThreadGuard) -> None:
        """Raises CodexError if a hook has to decide, and Codex would not run it."""
        if not guard.needs_hooks:
            return
        async with self._lock:
            if client not in self._hook_bans:
                self._hook_bans[client] = await find_hook_ban(client)
        if ban := self._hook_bans[client]:
            raise CodexError(
                "Codex on this machine runs only the hooks of its administrator "
                f"({ban} in its requirements), so that Nacre could not check native calls; ask the "
                "administrator, remove the tool rules and hooks of this agent, or set "
                '`agentRuntime.id` of the model to "openclaw"'
            )

    def _has_tool_search(self, client: AppServerClient, route: ModelRoute) -> bool:
        """Codex gives an unknown model neither its tool search nor its patch tool."""
        known = self._known_models.get(client, frozenset())
        return not known or (route.model in known and not route.model.endswith("-nano"))

    async def _open_relay(self) -> HookRelay:
        """The relay of native hooks, which the first turn opens."""
        async with self._lock:
            relay = self._relay
            if relay is None:
                relay = self._relay = await self._tasks.start(self._hold_relay)
            return relay

    async def _hold_relay(self, *, task_status: TaskStatus[HookRelay]) -> None:
        async with open_hook_relay() as relay:
            task_status.started(relay)
            await anyio.sleep_forever()


async def _update_settings(
    client: AppServerClient, live: LiveThread, route: ModelRoute, guard: ThreadGuard
) -> None:
    """Give an open thread the settings of this moment, which a turn would send with its start."""
    settings: JsonObject = {
        "threadId": live.id,
        "model": route.model,
        "approvalPolicy": guard.permissions.approval_policy,
        "approvalsReviewer": guard.permissions.reviewer,
        "serviceTier": find_tier(guard.service_tier, client.version),
    }
    try:
        await client.request("thread/settings/update", settings)
    except AppServerError as error:
        # Older versions have the settings of the last turn.
        if not is_unsupported(error):
            raise


def _with_session_settings(turn: TurnContext) -> TurnContext:
    begun = turn.transcript.begun
    return replace(
        turn, service=apply_session_settings(turn.service, None if begun is None else begun.session)
    )


def apply_session_settings(
    service: ServiceContext, session: SessionRecord | None
) -> ServiceContext:
    """The service with the tier and the permissions that were chosen with `/codex`."""
    if session is None or not (session.service_tier or session.permission_mode):
        return service
    server = service.config.codex.app_server
    if session.service_tier:
        is_fast = session.service_tier == "priority"
        server = replace(server, service_tier="priority" if is_fast else None)
    if session.permission_mode == "yolo":
        server = replace(
            server,
            mode="yolo",
            approval_policy="never",
            sandbox="danger-full-access",
            approvals_reviewer="user",
            has_own_policy=True,
        )
    codex = replace(service.config.codex, app_server=server)
    return replace(service, config=replace(service.config, codex=codex))


def _find_cause(error: Exception) -> Exception:
    """The error that has ended a turn, without the groups of its tasks."""
    while isinstance(error, ExceptionGroup):
        error = cast("ExceptionGroup[Exception]", error).exceptions[0]
    return error
