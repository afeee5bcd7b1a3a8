"""Asks a person to approve tool calls: requests, answers, the queue, remembered answers."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import time
from collections import OrderedDict
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias, assert_never, cast

import anyio

from nacre.errors import ApprovalError, ToolInputError
from nacre.foreign_calls import passes_through
from nacre.json_types import NotJsonError, decode_json, encode_json

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from nacre.json_types import JsonObject
    from nacre.run_context import RunContext


_MAX_REMEMBERED: Final = 1024


class ApprovalMemory:
    """What was allowed for always: a tool with just one input, for one agent in one session."""

    def __init__(self, max_remembered: int = _MAX_REMEMBERED) -> None:
        self._max_remembered = max_remembered
        self._keys: OrderedDict[str, None] = OrderedDict()

    def remember(self, *, tool_id: str, input: JsonObject, context: RunContext) -> None:
        """Remember it; beyond the limit, what was used longest ago is asked about again."""
        self._keys[_memory_key(tool_id, input, context)] = None
        if len(self._keys) > self._max_remembered:
            self._keys.popitem(last=False)

    def holds(self, *, tool_id: str, input: JsonObject, context: RunContext) -> bool:
        key = _memory_key(tool_id, input, context)
        is_held = key in self._keys
        if is_held:
            self._keys.move_to_end(key)
        return is_held


def _memory_key(tool_id: str, input: JsonObject, context: RunContext) -> str:
    exactly = [context.session_id, context.session_key, context.agent_id, tool_id, input]
    return hashlib.sha256(json.dumps(exactly, sort_keys=True).encode()).hexdigest()


def accept_any_input(given: JsonObject) -> JsonObject:
    """The check of a call whose input nobody checks."""
    return given


@dataclass(frozen=True, kw_only=True, slots=True)
class ApprovalRequest:
    """A call that waits for a yes or a no. `input` is a copy: changing it changes no call."""

    id: str
    tool_id: str
    tool_name: str
    input: JsonObject
    reason: str
    """Why somebody has to agree."""
    context: RunContext
    call_id: str
    parent_id: str
    """The call of `exec` that the call is nested in; empty for a direct call."""
    created: float
    """When it was asked, and until when an answer counts: seconds since the epoch."""
    expires: float
    check: Callable[[JsonObject], object] = field(
        default=accept_any_input, repr=False, compare=False
    )
    """Raises ToolInputError for an input that the call cannot be made with."""

    def refuse_unfit(self, edited: JsonObject) -> None:
        """Raises ApprovalError for an edited input that the call cannot be made with."""
        try:
            self.check(edited)
        except ToolInputError as error:
            raise ApprovalError(f"the edited input does not fit: {error.message}") from error


@dataclass(frozen=True, slots=True)
class AllowOnce:
    """Make the call."""


@dataclass(frozen=True, slots=True)
class AllowAlways:
    """Make the call, and do not ask again for this tool with just this input in this session."""


@dataclass(frozen=True, slots=True)
class AllowEdited:
    """Make the call with this input instead; it has to fit the tool's schema as well."""

    input: JsonObject


@dataclass(frozen=True, slots=True)
class Deny:
    """Do not make the call; the program is told why."""

    reason: str = ""


ApprovalDecision: TypeAlias = AllowOnce | AllowAlways | AllowEdited | Deny
ApprovalInfo: TypeAlias = Literal["allow-once", "allow-always", "deny"] | ApprovalDecision
"""An answer as a word or as an object."""


def parse_decision(answer: object) -> ApprovalDecision:
    """The answer as an object of its own; raises ApprovalError for what is no answer."""
    match answer:
        case "allow-once":
            return AllowOnce()
        case "allow-always":
            return AllowAlways()
        case "deny":
            return Deny()
        case AllowEdited():
            return AllowEdited(_copy_input(answer.input))
        case AllowOnce() | AllowAlways():
            return answer
        case Deny() if isinstance(cast("object", answer.reason), str):
            return answer
        case _:
            raise ApprovalError(
                f"the answer is of type {type(answer).__name__}, or a word that is not known; "
                'allowed: "allow-once", "allow-always", "deny", AllowOnce, AllowAlways, '
                "AllowEdited(input), Deny(reason)"
            )


def _copy_input(edited: object) -> JsonObject:
    if not isinstance(edited, dict):
        raise ApprovalError(f"the edited input is a {type(edited).__name__}; it has to be a dict")
    try:
        return cast("JsonObject", decode_json(encode_json(cast("object", edited))))
    except NotJsonError as error:
        raise ApprovalError(f"the edited input is not JSON: {error}") from error


logger = logging.getLogger(__name__)

_MAX_CLOSED_REMEMBERED: Final = 1024
_MAX_SHOWN_ID: Final = 80

_Ending = Literal["was answered already", "has expired, or its call was given up"]

QuestionListener: TypeAlias = "Callable[[ApprovalRequest, ApprovalDecision | None, bool], None]"
"""Told of a question as it is opened and as it is closed: the request, the answer if there is one,
and whether it is open."""


@dataclass(kw_only=True, slots=True)
class OpenQuestion:
    """A request that waits in a queue, and its answer once there is one."""

    request: ApprovalRequest
    number: int
    decided: ApprovalDecision | None = None
    is_answered: anyio.Event = field(default_factory=anyio.Event)


class ApprovalQueue:
    """Shows every open question at once; each is answered by its id, once.

    `async for request in queue` gives each question as it comes, those open already first. Every
    such loop sees all of them, and none ends by itself.
    """

    def __init__(self) -> None:
        self._open: dict[str, OpenQuestion] = {}
        self._closed: OrderedDict[str, _Ending] = OrderedDict()
        self._asked_count = 0
        self._change = anyio.Event()
        self._listeners: dict[QuestionListener, None] = {}

    def listen(self, listener: QuestionListener) -> Callable[[], None]:
        """Have every question told at once as it opens and closes; call what is returned to stop.

        For records that may miss none: a reader of the queue does not see a question that was
        answered before it looked."""
        self._listeners[listener] = None
        return lambda: self._listeners.pop(listener, None)

    @property
    def pending(self) -> tuple[ApprovalRequest, ...]:
        """The open questions, oldest first."""
        return tuple(question.request for question in self._open.values())

    async def changed(self) -> None:
        """Return when a question has been opened, answered or closed after this call."""
        await self._change.wait()

    def answer(self, request_id: str, answer: ApprovalInfo) -> None:
        """Answer an open question.

        Raises ApprovalError when it is not open, or that no answer to it: it stays open then.
        """
        question = self._open.get(request_id)
        if question is None:
            ending = self._closed.get(request_id, "was never asked, or is long closed")
            raise ApprovalError(f"the approval {request_id[:_MAX_SHOWN_ID]!r} {ending}")
        decided = parse_decision(answer)
        if isinstance(decided, AllowEdited):
            question.request.refuse_unfit(decided.input)
        question.decided = decided
        self._close(question, "was answered already")
        question.is_answered.set()

    def was_closed(self, request_id: str) -> bool:
        """Whether this question was asked and is over; of long ago nothing is known."""
        return request_id in self._closed

    @contextmanager
    def asking(self, request: ApprovalRequest) -> Generator[OpenQuestion]:
        """Keep a question open meanwhile; for `Approvals`."""
        self._asked_count += 1
        question = OpenQuestion(request=request, number=self._asked_count)
        self._open[request.id] = question
        self._notify(question, is_open=True)
        self._notify_change()
        try:
            yield question
        finally:
            if question.decided is None:
                self._close(question, "has expired, or its call was given up")

    def __aiter__(self) -> _Questions:
        return _Questions(self)

    def first_after(self, number: int) -> OpenQuestion | None:
        """The oldest open question that was asked after so many others."""
        return next((it for it in self._open.values() if it.number > number), None)

    def _close(self, question: OpenQuestion, ending: _Ending) -> None:
        del self._open[question.request.id]
        self._closed[question.request.id] = ending
        if len(self._closed) > _MAX_CLOSED_REMEMBERED:
            self._closed.popitem(last=False)
        self._notify(question, is_open=False)
        self._notify_change()

    def _notify(self, question: OpenQuestion, *, is_open: bool) -> None:
        for listener in list(self._listeners):
            try:
                listener(question.request, question.decided, is_open)
            except Exception:
                logger.exception("a listener of the approvals failed")

    def _notify_change(self) -> None:
        change, self._change = self._change, anyio.Event()
        change.set()


class _Questions:
    """One reader of a queue: knows how far it has read."""

    def __init__(self, queue: ApprovalQueue) -> None:
        self._queue = queue
        self._number = 0

    def __aiter__(self) -> _Questions:
        return self

    async def __anext__(self) -> ApprovalRequest:
        while (question := self._queue.first_after(self._number)) is None:
            await self._queue.changed()
        self._number = question.number
        return question.request


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
