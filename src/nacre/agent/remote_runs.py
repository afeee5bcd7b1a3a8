"""Runs of other gateways: their events from the database, and what callers ask of them.

Each gateway writes the events of its runs to the database in batches. Another gateway follows them
with a `RemoteRun`, which has the same events and the same state a moment later.
"""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

import anyio
import anyio.lowlevel

from nacre.agent.client_tools import PendingClientCall
from nacre.agent.input_requests import InputRequest
from nacre.agent.run import AgentRun, RunResult, RunState, tool_bytes_from_json
from nacre.errors import StorageError
from nacre.messages import Usage
from nacre.run_context import RunContext
from nacre.storage import MediaRecord, RunBatch
from nacre.tools import ApprovalRequest
from nacre.trajectory import RunEvent, continue_sequence

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Sequence

    from nacre.agent.run import RunRegistry
    from nacre.json_types import JsonObject, JsonValue
    from nacre.storage import InboxKind, LiveRunRecord, RunFeed
    from nacre.trajectory import RunEventKind

logger = logging.getLogger(__name__)

_BATCH_SECONDS: Final = 0.05
_BATCH_EVENTS: Final = 50
_MAX_PENDING_EVENTS: Final = 50_000
_RETRY_SECONDS: Final = 1.0
_POLL_SECONDS: Final = 1.5
_MAX_READ_RUNS: Final = 50
_MAX_ENDED: Final = 256
_ABORT_SECONDS: Final = 5.0
# Somebody waits for these, so they are written without delay.
_URGENT_KINDS: Final = frozenset(
    ("run.waiting", "run.completed", "run.failed", "run.aborted", "client_call.requested")
)
_STATES: Final[dict[str, RunState]] = {
    "run.queued": "queued",
    "run.started": "running",
    "run.waiting": "waiting",
    "run.resumed": "running",
    "run.completed": "completed",
    "run.failed": "failed",
    "run.aborted": "aborted",
    "run.interrupted": "interrupted",
}
_ENDED: Final = frozenset(("completed", "failed", "aborted", "interrupted"))
# How long a run may have no events in the database, after which it is looked up.
_UNWRITTEN_SECONDS: Final = 3.0


class RunFeedWriter:
    """Writes the events of the runs of this process to the database."""

    def __init__(self, feed: RunFeed, runs: RunRegistry) -> None:
        self._feed = feed
        self._pending: dict[str, list[JsonObject]] = {}
        self._runs: dict[str, AgentRun] = {}
        self._states: dict[str, str] = {}
        self._sessions: dict[tuple[str, str], None] = {}
        self._count = 0
        self._has_events = anyio.Event()
        self._is_due = anyio.Event()
        self._lock = anyio.Lock()
        self._stop = runs.watch(self._watch)

    def add_session_change(self, session_id: str, change: str) -> None:
        """Notify the other gateways of a change of a session."""
        self._sessions[(session_id, change)] = None
        self._has_events.set()

    async def run(self) -> None:
        """Write batches; run this as a task."""
        while True:
            await self._has_events.wait()
            with anyio.move_on_after(_BATCH_SECONDS):
                await self._is_due.wait()
            self._has_events, self._is_due = anyio.Event(), anyio.Event()
            try:
                await self.flush()
            except StorageError as error:
                logger.warning("events of runs cannot be written yet: %s", error)
                await anyio.sleep(_RETRY_SECONDS)

    async def flush(self) -> None:
        """Write what there is. Raises StorageError, and keeps the events then."""
        async with self._lock:
            pending, self._pending, self._count = self._pending, {}, 0
            sessions, self._sessions = [*self._sessions], {}
            batches = [self._make_batch(run_id, events) for run_id, events in pending.items()]
            if not batches and not sessions:
                return
            try:
                with anyio.CancelScope(shield=True):
                    await self._feed.write(batches, sessions)
            except StorageError:
                self._put_back(pending, sessions)
                raise
            for batch in batches:
                self._states[batch.run_id] = batch.state
                if batch.state in _ENDED:
                    self._forget(batch.run_id)

    def close(self) -> None:
        self._stop()

    def _watch(self, run: AgentRun) -> None:
        self._runs[run.id] = run

        def take(event: RunEvent) -> None:
            self._pending.setdefault(run.id, []).append(event.to_json())
            self._count += 1
            self._has_events.set()
            if self._count >= _BATCH_EVENTS or event.kind in _URGENT_KINDS:
                self._is_due.set()

        run.events.subscribe(take)

    def _make_batch(self, run_id: str, events: Sequence[JsonObject]) -> RunBatch:
        run = self._runs[run_id]
        return RunBatch(
            run_id=run_id,
            session_id=run.session_id,
            state=run.state,
            data={
                "agentId": run.agent_id,
                "sessionKey": run.session_key,
                "isStored": run.is_stored,
                "command": run.command,
            },
            events=events,
            is_changed=self._states.get(run_id) != run.state,
        )

    def _put_back(
        self, pending: dict[str, list[JsonObject]], sessions: Iterable[tuple[str, str]]
    ) -> None:
        for run_id, events in pending.items():
            self._pending[run_id] = [*events, *self._pending.get(run_id, [])]
        self._sessions = {**dict.fromkeys(sessions), **self._sessions}
        self._count = sum(map(len, self._pending.values()))
        if self._count > _MAX_PENDING_EVENTS:
            logger.error("%d events of runs are lost for other gateways", self._count)
            self._pending, self._count = {}, 0
        self._has_events.set()

    def _forget(self, run_id: str) -> None:
        if run_id not in self._pending:
            self._runs.pop(run_id, None)
            self._states.pop(run_id, None)


class RunControl(Protocol):
    """Sends requests to the gateway that has a run."""

    async def send(self, run: AgentRun, kind: InboxKind, payload: JsonObject, /) -> JsonObject:
        """Wait for the answer. Raises SessionError and ApprovalError."""
        ...

    def post(self, run: AgentRun, kind: InboxKind, payload: JsonObject, /) -> None:
        """Send it without waiting."""
        ...

    async def load_end(self, run_id: str, /) -> tuple[RunEventKind, JsonObject]:
        """The last event of a run that is lost: its kind and data."""
        ...


class RemoteRun(AgentRun):
    """A run of another gateway. Its state changes with the events that are read."""

    def __init__(self, record: LiveRunRecord, control: RunControl) -> None:
        data = cast("dict[str, Any]", record.data)
        super().__init__(
            id=record.run_id,
            session_id=record.session_id,
            agent_id=data["agentId"],
            session_key=data["sessionKey"],
            is_stored=data["isStored"],
            command=data["command"],
        )
        self._control = control
        self._calls: dict[str, PendingClientCall] = {}
        self._question: InputRequest | None = None

    @property
    def pending_client_calls(self) -> tuple[PendingClientCall, ...]:
        return tuple(self._calls.values())

    @property
    def pending_input(self) -> InputRequest | None:
        return self._question

    async def abort(self, reason: str = "the run was aborted") -> bool:
        if self.has_ended:
            return False
        answer = await self._control.send(self, "abort", {"reason": reason})
        with anyio.move_on_after(_ABORT_SECONDS):
            # Its last events are on their way.
            await self._ended.wait()
        return bool(answer.get("wasAborted", True))

    def request_abort(self, reason: str = "the run was aborted") -> None:
        if not self.has_ended:
            self._control.post(self, "abort", {"reason": reason})

    def deliver(self, call_id: str, content: JsonValue, is_error: bool = False) -> None:
        raise RuntimeError("the results for a run of another gateway are sent to it")

    def note_delivered(self, call_ids: Iterable[str]) -> None:
        """Its gateway has taken the results of these calls; the events that say so are on their
        way."""
        for call_id in call_ids:
            self._calls.pop(call_id, None)

    # What is read.

    def apply(self, event: RunEvent) -> None:
        """Take over an event; one that is known is ignored."""
        if event.sequence <= self.events.last_sequence or self.has_ended:
            return
        self._apply_data(event.kind, event.data)
        state = _STATES.get(event.kind)
        if state in _ENDED:
            self.result = result_from_json(event.data, run=self)
        if state is not None:
            self._set_state(state)
        self.events.mirror(event)
        if self.result is not None:
            self._finish()

    def apply_end(self, kind: RunEventKind, data: JsonObject) -> None:
        """End the run; its gateway was killed before it wrote the last events. Its readers may have
        more of them than this gateway, so the end has a number after all of these."""
        number = continue_sequence(self.events.last_sequence)
        self.apply(RunEvent(sequence=number, time=time.time(), kind=kind, data=data))

    def _set_state(self, state: RunState) -> None:
        self._state = state
        change, self._state_change = self._state_change, anyio.Event()
        change.set()

    def _finish(self) -> None:
        self.events.close()
        self._ended.set()

    def _apply_data(self, kind: str, given: JsonObject) -> None:
        data = cast("dict[str, Any]", given)
        match kind:
            case "approval.requested":
                self._approvals[data["approvalId"]] = self._make_approval(data)
            case "approval.answered":
                self._approvals.pop(data.get("approvalId", ""), None)
            case "client_call.requested":
                self._calls[data["callId"]] = PendingClientCall(
                    call_id=data["callId"],
                    parent_id=data.get("parentToolCallId", ""),
                    name=data["name"],
                    arguments=data["arguments"],
                )
            case "client_call.answered":
                self._calls.pop(data["callId"], None)
            case "input.requested":
                self._question = InputRequest(
                    id=data["inputId"],
                    call_id=data["toolCallId"],
                    text=data["text"],
                    questions=tuple(data["questions"]),
                    timeout_seconds=data["expiresAt"] - time.time(),
                )
            case "input.answered":
                self._question = None
            case _:
                pass

    def _make_approval(self, data: dict[str, Any]) -> ApprovalRequest:
        return ApprovalRequest(
            id=data["approvalId"],
            tool_id=data["toolId"],
            tool_name=data["toolName"],
            input=data["input"],
            reason=data["reason"],
            context=RunContext(agent_id=self.agent_id, session_id=self.session_id, run_id=self.id),
            call_id=data["toolCallId"],
            parent_id=data.get("parentToolCallId", ""),
            created=time.time(),
            expires=data["expiresAt"],
        )


def result_from_json(given: JsonObject, *, run: AgentRun) -> RunResult:
    """Parse the data of the last event of a run."""
    data = cast("dict[str, Any]", given)
    usage: dict[str, int] = data.get("usage") or {}
    return RunResult(
        text=data.get("text") or data.get("privateText", ""),
        visibility=data.get("visibility", "visible"),
        sent=tuple(data.get("sent", ())),
        usage=Usage(
            input_tokens=usage.get("inputTokens", 0),
            output_tokens=usage.get("outputTokens", 0),
            cached_tokens=usage.get("cachedTokens", 0),
        ),
        finish_reason=data.get("finishReason", "error"),
        error=data.get("error", ""),
        model=data.get("model", ""),
        media=tuple(
            MediaRecord(
                id=each["id"],
                session_id=run.session_id,
                run_id=run.id,
                name=each["name"],
                type=each["type"],
                size=each["size"],
                created=each["createdAt"],
            )
            for each in data.get("media", ())
        ),
        cause=StorageError(data["error"]) if data.get("errorCode") == "storage_failed" else None,
        tool_bytes=tool_bytes_from_json(data.get("toolBytes")),
    )


class RemoteRuns:
    """The runs of other gateways that somebody follows here."""

    def __init__(self, feed: RunFeed, local: RunRegistry, control: RunControl) -> None:
        self._feed = feed
        self._local = local
        self._control = control
        self._live: dict[str, RemoteRun] = {}
        self._ended: OrderedDict[str, RemoteRun] = OrderedDict()
        self._watchers: dict[Callable[[AgentRun], None], None] = {}
        self._dirty: dict[str, None] = {}
        self._news = anyio.Event()
        self._followers = 0
        self._missing_since: dict[str, float] = {}
        self.lag_seconds = 0.0
        """How long the last event took to get here."""

    def get(self, run_id: str) -> RemoteRun | None:
        return self._live.get(run_id) or self._ended.get(run_id)

    def live(self, session_id: str | None = None) -> list[AgentRun]:
        """The live runs that are known, without those that continue in this process."""
        return [
            run
            for run in self._live.values()
            if session_id in (None, run.session_id) and self._local.get(run.id) is None
        ]

    def watch(self, watcher: Callable[[AgentRun], None]) -> Callable[[], None]:
        """Call `watcher` with each run that is followed; call the returned function to stop."""
        self._watchers[watcher] = None
        return lambda: self._watchers.pop(watcher, None)

    @contextmanager
    def follow_all(self) -> Generator[None]:
        """Follow the runs of all gateways during the block."""
        self._followers += 1
        try:
            yield
        finally:
            self._followers -= 1

    async def find(self, run_id: str) -> RemoteRun | None:
        """Return a run of another gateway, with its events so far. Raises StorageError."""
        run = self.get(run_id)
        if run is None:
            record = await self._feed.find(run_id)
            if record is None:
                return None
            run = self.add(record)
        if not run.has_ended:
            await self._read([run_id])
        return run

    async def load_live(self, session_id: str = "") -> None:
        """Follow all live runs of other gateways, or of one session. Raises StorageError."""
        records = await self._feed.live_runs(session_id)
        new = [it for it in records if self.get(it.run_id) is None]
        for record in new:
            if self._local.get(record.run_id) is None:
                self.add(record)
        await self._read([record.run_id for record in new])

    def add(self, record: LiveRunRecord) -> RemoteRun:
        """Follow a run."""
        known = self.get(record.run_id)
        if known is not None:
            return known
        run = self._live[record.run_id] = RemoteRun(record, self._control)
        for watcher in list(self._watchers):
            watcher(run)
        return run

    def end(self, run: RemoteRun, reason: str) -> None:
        """End a run that no gateway is going to run."""
        run.apply_end("run.interrupted", {"error": reason, "usage": Usage().to_json()})
        self._note_ended(run)

    def note_events(self, run_ids: Iterable[str]) -> None:
        """There are new events of these runs."""
        wanted = [
            run_id
            for run_id in run_ids
            if run_id in self._live or (self._followers and self._local.get(run_id) is None)
        ]
        if wanted:
            self._dirty.update(dict.fromkeys(wanted))
            self._news.set()

    def note_owners(self) -> None:
        """Sessions have another owner; some runs may be over."""
        self.note_events([*self._live])

    async def run(self) -> None:
        """Read the events of the followed runs; run this as a task."""
        while True:
            with anyio.move_on_after(_POLL_SECONDS) as timeout:
                await self._news.wait()
            if timeout.cancelled_caught:
                # A notification may be lost with its connection.
                self._dirty.update(dict.fromkeys(self._live))
            self._news = anyio.Event()
            dirty, self._dirty = [*self._dirty], {}
            try:
                for start in range(0, len(dirty), _MAX_READ_RUNS):
                    await self._read(dirty[start : start + _MAX_READ_RUNS])
            except StorageError as error:
                logger.warning("events of other gateways cannot be read yet: %s", error)
                await anyio.sleep(_RETRY_SECONDS)

    async def _read(self, run_ids: Sequence[str]) -> None:
        wanted = [run_id for run_id in run_ids if run_id not in self._ended]
        while wanted:
            await anyio.lowlevel.checkpoint()
            after = {
                run_id: run.events.last_sequence if (run := self._live.get(run_id)) else -1
                for run_id in wanted
            }
            wanted = list[str]()
            found = await self._feed.read(after)
            await self._look_for(after.keys() - {fed.record.run_id for fed in found})
            for fed in found:
                run = self.add(fed.record)
                for event in fed.events:
                    run.apply(RunEvent(**cast("dict[str, Any]", event)))
                if fed.events:
                    self.lag_seconds = max(0.0, time.time() - run.events.events[-1].time)
                elif fed.record.state == "interrupted" and not run.has_ended:
                    # By the takeover. The turn may have ended before that.
                    run.apply_end(*await self._control.load_end(run.id))
                if run.has_ended:
                    self._note_ended(run)
                elif fed.events:
                    # There may be more.
                    wanted.append(run.id)

    async def _look_for(self, run_ids: Iterable[str]) -> None:
        """End runs that were accepted, and whose gateway was killed before it wrote an event."""
        now = anyio.current_time()
        for run_id in run_ids:
            run = self._live.get(run_id)
            since = self._missing_since.setdefault(run_id, now)
            if run is None or now - since < _UNWRITTEN_SECONDS:
                continue
            if await self._feed.find(run_id) is None:
                run.apply_end(*await self._control.load_end(run_id))
                self._note_ended(run)

    def _note_ended(self, run: RemoteRun) -> None:
        self._live.pop(run.id, None)
        self._missing_since.pop(run.id, None)
        self._ended[run.id] = run
        while len(self._ended) > _MAX_ENDED:
            self._ended.popitem(last=False)
