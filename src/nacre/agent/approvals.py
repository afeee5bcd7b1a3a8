"""Approvals of runs: reported to the runs, stored, and answered through any gateway."""

from __future__ import annotations

import logging
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, assert_never, cast

import anyio

from nacre.errors import ApprovalError, SessionError, StorageError
from nacre.storage import ApprovalRecord
from nacre.telemetry import Redaction
from nacre.tools import AllowAlways, AllowEdited, AllowOnce, Deny

if TYPE_CHECKING:
    from collections.abc import Callable

    from anyio.abc import TaskGroup

    from nacre.agent.run import AgentRun
    from nacre.agent.shared_sessions import SharedSessions
    from nacre.json_types import JsonObject
    from nacre.storage import ApprovalState, InboxKind, Store
    from nacre.tools import ApprovalDecision, ApprovalQueue, ApprovalRequest

logger = logging.getLogger(__name__)

_REDACTION = Redaction()
_MAX_SHOWN_ID: Final = 80
# How long a turn that was taken over may take to ask again.
_REOPEN_SECONDS: Final = 5.0
# Nobody waits longer than this for the store: not to see an approval, and not to answer one.
_SHOW_SECONDS: Final = 5.0
_MAX_BATCH: Final = 50


class ApprovalLog:
    """Stores the approvals of a queue, and reports each to its run when it is stored.

    So no approval that a person has seen is lost if this process is killed.
    """

    def __init__(
        self,
        queue: ApprovalQueue,
        *,
        store: Store,
        run_of: Callable[[str], AgentRun | None],
        tasks: TaskGroup,
    ) -> None:
        """`tasks` is entered before the first request."""
        self._store = store
        self._run_of = run_of
        self._tasks = tasks
        self._records: deque[ApprovalRecord] = deque()
        self._unshown: dict[str, _Unshown] = {}
        self._change = anyio.Event()
        self._attempted = anyio.Event()
        self._taken_count = 0
        self._settled_count = 0
        self._is_closed = False
        self._stop_listening = queue.listen(self._record_change)

    async def write(self) -> None:
        """Store each change, in order, until `close`; run this as a task."""
        # Cancelling the service withdraws approvals, and that is stored as well.
        with anyio.CancelScope(shield=True):
            while self._records or not self._is_closed:
                if not self._records:
                    self._change = anyio.Event()
                    await self._change.wait()
                else:
                    await self._store_batch()

    async def settle(self) -> None:
        """Wait until all changes so far are stored, or cannot be."""
        wanted = self._taken_count
        while self._settled_count < wanted:
            await self._attempted.wait()

    async def _store_batch(self) -> None:
        """Store what there is. If that fails, try each record by itself: the session of one may be
        lost."""
        batch = [self._records.popleft() for _ in range(min(len(self._records), _MAX_BATCH))]
        if not await self._store_records(*batch):
            # Trying every record would make closing wait for the store many times. The next start
            # withdraws approvals that are open in the store.
            is_last_try = self._is_closed or len(batch) == 1
            for record in batch:
                if is_last_try or not await self._store_records(record):
                    logger.error("the approval %s (%s) is not kept", record.id, record.state)
        for record in batch:
            if record.id in self._unshown:
                self._unshown[record.id].is_settled.set()
        self._settled_count += len(batch)
        attempted, self._attempted = self._attempted, anyio.Event()
        attempted.set()

    async def _store_records(self, *records: ApprovalRecord) -> bool:
        try:
            await self._store.approvals.put(*records)
        except (StorageError, SessionError) as error:
            logger.warning("%d approvals cannot be stored: %s", len(records), error)
            return False
        return True

    async def _show_when_stored(self, run: AgentRun, approval_id: str, unshown: _Unshown) -> None:
        try:
            with unshown.scope:
                await unshown.is_settled.wait()
                await run.until_approval_stored(approval_id)
        finally:
            self._unshown.pop(approval_id, None)
            run.show_approval(approval_id)

    def close(self) -> None:
        self._is_closed = True
        self._stop_listening()
        self._change.set()
        for unshown in self._unshown.values():
            unshown.scope.cancel()

    def _record_change(
        self,
        request: ApprovalRequest,
        decided: AllowOnce | AllowAlways | AllowEdited | Deny | None,
        is_open: bool,
    ) -> None:
        run = self._run_of(request.context.run_id)
        if run is None or (run.is_detached and decided is None):
            # The request stays open for the process that continues the run.
            return
        if is_open:
            run.approval_opened(request, is_stored_first=run.is_stored)
            state, answer = "open", {}
            if run.is_stored:
                scope = anyio.CancelScope(deadline=anyio.current_time() + _SHOW_SECONDS)
                unshown = self._unshown[request.id] = _Unshown(scope=scope)
                self._tasks.start_soon(self._show_when_stored, run, request.id, unshown)
        else:
            state, answer = _describe_ending(request, decided)
            run.approval_closed(request, answer)
            if request.id in self._unshown:
                self._unshown[request.id].scope.cancel()
        if run.is_stored:
            self._records.append(_make_record(request, state, answer))
            self._taken_count += 1
            self._change.set()


@dataclass(frozen=True, kw_only=True, slots=True)
class _Unshown:
    """An approval that the readers of its run do not see yet."""

    scope: anyio.CancelScope
    """Of the task that shows it; cancelled to show it now."""
    is_settled: anyio.Event = field(default_factory=anyio.Event)
    """Set when the request is stored, or cannot be."""


def approval_to_json(request: ApprovalRequest) -> JsonObject:
    """A request for approval as readers of the run see it; secrets in the input are redacted."""
    asked: JsonObject = {
        "approvalId": request.id,
        "toolCallId": request.call_id,
        "toolId": request.tool_id,
        "toolName": request.tool_name,
        "input": _REDACTION.value(request.input),
        "reason": request.reason,
        "expiresAt": request.expires,
    }
    return {**asked, "parentToolCallId": request.parent_id} if request.parent_id else asked


def _describe_ending(
    request: ApprovalRequest, decided: AllowOnce | AllowAlways | AllowEdited | Deny | None
) -> tuple[ApprovalState, JsonObject]:
    match decided:
        case None:
            is_late = time.time() >= request.expires
            return (
                ("expired", {"answer": "expired"})
                if is_late
                else (
                    "given_up",
                    {"answer": "withdrawn"},
                )
            )
        case AllowOnce():
            return "allowed", {"answer": "allow", "how": "once"}
        case AllowAlways():
            return "allowed", {"answer": "allow", "how": "always"}
        case AllowEdited():
            shown = _REDACTION.value(decided.input)
            return "allowed", {"answer": "allow", "how": "edited", "input": shown}
        case Deny():
            return "denied", {"answer": "deny", "reason": decided.reason}
        case _:
            assert_never(decided)


def _make_record(
    request: ApprovalRequest, state: ApprovalState, answer: JsonObject
) -> ApprovalRecord:
    return ApprovalRecord(
        id=request.id,
        session_id=request.context.session_id,
        run_id=request.context.run_id,
        tool_id=request.tool_id,
        tool_name=request.tool_name,
        input=request.input,
        reason=request.reason,
        call_id=request.call_id,
        parent_id=request.parent_id,
        created=request.created,
        expires=request.expires,
        state=state,
        answer=answer,
        answered=None if state == "open" else time.time(),
    )


class SharedApprovals:
    """The open approvals of this gateway, and of others on the same database."""

    def __init__(
        self,
        queue: ApprovalQueue,
        *,
        log: ApprovalLog,
        store: Store,
        shared: SharedSessions | None,
    ) -> None:
        self._queue = queue
        self._log = log
        self._store = store
        self._shared = shared

    async def answer(self, approval_id: str, decision: ApprovalDecision) -> None:
        """Answer an open approval. Raises ApprovalError and StorageError."""
        if await self._is_of_others(approval_id):
            answer = _decision_to_json(decision)
            await self._send(approval_id, "approval", {"answer": answer})
        else:
            self._queue.answer(approval_id, decision)
            # Before the caller learns that it counts.
            with anyio.move_on_after(_SHOW_SECONDS):
                await self._log.settle()

    async def read_input(self, approval_id: str) -> JsonObject:
        """Return the whole input of an open approval, with its secrets. Raises ApprovalError and
        StorageError."""
        if await self._is_of_others(approval_id):
            found = await self._send(approval_id, "approval_input", {})
            return cast("JsonObject", found["input"])
        return self._queue.find(approval_id).input

    async def _is_of_others(self, approval_id: str) -> bool:
        """Whether another gateway may ask for the approval: this one does not know it, or has lost
        its session, and the next one asks again with the same id."""
        if self._shared is None:
            return False
        if self._queue.is_open(approval_id):
            request = self._queue.find(approval_id)
            return not await self._shared.is_serving(request.context.session_id)
        if self._queue.was_closed(approval_id):
            record = await self._store.approvals.find(approval_id)
            return record is not None and record.state == "open"
        return True

    async def _send(self, approval_id: str, kind: InboxKind, payload: JsonObject) -> JsonObject:
        """Send something to the gateway that asks, and return the result."""
        record = await self._store.approvals.find(approval_id)
        if record is None:
            raise ApprovalError(f"the approval {approval_id[:_MAX_SHOWN_ID]!r} does not exist")
        if record.state != "open":
            raise ApprovalError(f"the approval {approval_id!r} was answered already")
        assert self._shared is not None
        payload = {"approvalId": approval_id, **payload}
        try:
            return await self._shared.send_to(
                record.session_id, kind, payload, run_id=record.run_id
            )
        except SessionError as error:
            raise ApprovalError(f"the approval {approval_id!r} is not open: {error}") from error

    # What other gateways send.

    async def answer_here(
        self, run: AgentRun | None, approval_id: str, answer: dict[str, Any]
    ) -> None:
        """Answer an approval of a run of this gateway."""
        await self._wait_for(run, approval_id)
        self._queue.answer(approval_id, _decision_from_json(answer))
        # Before the sender learns that it counts.
        await self._log.settle()

    async def read_input_here(self, run: AgentRun | None, approval_id: str) -> JsonObject:
        """Return the input of an approval of a run of this gateway."""
        await self._wait_for(run, approval_id)
        return self._queue.find(approval_id).input

    async def _wait_for(self, run: AgentRun | None, approval_id: str) -> None:
        """A turn that was taken over asks again."""
        with anyio.move_on_after(_REOPEN_SECONDS):
            while (
                run is not None
                and not run.has_ended
                and not self._queue.was_closed(approval_id)
                and not self._queue.is_open(approval_id)
            ):
                await self._queue.wait_for_change()


def _decision_to_json(decision: ApprovalDecision) -> JsonObject:
    match decision:
        case AllowOnce():
            return {"how": "once"}
        case AllowAlways():
            return {"how": "always"}
        case AllowEdited():
            return {"how": "edited", "input": decision.input}
        case Deny():
            return {"how": "deny", "reason": decision.reason}


def _decision_from_json(data: dict[str, Any]) -> ApprovalDecision:
    match data["how"]:
        case "once":
            return AllowOnce()
        case "always":
            return AllowAlways()
        case "edited":
            return AllowEdited(data["input"])
        case _:
            return Deny(data.get("reason", ""))
