"""The sessions of several processes on one database server: who serves which, and takeovers.

A message goes to the process that holds the lease of its session. If nobody does, the process that
accepts the message takes the lease. Sessions of a process that is gone are taken over: turns that
wait continue, messages that have not begun run, and other turns are interrupted.
"""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

import anyio

from nacre import __version__
from nacre.agent.remote_runs import RemoteRuns, RunFeedWriter
from nacre.agent.session_inbox import InboxReader, Placed, check_result, describe_run
from nacre.agent.session_queue import new_run_id
from nacre.agent.turn_request import TurnRequest, request_to_json
from nacre.errors import NacreError, SessionError, StorageError
from nacre.messages import AssistantMessage, Usage
from nacre.storage import LiveRunRecord
from nacre.trajectory import RunEvent

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from anyio.abc import TaskGroup

    from nacre.agent.remote_runs import RemoteRun
    from nacre.agent.run import AgentRun, RunRegistry
    from nacre.agent.session_inbox import SessionServer
    from nacre.agent.turn_request import ResolvedSession
    from nacre.json_types import JsonObject, JsonValue
    from nacre.storage import (
        Cluster,
        GatewayRecord,
        InboxItem,
        InboxKind,
        Store,
        TakenSession,
    )
    from nacre.trajectory import RunEventKind

logger = logging.getLogger(__name__)

_RENEW_SECONDS: Final = 5.0
_WATCH_SECONDS: Final = 0.3
_POLL_SECONDS: Final = 1.0
_ANSWER_SECONDS: Final = 30.0
# A message is stored, so its sender need not wait until a lease has expired.
_MESSAGE_SECONDS: Final = 5.0
# After an outage, other processes need a moment to get their locks back and renew their leases.
_OUTAGE_SECONDS: Final = 3.0
_RETRY_SECONDS: Final = 0.3
_SWEEP_ROUNDS: Final = 60
_HAND_OVER_SECONDS: Final = 5.0
_INTERRUPTED: Final = "the gateway of the run ended in the middle of the turn"


_END_KINDS: Final[dict[str, RunEventKind]] = {
    "completed": "run.completed",
    "failed": "run.failed",
    "aborted": "run.aborted",
}


class _UnansweredError(SessionError):
    """What was sent is in the inbox, and its owner has not answered yet."""


class SharedSessions:
    """The part of this process in serving the sessions of a database server."""

    def __init__(
        self, store: Store, cluster: Cluster, server: SessionServer, runs: RunRegistry
    ) -> None:
        self._store = store
        self._cluster = cluster
        self._server = server
        self._runs = runs
        self._tasks: TaskGroup | None = None
        self._writer = RunFeedWriter(cluster.feed, runs)
        self.remote = RemoteRuns(cluster.feed, runs, self)
        """The runs of other processes."""
        self._results: dict[int, anyio.Event] = {}
        self._adopting: set[str] = set()
        self._inbox = InboxReader(cluster, server, is_adopting=self._adopting.__contains__)
        self._discarded: list[int] = []
        self._watch_news = anyio.Event()
        self._scopes: list[anyio.CancelScope] = []
        self._is_closed = False
        self._continues = False
        self.takeover_count = 0
        """How many sessions were taken over."""
        self.open_items = 0
        """How many items in the inboxes of all sessions nobody has read, at the last look."""
        self.is_leader = True
        """Whether this is the oldest gateway, which does what only one may do."""

    @property
    def held_count(self) -> int:
        """How many sessions this process serves."""
        return len(self._cluster.leases.held)

    # Start and end.

    async def open(self, tasks: TaskGroup) -> None:
        """Join the other processes. Raises StorageError."""
        self._tasks = tasks
        await self.announce("")
        await self._cluster.listen(self._receive, on_lost=self._watch_news.set)
        self._store.watch_sessions(self._writer.add_session_change, is_local=True)
        for task in (
            self._writer.run,
            self.remote.run,
            self._renew,
            partial(self._inbox.run, tasks),
        ):
            tasks.start_soon(self._run_task, task)

    async def announce(self, address: str) -> None:
        """Add this process to the list of gateways, with its address. Raises StorageError."""
        machine = self._cluster.machine
        await self._cluster.leases.register(
            name=f"{machine}:{os.getpid()}", address=address, machine=machine, version=__version__
        )

    async def take_over_all(self) -> list[AgentRun]:
        """Take over what dead processes have left, and look for more from now on; returns the turns
        that continue. Raises StorageError."""
        self._continues = True
        runs: list[AgentRun] = []
        while (found := await self._cluster.leases.take_over()).sessions:
            runs += await self._adopt_all(found.sessions)
        assert self._tasks is not None
        self._tasks.start_soon(self._run_task, self._watch)
        return runs

    async def flush(self) -> None:
        """Write the events of runs that other processes do not have yet. Raises StorageError."""
        await self._writer.flush()

    def leave(self) -> None:
        """Take no more messages of others: they stay in the inbox for the next owner."""
        self._inbox.leave()

    async def close(self) -> None:
        """Leave all sessions to the other processes."""
        if self._is_closed:
            return
        self._is_closed = True
        for scope in self._scopes:
            scope.cancel()
        self._writer.close()
        with anyio.move_on_after(_HAND_OVER_SECONDS, shield=True):
            try:
                await self._writer.flush()
                await self._cluster.inbox.delete(self._discarded)
                await self._cluster.leases.hand_over()
            except StorageError as error:
                logger.warning("the sessions are not handed over, but expire: %s", error)

    async def _run_task(self, task: Callable[[], Awaitable[None]]) -> None:
        with anyio.CancelScope() as scope:
            self._scopes.append(scope)
            await task()

    # Messages.

    async def place(self, request: TurnRequest, session: ResolvedSession) -> Placed | AgentRun:
        """Decide who runs a message: this process, or the owner of its session, which has taken it
        when this returns. Raises SessionError and StorageError."""
        run_id, leases = request.run_id or new_run_id(), self._cluster.leases
        session_id, before = session.session_id, leases.held.get(session.session_id)
        if not session.is_stored or request.heartbeat is not None:
            lease = await leases.take(session_id)
            if lease.owner != leases.owner:
                raise SessionError(
                    f"another gateway runs a turn of the session {session_id}", code="busy"
                )
            self._drop_if_replaced(session_id, before, lease.epoch)
            return Placed(run_id=run_id)
        accepted = await self._cluster.inbox.add_message(
            session_id, request_to_json(request), run_id=run_id
        )
        if accepted.lease.owner == leases.owner:
            self._drop_if_replaced(session_id, before, accepted.lease.epoch)
            if accepted.is_new:
                return Placed(run_id=run_id, items=(accepted.number,))
        record = LiveRunRecord(
            run_id=run_id,
            session_id=session_id,
            owner="",
            state="queued",
            data=describe_run(session.agent.id, session.session_key),
        )
        if not accepted.is_new:
            record = await self._find_taker(accepted.number, record)
        return await self._wait_for_run(accepted.number, record)

    async def forward(self, request: TurnRequest, session_id: str) -> AgentRun | None:
        """Send a message to the owner of its session; None if that is nobody, or this process."""
        if request.heartbeat is not None:
            return None
        lease = await self._cluster.leases.find(session_id)
        if lease is None or lease.owner == self._cluster.leases.owner:
            return None
        key = request.run_id or new_run_id()
        accepted = await self._cluster.inbox.add(
            session_id, "message", request_to_json(request), run_id=key, key=key
        )
        if accepted is None:
            return None
        record = LiveRunRecord(
            run_id=key,
            session_id=session_id,
            owner="",
            state="queued",
            data=describe_run(request.agent_id, request.session_key),
        )
        return await self._wait_for_run(accepted.number, record)

    async def send_to_machine(
        self, request: TurnRequest, session_id: str, machine: str
    ) -> AgentRun | None:
        """Let a gateway on this machine run a message; None if that is this process.

        Raises SessionError if no gateway runs there.
        """
        if machine == self._cluster.machine:
            return None
        there = [
            it.owner
            for it in await self.gateways()
            if it.machine == machine and it.address and it.state == "alive"
        ]
        if not there:
            raise SessionError(
                f"the Codex thread of the session {session_id} has its files on the machine "
                f"{machine}, where no gateway runs; start one there, or send /reset to continue "
                "without the thread",
                code="busy",
            )
        await self._cluster.leases.give(session_id, there[0])
        return await self.forward(request, session_id)

    async def note_run(self, placed: Placed, run: AgentRun) -> None:
        """A message that this process has placed is taken by this run."""
        if placed.items and run.id != placed.run_id:
            try:
                await self._cluster.inbox.assign(placed.items, run.session_id, run.id)
            except StorageError as error:
                # The run has the message.
                logger.warning("a message of the run %s is not noted: %s", run.id, error)

    def discard(self, numbers: Sequence[int]) -> None:
        """Delete messages that no turn is going to take."""
        if numbers and self._tasks is not None:
            self._discarded += numbers
            self._tasks.start_soon(self._delete_discarded)

    async def _delete_discarded(self) -> None:
        numbers, self._discarded = self._discarded, []
        try:
            await self._cluster.inbox.delete(numbers)
        except StorageError as error:
            self._discarded += numbers
            logger.warning("messages stay in the inbox for now: %s", error)

    def _drop_if_replaced(self, session_id: str, before: int | None, epoch: int) -> None:
        if before is not None and before != epoch:
            # Somebody else has served the session meanwhile.
            self._server.drop(session_id)

    async def _find_taker(self, number: int, expected: LiveRunRecord) -> LiveRunRecord:
        """The run that has taken a message that is sent again, or is going to."""
        item = await self._cluster.inbox.find(number)
        if item is None or item.run_id == expected.run_id:
            return expected
        found = await self._cluster.feed.find(item.run_id)
        return found or replace(expected, run_id=item.run_id)

    async def _wait_for_run(self, number: int, expected: LiveRunRecord) -> AgentRun:
        """Wait until the owner has taken a message. `expected` is its run if a new turn takes it:
        the item may be gone when that turn has begun."""
        found: dict[str, Any] | None = None
        try:
            with anyio.move_on_after(_MESSAGE_SECONDS):
                found = await self._wait_for_result(expected.session_id, number)
        except (_UnansweredError, StorageError) as error:
            logger.warning("the message for %s waits: %s", expected.session_id, error)
        if found is None:
            # The message is stored: a sender that gets an error would send it again.
            return self._expect_run(number, expected)
        result = found
        record = expected
        if result:
            record = LiveRunRecord(
                run_id=result["runId"],
                session_id=result["sessionId"],
                owner="",
                state=result["state"],
                data=result["data"],
            )
        local = self._runs.get(record.run_id)
        if local is not None:
            return local
        run = self.remote.add(record)
        self.remote.note_events([run.id])
        return run

    def _expect_run(self, number: int, expected: LiveRunRecord) -> AgentRun:
        """The run of a message that its owner has not taken yet."""
        local = self._runs.get(expected.run_id)
        if local is not None:
            return local
        run = self.remote.add(expected)
        assert self._tasks is not None
        self._tasks.start_soon(self._run_task, partial(self._wait_longer, number, run))
        return run

    async def _wait_longer(self, number: int, run: RemoteRun) -> None:
        """Follow the run of a message once its owner has taken it, or end it."""
        while not run.has_ended:
            try:
                result = await self._wait_for_result(run.session_id, number)
            except (_UnansweredError, StorageError):
                await anyio.sleep(_POLL_SECONDS)
                continue
            except NacreError as error:
                self.remote.end(run, str(error))
                return
            if (taken_by := result.get("runId", run.id)) != run.id:
                self.remote.end(run, f"the run {taken_by} has taken the message")
            self.remote.note_events([run.id])
            return

    # Requests to other processes.

    async def send(self, run: AgentRun, kind: InboxKind, payload: JsonObject, /) -> JsonObject:
        """Send something to the process that has a run, and wait for the result. Raises
        SessionError (`ended` if nobody has it), ApprovalError and StorageError."""
        return await self.send_to(run.session_id, kind, payload, run_id=run.id)

    async def send_to(
        self, session_id: str, kind: InboxKind, payload: JsonObject, *, run_id: str
    ) -> JsonObject:
        """The same for the owner of a session."""
        key = f"{kind}_{os.urandom(12).hex()}"
        accepted = await self._cluster.inbox.add(session_id, kind, payload, run_id=run_id, key=key)
        if accepted is None:
            raise SessionError(f"no gateway runs a turn of the session {session_id}", code="ended")
        return await self._wait_for_result(session_id, accepted.number)

    async def is_serving(self, session_id: str) -> bool:
        """Whether this process still serves a session with a live run. If it was stopped for a
        while, another one may serve it, and this one drops it now. Raises StorageError."""
        if session_id not in self._cluster.leases.held:
            return True
        lease = await self._cluster.leases.find(session_id)
        if lease is not None and lease.owner == self._cluster.leases.owner:
            return True
        self._server.drop(session_id)
        return False

    async def ask_owner(
        self, session_id: str, kind: InboxKind, payload: JsonObject
    ) -> JsonObject | None:
        """Send something to another owner of a session; None if this process may do it."""
        lease = await self._cluster.leases.find(session_id)
        if lease is None or lease.owner == self._cluster.leases.owner:
            return None
        return await self.send_to(session_id, kind, payload, run_id="")

    def post(self, run: AgentRun, kind: InboxKind, payload: JsonObject, /) -> None:
        """Send something without waiting for the result."""

        async def send() -> None:
            try:
                await self.send(run, kind, payload)
            except NacreError as error:
                logger.warning("the %s of the run %s failed: %s", kind, run.id, error)

        if self._tasks is not None:
            self._tasks.start_soon(send)

    async def load_end(self, run_id: str, /) -> tuple[RunEventKind, JsonObject]:
        """Return the last event of a run that is lost: its kind and data. Raises StorageError."""
        turn = await self._store.turn(run_id)
        if turn is None or turn.status in ("running", "interrupted"):
            error = _INTERRUPTED if turn is None else turn.error or _INTERRUPTED
            return "run.interrupted", {"error": error, "usage": Usage().to_json()}
        stored = await self._store.messages_of_turns(turn.session_id, [run_id])
        texts = [it.message.text for it in stored if isinstance(it.message, AssistantMessage)]
        data: JsonObject = {
            "text": texts[-1] if texts else "",
            "usage": turn.usage.to_json(),
            "model": turn.model,
            "finishReason": "stop" if turn.status == "completed" else "error",
        }
        return _END_KINDS[turn.status], {**data, "error": turn.error} if turn.error else data

    async def _wait_for_result(self, session_id: str, number: int) -> JsonObject:
        is_over = False
        event = self._results[number] = anyio.Event()
        try:
            with anyio.move_on_after(_ANSWER_SECONDS):
                while True:
                    item = await self._cluster.inbox.find(number)
                    if item is not None and item.result:
                        return check_result(item.result)
                    if item is None or is_over:
                        # Its run has begun, or has ended.
                        return {}
                    # If the run ended because of the item, its result comes a moment later.
                    is_over = item.state == "done"
                    if not self._continues:
                        await self._take_over_one(session_id)
                    with anyio.move_on_after(_POLL_SECONDS):
                        await event.wait()
                    event = self._results[number] = anyio.Event()
        finally:
            self._results.pop(number, None)
        raise _UnansweredError(
            f"the gateway that serves the session {session_id} does not answer; what you sent is "
            "stored, and is handled when a gateway serves the session again",
            code="busy",
        )

    # Notifications.

    def _receive(self, kind: str, content: JsonValue) -> None:
        match kind, content:
            case "inbox", str(owner):
                if owner == self._cluster.leases.owner:
                    self._inbox.wake()
            case "result", int(number):
                if (event := self._results.get(number)) is not None:
                    event.set()
            case "runs", list(run_ids):
                self.remote.note_events(map(str, run_ids))
            case "sessions", {"from": str(owner), "changed": list(changes)}:
                if owner != self._cluster.leases.owner:
                    for change in changes:
                        self._note_session_change(change)
            case "leases", _:
                self.remote.note_owners()
                self._watch_news.set()
            case _:
                pass

    def _note_session_change(self, change: JsonValue) -> None:
        match change:
            case [str(session_id), "created" | "updated" | "deleted" as what]:
                self._store.note_remote_change(session_id, what)
            case _:
                pass

    # Leases.

    async def _renew(self) -> None:
        rounds, wait_seconds = 0, _RENEW_SECONDS
        while True:
            await anyio.sleep(wait_seconds)
            wait_seconds, leases = _RENEW_SECONDS, self._cluster.leases
            try:
                await self._cluster.reconnect()
                for session_id in await leases.renew():
                    logger.warning("another gateway serves the session %s now", session_id)
                    self._server.drop(session_id)
                await self._release_idle()
                self._note_gateways(await leases.gateways())
                self.open_items = await self._cluster.inbox.count_open()
                rounds += 1
                if rounds % _SWEEP_ROUNDS == 1:
                    await self._cluster.feed.delete_old()
                    await self._cluster.inbox.delete_old()
            except StorageError as error:
                logger.warning("the leases cannot be renewed: %s", error)
                wait_seconds = _RETRY_SECONDS

    async def _release_idle(self) -> None:
        """Give up the sessions without runs. Events of a session without a lease are refused, so
        those of its last run are written first."""
        leases = self._cluster.leases
        idle = [it for it in leases.held if not self._is_in_use(it)]
        if idle:
            await self._writer.flush()
            await leases.release([it for it in idle if not self._is_in_use(it)])

    def _is_in_use(self, session_id: str) -> bool:
        # A session that was taken over has no run yet.
        return session_id in self._adopting or self._server.is_serving(session_id)

    def _note_gateways(self, found: Sequence[GatewayRecord]) -> None:
        alive = [it.owner for it in found if it.state == "alive" and it.address]
        self.is_leader = not alive or alive[0] == self._cluster.leases.owner

    async def gateways(self) -> list[GatewayRecord]:
        return await self._cluster.leases.gateways()

    async def _watch(self) -> None:
        """Take over sessions of processes that have ended."""
        suspects = frozenset[str]()
        last_failure = float("-inf")
        while True:
            with anyio.move_on_after(_WATCH_SECONDS):
                await self._watch_news.wait()
            self._watch_news = anyio.Event()
            try:
                await self._cluster.reconnect()
                # Attempts that were repeated within `reconnect` are no failures here.
                last_outage = max(last_failure, self._cluster.reconnection_time)
                if anyio.current_time() - last_outage < _OUTAGE_SECONDS:
                    suspects = frozenset[str]()
                    continue
                found = await self._cluster.leases.take_over(suspects=suspects)
            except StorageError as error:
                if anyio.current_time() - last_failure > _OUTAGE_SECONDS:
                    logger.warning("sessions of other gateways cannot be watched: %s", error)
                suspects = frozenset[str]()
                last_failure = anyio.current_time()
                continue
            suspects = found.suspects
            await self._adopt_all(found.sessions)

    async def _take_over_one(self, session_id: str) -> None:
        found = await self._cluster.leases.take_over(
            session_id=session_id, continues=self._continues
        )
        await self._adopt_all(found.sessions)

    async def _adopt_all(self, sessions: Sequence[TakenSession]) -> list[AgentRun]:
        """Serve sessions that were taken over; returns the turns that continue."""
        # What is sent to them now waits for these turns.
        waiting = [taken.session_id for taken in sessions]
        self._adopting.update(waiting)
        runs: list[AgentRun] = []
        try:
            for taken in sessions:
                runs += await self._adopt(taken)
                self._adopting.discard(taken.session_id)
        finally:
            self._adopting.difference_update(waiting)
            self._inbox.wake()
        return runs

    async def _adopt(self, taken: TakenSession) -> list[AgentRun]:
        self.takeover_count += 1
        logger.info("this gateway serves the session %s now", taken.session_id)
        runs: list[AgentRun] = []
        known: set[int] = set()
        seen = await self._find_seen(taken)
        for state in taken.states:
            try:
                run = await self._server.continue_here(state, seen.get(state.run_id, ()))
            except StorageError as error:
                logger.error("the turn %s cannot be continued: %s", state.run_id, error)
                continue
            if run is not None:
                runs.append(run)
                known |= set(cast("list[int]", state.data.get("items", [])))
        try:
            for item in taken.items:
                if item.number not in known:
                    continued = {run.id for run in runs}
                    await self._adopt_item(item, continued, seen.get(item.run_id, ()))
        except StorageError as error:
            # They stay in the inbox.
            logger.error("messages of %s have to wait: %s", taken.session_id, error)
        return runs

    async def _find_seen(self, taken: TakenSession) -> dict[str, list[RunEvent]]:
        """The events of the runs of a session that readers may have: those after the stored state
        of a turn, and all those of a message that has not begun."""
        after = {item.run_id: -1 for item in taken.items}
        after |= {it.run_id: cast("int", it.data.get("lastSequence", -1)) for it in taken.states}
        try:
            found = await self._cluster.feed.events_after(after)
        except StorageError as error:
            logger.warning("the last events of %s are not known: %s", taken.session_id, error)
            return {}
        return {
            run_id: [RunEvent(**cast("dict[str, Any]", event)) for event in events]
            for run_id, events in found.items()
        }

    async def _adopt_item(
        self, item: InboxItem, continued: set[str], seen: Sequence[RunEvent]
    ) -> None:
        if item.kind != "message":
            # An answer may be lost with the process that has handled it.
            if item.state != "done" or (item.kind != "abort" and item.run_id in continued):
                assert self._tasks is not None
                await self._inbox.handle(item, self._tasks)
            return
        if item.state == "done":
            return
        # The run of a message that steered it, or that it was to begin, may be over.
        is_over = item.run_id in continued or await self._store.turn(item.run_id) is not None
        if is_over:
            await self._inbox.start_turn(item, run_id=new_run_id())
        else:
            await self._inbox.start_turn(item, run_id=item.run_id, seen=seen)
