"""Approvals of all gateways: answers to them, and the inputs that people judge."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

import anyio

from nacre.errors import ApprovalError, SessionError
from nacre.tools import AllowAlways, AllowEdited, AllowOnce, Deny

if TYPE_CHECKING:
    from nacre.agent.approval_log import ApprovalLog
    from nacre.agent.run import AgentRun
    from nacre.agent.shared_sessions import SharedSessions
    from nacre.json_types import JsonObject
    from nacre.storage import ApprovalRecord, InboxKind, Store
    from nacre.tools import ApprovalDecision, ApprovalQueue

_MAX_SHOWN_ID: Final = 80
# How long a turn that was taken over may take to ask again.
_REOPEN_SECONDS: Final = 5.0
_LOOKS: Final = 20
_LOOK_SECONDS: Final = 0.05


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
        if self._is_of_others(approval_id):
            answer = _decision_to_json(decision)
            await self._send(approval_id, "approval", {"answer": answer})
        else:
            self._queue.answer(approval_id, decision)

    async def read_input(self, approval_id: str) -> JsonObject:
        """Return the whole input of an open approval, with its secrets. Raises ApprovalError and
        StorageError."""
        if self._is_of_others(approval_id):
            found = await self._send(approval_id, "approval_input", {})
            return cast("JsonObject", found["input"])
        return self._queue.find(approval_id).input

    def _is_of_others(self, approval_id: str) -> bool:
        """Whether this gateway does not know the approval, and another one may."""
        is_known = self._queue.is_open(approval_id) or self._queue.was_closed(approval_id)
        return self._shared is not None and not is_known

    async def _send(self, approval_id: str, kind: InboxKind, payload: JsonObject) -> JsonObject:
        """Send something to the gateway that asks, and return the result."""
        record = await self._find(approval_id)
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

    async def _find(self, approval_id: str) -> ApprovalRecord | None:
        for _ in range(_LOOKS):
            record = await self._store.approval(approval_id)
            if record is not None:
                return record
            # The gateway that asks stores the request a moment after its readers know of it.
            await anyio.sleep(_LOOK_SECONDS)
        return None

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
