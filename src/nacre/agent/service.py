"""Starts, follows, steers and aborts the turns of agents."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Self, cast

import anyio

from nacre.agent.approvals import ApprovalLog, SharedApprovals
from nacre.agent.built_in_commands import (
    BuiltInCommands,
    explain_mistake,
    explain_refusal,
    explain_renewal,
)
from nacre.agent.chat_commands import ChatCommands, CommandCall, CommandRuns
from nacre.agent.remote_runs import RemoteRun
from nacre.agent.run import AgentRun, RunRegistry
from nacre.agent.session_queue import SessionQueues, new_run_id
from nacre.agent.shared_sessions import SharedSessions
from nacre.agent.turn_request import SessionResolver, TurnRequest, new_session_id, resolve_record
from nacre.agent.turn_state import add_decision, read_turn_state
from nacre.config import choose_runtime
from nacre.errors import ConfigError, SessionError, StorageError
from nacre.messages import Usage
from nacre.telemetry import current_trace

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager
    from types import TracebackType

    from nacre.agent.chat_commands import CommandHandler, CommandLine, ServiceAction
    from nacre.agent.session_inbox import Placed
    from nacre.agent.turn_context import ServiceContext
    from nacre.agent.turn_request import ResolvedSession
    from nacre.config import AgentConfig, SystemConfig
    from nacre.json_types import JsonObject, JsonValue
    from nacre.storage import InboxItem, SessionRecord, TurnState
    from nacre.trajectory import RunEvent

# For the `agent_end` hooks of turns that closing the service has ended.
_END_HOOKS_SECONDS: Final = 2.0
_CLOSED: Final = "the agent service is shutting down"
_CLOSED_WAITING: Final = f"{_CLOSED}; the run waited for an answer of a person or a client"
_MAX_APPROVALS: Final = 1_000
# How long a turn that was taken over may take to ask again.
_REOPEN_SECONDS: Final = 5.0
_LOOK_SECONDS: Final = 0.02

logger = logging.getLogger(__name__)


class AgentService:
    """Runs the turns of all sessions. An async context manager.

    One turn of a session runs at a time; the queue mode decides about messages that come meanwhile.
    """

    def __init__(self, context: ServiceContext) -> None:
        self._context = context
        self._sessions = SessionResolver(context.config.agents, context.store)
        self._runs = RunRegistry()
        self._tasks = anyio.create_task_group()
        self._queues = SessionQueues(context, self._runs, self._tasks)
        self._command_runs = CommandRuns(store=context.store, runs=self._runs, tasks=self._tasks)
        self.commands = ChatCommands()
        """The chat commands; add those of a harness or of a program here."""
        built_in = BuiltInCommands(
            commands=self.commands, queues=self._queues, command_runs=self._command_runs
        )
        for command in built_in.as_commands():
            self.commands.add(command)
        self._approval_log = ApprovalLog(
            context.approvals, store=context.store, run_of=self._runs.get, tasks=self._tasks
        )
        self._is_closed = True
        self.shared: SharedSessions | None = None
        """The sessions of other gateways on the same database; None for SQLite."""
        if context.store.cluster is not None:
            self.shared = SharedSessions(context.store, context.store.cluster, self, self._runs)
            self._queues.discard_items = self.shared.discard
        self.approvals = SharedApprovals(
            context.approvals, log=self._approval_log, store=context.store, shared=self.shared
        )
        """The open approvals, also those of other gateways."""

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        try:
            if self.shared is not None:
                await self.shared.open(self._tasks)
        except BaseException:
            self._tasks.cancel_scope.cancel()
            await self._tasks.__aexit__(None, None, None)
            raise
        self._tasks.start_soon(self._approval_log.write)
        self._tasks.start_soon(self._context.failed_writes.write)
        self._is_closed = False
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with anyio.CancelScope(shield=True):
            await self.aclose()
        if isinstance(error, Exception):
            # All turns have ended; the group would only wrap what our caller raised.
            kind = error = traceback = None
        await self._tasks.__aexit__(kind, error, traceback)

    async def aclose(self, grace_seconds: float = 0.0) -> None:
        """Take no more turns. Running turns have `grace_seconds` to end before they are aborted;
        turns that wait for people or clients are left to the next process if they are durable, and
        aborted at once otherwise. Queued messages are stored in
        their sessions."""
        self._is_closed = True
        if self.shared is not None:
            self.shared.leave()
            self._queues.leave_queued()
        self._queues.hurry()
        async with anyio.create_task_group() as tasks:
            for run in self._runs.live():
                tasks.start_soon(run.detach)
        with anyio.move_on_after(grace_seconds):
            await self._wait_until_idle()
        self._queues.abort_all(_CLOSED)
        self._command_runs.abort_all(_CLOSED)
        with anyio.move_on_after(_END_HOOKS_SECONDS):
            await self._queues.until_idle()
        self._context.end_hooks.abort(_CLOSED)
        await self._queues.until_idle()
        self._context.failed_writes.close()
        self._approval_log.close()
        if self.shared is not None:
            await self._approval_log.settle()
            await self.shared.close()

    async def continue_turns(self) -> list[AgentRun]:
        """Continue the turns that waited for people or clients when their process ended. Call it
        once, at startup. On a database server, sessions of processes that end later are taken over,
        too. Raises StorageError."""
        if self.shared is not None:
            return await self.shared.take_over_all()
        store = self._context.store
        runs: list[AgentRun] = []
        for state in await store.cells.adopt_turns():
            run = await self.continue_here(state)
            if run is not None:
                runs.append(run)
        # Withdraws the approvals of turns that cannot be continued.
        await store.interrupt_open_turns()
        return runs

    async def continue_here(
        self, state: TurnState, later: Sequence[RunEvent] = ()
    ) -> AgentRun | None:
        """Continue a turn of another process; if that is not possible, it is interrupted, and the
        result is None. `later` are its known events after the state. Raises StorageError."""
        try:
            return await self._continue_turn(state, later)
        except StorageError:
            raise
        except Exception as error:
            # Whatever is wrong with one turn, the others continue.
            logger.warning("the turn %s cannot be continued: %s", state.run_id, error)
            message = f"the turn cannot be continued after a restart: {error}"
            await self._context.store.end_turn(
                state.run_id, status="interrupted", messages=(), usage=Usage(), error=message
            )
            return None

    async def _continue_turn(self, state: TurnState, later: Sequence[RunEvent]) -> AgentRun:
        context = self._queues.context
        if not context.is_durable:
            raise SessionError("`tools.codeMode.durable` is off", code="invalid")
        stored = read_turn_state(state)
        if later:
            stored = replace(
                stored, events=(*stored.events, *later), last_sequence=later[-1].sequence
            )
        agent = context.config.agents.agent(stored.agent_id)
        if not agent.tools.code_mode.durable:
            raise SessionError("`tools.codeMode.durable` is off", code="invalid")
        session = await context.store.session(state.session_id)
        if session is None:
            raise SessionError("its session does not exist", code="not_found")
        asked = await context.store.approvals.find_all(session_id=session.id, limit=_MAX_APPROVALS)
        records = {record.id: record for record in asked}
        for approval in stored.approvals:
            earlier = add_decision(approval, records.get(approval.id))
            if earlier is not None:
                context.approvals.expect(earlier)
        return self._queues.continue_turn(stored, resolve_record(agent, session))

    # What callers do.

    async def start(self, request: TurnRequest) -> AgentRun:
        """Start a turn or a chat command, or pass the message to the running turn; returns the run
        that takes it.

        Raises SessionError (`not_found`, `invalid`, `too_many`, or `busy` if the queue is full),
        ConfigError for an unknown model, and ToolDefinitionError for an invalid client tool.
        """
        return await self._start(request)

    async def _start(self, request: TurnRequest, placed: Placed | None = None) -> AgentRun:
        self._check_open()
        is_call = request.manual_call is not None
        line = None if is_call else self.commands.find(request.user_message)
        if line is not None and not request.action:
            return await self._start_command(line, request, is_here=placed is not None)
        return await self._start_turn(request, placed)

    async def _start_turn(self, request: TurnRequest, placed: Placed | None = None) -> AgentRun:
        if request.model:
            # First, so that no session is created for an invalid turn.
            agents = self._queues.context.config.agents
            agent = agents.agent(request.agent_id or agents.default_id)
            self._check_model(request.model, agent)
        session = await self._sessions.resolve(request)
        self._check_open()
        # As it is now: the configuration may have changed while the session was resolved.
        agent = self._queues.context.config.agents.agent(session.agent.id)
        if session.model and not request.model:
            request = replace(request, session_model=session.model)
        if request.manual_call is None:
            self._check_chosen_model(request, agent)
        if request.trace is None:
            # Now: the task that runs the turn may be one that an earlier caller started.
            request = replace(request, trace=current_trace())
        return await self._take(request, session, placed)

    async def _take(
        self, request: TurnRequest, session: ResolvedSession, placed: Placed | None = None
    ) -> AgentRun:
        """Give a message to the queue of its session, which another gateway may have. `placed` is
        set if it is in the inbox of this process."""
        if self.shared is None:
            return self._queues.take(request, session, run_id=request.run_id)
        if placed is None:
            remote = await self._find_thread_gateway(request, session)
            found = remote or await self.shared.place(request, session)
            if isinstance(found, AgentRun):
                return found
            placed = found
        try:
            self._check_open()
            run = self._queues.take(
                request,
                session,
                run_id=placed.run_id,
                items=placed.items,
                seen=placed.seen,
            )
        except BaseException:
            self.shared.discard(placed.items)
            raise
        await self.shared.note_run(placed, run)
        return run

    async def _find_thread_gateway(
        self, request: TurnRequest, session: ResolvedSession
    ) -> AgentRun | None:
        """Send a message to the machine that has the files of the session's Codex thread."""
        config = self._queues.context.config
        model = request.model or request.session_model or session.agent.model
        runtime = choose_runtime(model, session.agent, config.models, config.codex)
        if runtime.id != "codex" or not session.is_stored or self.shared is None:
            return None
        thread = await self._context.store.thread(session.session_id)
        if thread is None or not thread.machine:
            return None
        return await self.shared.send_to_machine(request, session.session_id, thread.machine)

    # What other gateways send; see `SessionServer`.

    async def start_here(self, request: TurnRequest, placed: Placed, /) -> AgentRun:
        """Start a turn or a command that is in the inbox of this process."""
        return await self._start(request, placed)

    def takes_once(self, request: TurnRequest) -> bool:
        """Whether a message that is sent again with its run id is taken only once."""
        return self.shared is not None and not self.is_command(request)

    def is_command(self, request: TurnRequest, /) -> bool:
        """Whether the message is a chat command."""
        is_message = request.manual_call is None and not request.action
        return is_message and self.commands.find(request.user_message) is not None

    def is_serving(self, session_id: str, /) -> bool:
        """Whether this process has live runs of the session."""
        return self._queues.has_queue(session_id) or bool(self._runs.live(session_id))

    def drop(self, session_id: str, /) -> None:
        """Another gateway serves the session now."""
        self._queues.drop(session_id)

    async def handle(self, item: InboxItem, /) -> JsonObject:
        """Handle what another gateway has accepted for a run. Raises NacreError."""
        payload = cast("dict[str, Any]", item.payload)
        run = self._runs.get(item.run_id)
        match item.kind:
            case "abort":
                was_aborted = run is not None and await run.abort(payload["reason"])
                return {"wasAborted": was_aborted}
            case "approval":
                await self.approvals.answer_here(run, payload["approvalId"], payload["answer"])
                return {}
            case "approval_input":
                found = await self.approvals.read_input_here(run, payload["approvalId"])
                return {"input": found}
            case "client_results":
                await _deliver_here(run, item.run_id, payload["results"])
                return {}
            case "delete":
                is_aborting = payload["abortsRuns"]
                return {
                    "wasDeleted": await self.delete_session(
                        item.session_id, aborts_runs=is_aborting, is_here=True
                    )
                }
            case _:
                raise SessionError(f"this version does not know {item.kind!r}", code="invalid")

    # Runs of this gateway and of others.

    async def find_run(self, run_id: str, *, for_change: bool = False) -> AgentRun | None:
        """A run that is live or has ended recently, at any gateway. Raises StorageError.

        With `for_change`, it is certain that this gateway serves a live run that it has.
        """
        run = self._runs.get(run_id)
        if self.shared is None:
            return run
        if run is not None and (not for_change or await self._has_run(run, self.shared)):
            return run
        return await self.shared.remote.find(run_id)

    async def _has_run(self, run: AgentRun, shared: SharedSessions) -> bool:
        if run.is_detached:
            return False
        return run.has_ended or await shared.is_serving(run.session_id)

    async def all_runs(self, session_id: str | None = None) -> list[AgentRun]:
        """The runs of this gateway, and the live ones of others. Raises StorageError."""
        if self.shared is None:
            return self._runs.all(session_id)
        await self.shared.remote.load_live(session_id or "")
        return self.known_runs(session_id)

    def known_runs(self, session_id: str | None = None) -> list[AgentRun]:
        """The runs of this gateway, and the live ones of others that are followed here."""
        remote = [] if self.shared is None else self.shared.remote.live(session_id)
        return [*self._runs.all(session_id), *remote]

    async def deliver(self, run: AgentRun, results: Sequence[ClientResult]) -> None:
        """Deliver results of client calls. Raises SessionError if a call is not open."""
        run = await self.find_run(run.id, for_change=True) or run
        if isinstance(run, RemoteRun) and self.shared is not None:
            given: list[JsonValue] = [
                {"callId": it.call_id, "content": it.content, "isError": it.is_error}
                for it in results
            ]
            if not await self.shared.send(run, "client_results", {"results": given}):
                raise _results_come_late(run.id)
            run.note_delivered([it.call_id for it in results])
            return
        await run.wait_for_calls([it.call_id for it in results])
        for result in results:
            run.deliver(result.call_id, result.content, result.is_error)

    @property
    def config(self) -> SystemConfig:
        """The configuration for new turns."""
        return self._queues.context.config

    def run(self, run_id: str) -> AgentRun | None:
        """A run that is live or has ended recently."""
        return self._runs.get(run_id)

    def runs(self, session_id: str | None = None) -> list[AgentRun]:
        """The live runs and those that ended recently, oldest first."""
        return self._runs.all(session_id)

    async def abort(self, run_id: str, reason: str = "the run was aborted") -> bool:
        """Abort a run and wait for its end; False if there is no such live run."""
        run = self._runs.get(run_id)
        return False if run is None else await run.abort(reason)

    async def delete_session(
        self, session_id: str, *, aborts_runs: bool = False, is_here: bool = False
    ) -> bool:
        """Delete a session with all that belongs to it; False if there is none.

        With `aborts_runs`, its turns are aborted first. Otherwise raises SessionError (`busy`) if
        it has any. Its owner does it, unless `is_here`.
        """
        if self.shared is not None and not is_here:
            answer = await self.shared.ask_owner(session_id, "delete", {"abortsRuns": aborts_runs})
            if answer is not None:
                return bool(answer.get("wasDeleted"))
        reason = "the session was deleted"
        if aborts_runs:
            with anyio.CancelScope(shield=True):
                await self._queues.stop(session_id, reason)
                for run in self._runs.live(session_id):
                    await run.abort(reason)
        elif live := self._runs.live(session_id):
            raise SessionError(
                f"the session {session_id!r} has a run that has not ended: {live[0].id}; abort it, "
                "or wait for its end",
                code="busy",
            )
        with anyio.CancelScope(shield=True):
            # Before: it has to find what it has for the session.
            await self._context.harness.reset(session_id)
            if not await self._context.store.delete_session(session_id):
                return False
        self._runs.forget(session_id)
        # Stops the MCP servers of the session.
        with self._context.servers(session_id, is_kept=False):
            pass
        return True

    def watch_runs(self, watcher: Callable[[AgentRun], None]) -> Callable[[], None]:
        """Call `watcher` with every new run; call the returned function to stop."""
        return self._runs.watch(watcher)

    def hold_turns(self) -> AbstractContextManager[None]:
        """Delay turns that would begin during the block; they use the configuration after it.
        Use it for changes that are made in several steps."""
        return self._queues.hold_turns()

    def configure(self, config: SystemConfig) -> None:
        """Use another configuration for new turns; turns that have begun keep theirs."""
        self._sessions = SessionResolver(config.agents, self._context.store)
        self._queues.context = replace(self._context, config=config)

    # Chat commands.

    async def _start_command(
        self, line: CommandLine, request: TurnRequest, *, is_here: bool = False
    ) -> AgentRun:
        agent, session = await self._sessions.find(request)
        self._check_open()
        if self.shared is not None and session is not None and not is_here:
            remote = await self.shared.forward(request, session.id)
            if remote is not None:
                return remote
        command = line.command
        if command is None:
            return self._run_command(line, request, agent, session, _reply(explain_mistake(line)))
        if command.right is not None and command.right not in request.rights:
            reply = _reply(explain_refusal(command))
            return self._run_command(line, request, agent, session, reply)
        match command.handler:
            case "compact":
                return await self._start_compaction(line, request, agent, session)
            case "new" | "reset" as action:
                return await self._renew_session(action, line, request, agent, session)
            case handler:
                if session is None and command.creates_session and line.arguments:
                    is_kept = request.history is None or request.session_key
                    session = await self._sessions.create(request, agent) if is_kept else None
                return self._run_command(line, request, agent, session, handler)

    async def _start_compaction(
        self,
        line: CommandLine,
        request: TurnRequest,
        agent: AgentConfig,
        session: SessionRecord | None,
    ) -> AgentRun:
        """Compaction is a turn of its own: it calls a model, and must not meet another turn."""
        if session is None:
            reply = _reply("There is nothing to compact: the session has no messages.")
            return self._run_command(line, request, agent, session, reply)
        turn = TurnRequest(
            message=request.message,
            sender=request.sender,
            channel=request.channel,
            rights=request.rights,
            session_model=session.model,
            queue_mode="followup",
            action="compact",
            trace=request.trace or current_trace(),
        )
        return await self._take(turn, resolve_record(agent, session))

    async def _renew_session(
        self,
        action: ServiceAction,
        line: CommandLine,
        request: TurnRequest,
        agent: AgentConfig,
        session: SessionRecord | None,
    ) -> AgentRun:
        """Give the caller an empty session. With a message, its first turn starts at once."""
        keeps_settings = action == "new"
        stopped: list[AgentRun] = []
        new: SessionRecord | None = None
        if session is not None:
            # A caller that follows the running turn may go when that ends.
            with anyio.CancelScope(shield=True):
                reason = f"the session was left with /{action}"
                stopped = await self._queues.stop(session.id, reason)
                if action == "reset":
                    await self._context.harness.reset(session.id)
                new = await self._context.store.renew_session(
                    session.id, new_id=new_session_id(), keeps_settings=keeps_settings
                )
                request = replace(request, session_id=new.id, session_key="")
        if line.arguments:
            return await self._start_turn(replace(request, message=line.arguments))
        reply = explain_renewal(
            had_session=session is not None, keeps_settings=keeps_settings, stopped=stopped
        )
        return self._run_command(line, request, agent, new, _reply(reply))

    def _run_command(
        self,
        line: CommandLine,
        request: TurnRequest,
        agent: AgentConfig,
        session: SessionRecord | None,
        handler: CommandHandler,
    ) -> AgentRun:
        run = AgentRun(
            id=request.run_id or new_run_id(),
            session_id="" if session is None else session.id,
            agent_id=agent.id,
            session_key="" if session is None else session.key,
            is_stored=session is not None,
            command=line.name,
        )
        call = CommandCall(
            arguments=line.arguments,
            request=request,
            agent=agent,
            session=session,
            active_run=None if session is None else self._queues.active_run(session.id),
            run=run,
            service=self._queues.context,
            start=self._start_turn,
        )
        return self._command_runs.start(line, call, handler)

    async def _wait_until_idle(self) -> None:
        """Wait for the end of all runs; one that starts to wait for somebody is aborted."""
        async with anyio.create_task_group() as tasks:

            def watch(run: AgentRun) -> None:
                tasks.start_soon(_abort_when_waiting, run)

            stop_watching = self.watch_runs(watch)
            try:
                for run in self._runs.live():
                    watch(run)
                await self._queues.until_idle()
                tasks.cancel_scope.cancel()
            finally:
                stop_watching()

    def _check_model(self, model: str, agent: AgentConfig) -> None:
        config = self._queues.context.config
        if choose_runtime(model, agent, config.models, config.codex).id == "codex":
            # Its harness checks it: Codex may have a login of its own instead of a key.
            return
        with self._context.providers() as providers:
            providers.get(model)

    def _check_chosen_model(self, request: TurnRequest, agent: AgentConfig) -> None:
        if not request.session_model:
            self._check_model(request.model or agent.model, agent)
            return
        try:
            self._check_model(request.session_model, agent)
        except ConfigError as error:
            raise SessionError(
                f"the model of this session, chosen with /model, cannot be used: {error}; "
                "choose another one, or send /model default",
                code="invalid",
            ) from error

    def _check_open(self) -> None:
        if self._is_closed:
            raise SessionError(f"{_CLOSED}, or was never opened", code="ended")


async def _abort_when_waiting(run: AgentRun) -> None:
    if await run.waiting_or_ended() == "waiting" and not await run.detach():
        run.request_abort(_CLOSED_WAITING)


def _reply(text: str) -> CommandHandler:
    async def handler(call: CommandCall) -> str:
        return text

    return handler


def _results_come_late(run_id: str) -> SessionError:
    return SessionError(f"the run {run_id} is over; the results were not taken", code="ended")


async def _deliver_here(run: AgentRun | None, run_id: str, results: list[dict[str, Any]]) -> None:
    """Deliver all results or none. Raises SessionError."""
    if run is None:
        raise _results_come_late(run_id)
    wanted = {result["callId"] for result in results}
    # A turn that was taken over asks its client again.
    with anyio.move_on_after(_REOPEN_SECONDS):
        while not run.has_ended and not wanted & {it.call_id for it in run.pending_client_calls}:
            if run.client_calls.was_closed(*wanted):
                break
            await anyio.sleep(_LOOK_SECONDS)
    missing = wanted - {it.call_id for it in run.pending_client_calls}
    # The first that is not open says why.
    for result in sorted(results, key=lambda it: it["callId"] not in missing):
        run.deliver(result["callId"], result["content"], result["isError"])


@dataclass(frozen=True, kw_only=True, slots=True)
class ClientResult:
    """The result of a client call."""

    call_id: str
    content: JsonValue
    is_error: bool = False
