"""Approvals of runs: reported to the runs, stored, and answered through any gateway."""

from __future__ import annotations

import logging
import time
from collections import deque
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

    So an approval that a person has seen is not lost if this process is killed. It is shown earlier
    only if the store does not answer, or the program does something else.
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
        self._unshown: dict[str, anyio.CancelScope] = {}
        self._change = anyio.Event()
        self._batch_done = anyio.Event()
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
            await self._batch_done.wait()

    def is_shown(self, approval_id: str) -> bool:
        """Whether the readers of its run see the approval."""
        return approval_id not in self._unshown

    async def _store_batch(self) -> None:
        """Store what there is. If that fails, try each record by itself: the session of one may be
        lost."""
        batch = [self._records.popleft() for _ in range(min(len(self._records), _MAX_BATCH))]
        if not await self._store_records(*batch):
            for record in batch:
                if self._is_closed or len(batch) == 1 or not await self._store_records(record):
                    logger.error("the approval %s (%s) is not kept", record.id, record.state)
            if self._is_closed:
                self._drop_pending()
        self._settled_count += len(batch)
        done, self._batch_done = self._batch_done, anyio.Event()
        done.set()

    async def _store_records(self, *records: ApprovalRecord) -> bool:
        try:
            await self._store.approvals.put(*records)
        except (StorageError, SessionError) as error:
            logger.warning("%d approvals cannot be stored: %s", len(records), error)
            return False
        return True

    def _drop_pending(self) -> None:
        """Drop the records: to try them all would make closing wait for the store many times. The
        next start withdraws approvals that are open in the store."""
        while self._records:
            record = self._records.popleft()
            self._settled_count += 1
            logger.error("the approval %s (%s) is not kept", record.id, record.state)

    async def _show_when_stored(
        self, run: AgentRun, approval_id: str, scope: anyio.CancelScope
    ) -> None:
        try:
            with scope:
                await self.settle()
                await run.wait_until_approval_stored(approval_id)
        finally:
            self._unshown.pop(approval_id, None)
            run.show_approval(approval_id)

    def close(self) -> None:
        self._is_closed = True
        self._stop_listening()
        self._change.set()
        for scope in self._unshown.values():
            scope.cancel()

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
            state, answer = "open", {}
            if run.approval_opened(request, is_stored_first=run.is_stored):
                scope = anyio.CancelScope(deadline=anyio.current_time() + _SHOW_SECONDS)
                self._unshown[request.id] = scope
                self._tasks.start_soon(self._show_when_stored, run, request.id, scope)
        else:
            state, answer = _describe_ending(request, decided)
            run.approval_closed(request, answer)
            if request.id in self._unshown:
                self._unshown[request.id].cancel()
        if run.is_stored:
            self._records.append(_make_record(request, state, answer))
            self._taken_count += 1
            self._change.set()


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
            await self._wait_until_stored()

    async def read_input(self, approval_id: str) -> JsonObject:
        """Return the whole input of an open approval, with its secrets. Raises ApprovalError and
        StorageError."""
        if await self._is_of_others(approval_id):
            found = await self._send(approval_id, "approval_input", {})
            return cast("JsonObject", found["input"])
        return self._queue.find(approval_id).input

    @property
    def pending(self) -> tuple[ApprovalRequest, ...]:
        """The open approvals of this gateway that readers see, oldest first."""
        return tuple(it for it in self._queue.pending if self._log.is_shown(it.id))

    async def _wait_until_stored(self) -> None:
        """Wait before the sender of an answer learns that it counts."""
        with anyio.move_on_after(_SHOW_SECONDS):
            await self._log.settle()

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
        await self._wait_until_stored()

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
