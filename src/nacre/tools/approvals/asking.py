"""Ask for, remember and expire approvals. Whatever goes wrong, the call is not made."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, Protocol, assert_never, cast

import anyio

from nacre.foreign_calls import passes_through
from nacre.json_types import decode_json, encode_json
from nacre.tools.approvals.memory import ApprovalMemory
from nacre.tools.approvals.queue import ApprovalQueue
from nacre.tools.approvals.requests import (
    AllowAlways,
    AllowEdited,
    AllowOnce,
    ApprovalDecision,
    ApprovalInfo,
    ApprovalRequest,
    Deny,
    accept_any_input,
    parse_decision,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from nacre.json_types import JsonObject
    from nacre.run_context import RunContext

logger = logging.getLogger(__name__)

APPROVAL_SECONDS: Final = 3600.0


class Approver(Protocol):
    """Asks a person. Called with one request at a time; cancelled when it expires."""

    async def __call__(self, request: ApprovalRequest, /) -> ApprovalInfo: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Granted:
    """The call may be made, with this input: what was asked about, or what a person made of it."""

    input: JsonObject
    is_edited: bool = False
    is_remembered: bool = False
    """Whether nobody was asked, because somebody had said "always"."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Refused:
    """The call may not be made."""

    code: Literal["approval_denied", "approval_expired"]
    reason: str


class Approvals:
    """Asks an approver, or puts questions into a queue, or refuses where nobody is to be asked."""

    def __init__(
        self,
        approver: Approver | ApprovalQueue | None = None,
        *,
        ttl_seconds: float = APPROVAL_SECONDS,
        memory: ApprovalMemory | None = None,
    ) -> None:
        self._approver = approver
        self._ttl_seconds = ttl_seconds
        self._memory = ApprovalMemory() if memory is None else memory
        # Who is asked in person is asked one question at a time, in the order of the calls.
        self._turn = anyio.Lock()

    async def ask(
        self,
        *,
        tool_id: str,
        tool_name: str,
        input: JsonObject,
        reason: str,
        context: RunContext,
        call_id: str,
        parent_id: str = "",
        check: Callable[[JsonObject], object] = accept_any_input,
    ) -> Granted | Refused:
        """Whether the call may be made. Time runs from when the question is put to somebody.

        `check` raises ToolInputError for an edited input that cannot be called with; a queue takes
        no such answer. Never waits for what is remembered, nor where nobody is there.
        """
        question = _Question(
            tool_id=tool_id,
            tool_name=tool_name,
            # What is agreed to is what is called, whoever holds the dict meanwhile.
            input_json=encode_json(input),
            reason=reason,
            context=context,
            call_id=call_id,
            parent_id=parent_id,
            check=check,
        )
        if self._remembers(question):
            return Granted(input=question.input(), is_remembered=True)
        match self._approver:
            case None:
                return _refuse_unattended(question)
            case ApprovalQueue() as queue:
                return self._outcome(question, await self._ask_queue(queue, question))
            case approver:
                return await self._ask_in_turn(approver, question)

    async def _ask_in_turn(self, approver: Approver, question: _Question) -> Granted | Refused:
        async with self._turn:
            # The answer to the question before may have been "always".
            if self._remembers(question):
                return Granted(input=question.input(), is_remembered=True)
            decided: ApprovalDecision | None = None
            with anyio.move_on_after(self._ttl_seconds) as scope:
                decided = await _ask_approver(approver, question.request(self._ttl_seconds))
            # An approver that shrugs off its cancellation is late all the same.
            return self._outcome(question, None if scope.cancel_called else decided)

    async def _ask_queue(
        self, queue: ApprovalQueue, question: _Question
    ) -> ApprovalDecision | None:
        with queue.asking(question.request(self._ttl_seconds)) as asked:
            with anyio.move_on_after(self._ttl_seconds):
                await asked.is_answered.wait()
            # An answer that was taken counts, also where the time ran out in the same moment.
            return asked.decided

    def _outcome(self, question: _Question, decided: ApprovalDecision | None) -> Granted | Refused:
        match decided:
            case None:
                return _refuse_expired(self._ttl_seconds)
            case AllowOnce():
                return Granted(input=question.input())
            case AllowAlways():
                self._memory.remember(
                    tool_id=question.tool_id, input=question.input(), context=question.context
                )
                return Granted(input=question.input())
            case AllowEdited():
                return Granted(input=decided.input, is_edited=True)
            case Deny():
                return _refuse_denied(decided.reason)
            case _:
                assert_never(decided)

    def _remembers(self, question: _Question) -> bool:
        return self._memory.holds(
            tool_id=question.tool_id, input=question.input(), context=question.context
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Question:
    """A request before anybody is asked, so before its time runs."""

    tool_id: str
    tool_name: str
    input_json: bytes
    reason: str
    context: RunContext
    call_id: str
    parent_id: str
    check: Callable[[JsonObject], object]

    def input(self) -> JsonObject:
        """A copy for each who gets it."""
        return cast("JsonObject", decode_json(self.input_json))

    def request(self, ttl_seconds: float) -> ApprovalRequest:
        now = time.time()
        return ApprovalRequest(
            id=f"approval_{os.urandom(8).hex()}",
            tool_id=self.tool_id,
            tool_name=self.tool_name,
            input=self.input(),
            reason=self.reason,
            context=self.context,
            call_id=self.call_id,
            parent_id=self.parent_id,
            created=now,
            expires=now + ttl_seconds,
            check=self.check,
        )


async def _ask_approver(approver: Approver, request: ApprovalRequest) -> ApprovalDecision:
    """What the approver says; a failure of it is a no."""
    task = asyncio.current_task()
    try:
        return parse_decision(await approver(request))
    except BaseException as error:
        if passes_through(error, caller=task):
            raise
        logger.exception("the approver failed at a call of %s", request.tool_id)
    return Deny("the approver failed")


def _refuse_unattended(question: _Question) -> Refused:
    return Refused(
        code="approval_denied",
        reason=f"{question.tool_id} needs an approval and nobody is there to approve; "
        "the call was not made",
    )


def _refuse_denied(reason: str) -> Refused:
    because = f": {reason}" if reason else ""
    return Refused(code="approval_denied", reason=f"the approval was denied{because}")


def _refuse_expired(ttl_seconds: float) -> Refused:
    return Refused(
        code="approval_expired",
        reason=f"nobody answered within {ttl_seconds:g} seconds; the call was not made",
    )
