"""Open questions for whoever answers them later: a web page, a chat, a terminal."""

from __future__ import annotations

import logging
from collections import OrderedDict
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import anyio

from nacre.errors import ApprovalError
from nacre.tools.approvals.requests import AllowEdited, parse_decision

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from nacre.tools.approvals.requests import ApprovalDecision, ApprovalInfo, ApprovalRequest

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
