"""Reports approvals to the runs that they belong to, and stores them."""

from __future__ import annotations

import logging
import time
from collections import deque
from typing import TYPE_CHECKING, assert_never

import anyio

from nacre.errors import StorageError
from nacre.storage import ApprovalRecord
from nacre.telemetry import Redaction
from nacre.tools import AllowAlways, AllowEdited, AllowOnce, Deny

if TYPE_CHECKING:
    from collections.abc import Callable

    from nacre.agent.run import AgentRun
    from nacre.json_types import JsonObject
    from nacre.storage import ApprovalState, Store
    from nacre.tools import ApprovalQueue, ApprovalRequest

logger = logging.getLogger(__name__)

_REDACTION = Redaction()


class ApprovalLog:
    """Reports the approvals of a queue to their runs at once, and stores them in the background."""

    def __init__(
        self, queue: ApprovalQueue, *, store: Store, run_of: Callable[[str], AgentRun | None]
    ) -> None:
        self._store = store
        self._run_of = run_of
        self._records: deque[ApprovalRecord] = deque()
        self._change = anyio.Event()
        self._stored = anyio.Event()
        self._is_writing = False
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
                elif not await self._store_record(self._records.popleft()) and self._is_closed:
                    # Trying every record would make closing wait for the store many times.
                    self._drop_pending()
                if not self._records:
                    stored, self._stored = self._stored, anyio.Event()
                    stored.set()

    async def settle(self) -> None:
        """Wait until all changes so far are stored, or cannot be."""
        if self._records or self._is_writing:
            await self._stored.wait()

    async def _store_record(self, record: ApprovalRecord) -> bool:
        self._is_writing = True
        try:
            await self._store.put_approval(record)
        except StorageError as error:
            logger.error("the approval %s is not kept: %s", record.id, error)
            return False
        finally:
            self._is_writing = False
        return True

    def _drop_pending(self) -> None:
        """Drop the records. The next start withdraws approvals that are open in the store."""
        while self._records:
            record = self._records.popleft()
            logger.error("the approval %s (%s) is not kept either", record.id, record.state)

    def close(self) -> None:
        self._is_closed = True
        self._stop_listening()
        self._change.set()

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
            run.approval_opened(request)
            state, answer = "open", {}
        else:
            state, answer = _describe_ending(request, decided)
            run.approval_closed(request, answer)
        if run.is_stored:
            self._records.append(_make_record(request, state, answer))
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
