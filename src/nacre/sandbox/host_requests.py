"""The requests of one cell: served by a handler, so many at a time, each answered once.

Requests outlive the burst and the leg that made them: while a cell waits they go on, and their
answers are kept until the cell is resumed.
"""

import asyncio
import logging
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Final

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup

from nacre.errors import HostRequestError
from nacre.foreign_calls import describe_error, passes_through
from nacre.ids import CellId
from nacre.json_types import JsonValue, NotJsonError, encode_json
from nacre.run_context import AbortController, AbortSignal
from nacre.sandbox.results import MAX_ANSWER_BYTES, MAX_ERROR_CHARACTERS, PendingRequest

logger = logging.getLogger(__name__)

# How long requests are served before everybody else has a turn.
_TURN_SECONDS: Final = 0.005
# An error with its data; of a larger one only the beginning of the message is kept.
_MAX_REJECTION_BYTES: Final = 1 << 18


@dataclass(frozen=True, kw_only=True, slots=True)
class HostRequest:
    """What a program asks of the host: a method that the caller defined, and one JSON value."""

    id: int
    method: str
    payload: JsonValue
    cell_id: CellId
    abort: AbortSignal = field(default_factory=AbortSignal)
    """Set just before the handler is cancelled, because the cell failed or was aborted."""
    asking_person: Callable[[], AbstractContextManager[None]] = nullcontext
    """To be entered while the handler waits for a person: that time is not the program's."""


HostRequestHandler = Callable[[HostRequest], Awaitable[JsonValue]]
"""Answers a request. `HostRequestError` rejects the program's promise with its data; any other
exception rejects it with its message alone. Cancelled when the run is aborted."""


class HostRequests:
    """The unanswered requests of a cell and the answers that it has not got yet."""

    def __init__(
        self,
        handler: HostRequestHandler | None,
        *,
        tasks: TaskGroup,
        most_at_once: int,
        most_bytes: int,
        wake: Callable[[], None],
    ) -> None:
        self._handler = handler
        self._tasks = tasks
        self._most_at_once = most_at_once
        self._wake = wake
        self._queue: deque[HostRequest] = deque()
        self._servers: set[anyio.CancelScope] = set()
        # The server that has nothing to do is told of more, or that there is no more, by this.
        self._idle_server: anyio.Event | None = None
        self._unanswered: dict[int, HostRequest] = {}
        self._answers: list[tuple[int, bytes]] = []
        # How much more the program may be given at its next turn.
        self._most_bytes = self._bytes_left = most_bytes
        self._with_people: set[int] = set()
        self._is_cancelled = False
        self._abort = AbortController()

    @property
    def abort_signal(self) -> AbortSignal:
        return self._abort.signal

    @property
    def pending(self) -> tuple[PendingRequest, ...]:
        """The requests without an answer, oldest first."""
        return tuple(
            PendingRequest(
                id=request.id,
                method=request.method,
                payload=request.payload,
                is_with_person=request.id in self._with_people,
            )
            for request in self._unanswered.values()
        )

    @property
    def pending_count(self) -> int:
        return len(self._unanswered)

    @property
    def has_answers(self) -> bool:
        return bool(self._answers)

    @property
    def is_open(self) -> bool:
        """Whether the program still waits for anything of the host."""
        return bool(self._unanswered or self._answers)

    @property
    def only_people_are_left(self) -> bool:
        """Whether nothing moves any more unless a person answers."""
        in_service = len(self._unanswered) - len(self._queue)
        return 0 < in_service == len(self._with_people) and not self._answers

    def open_ids(self) -> tuple[int, ...]:
        """The ids that the program still waits for, answered or not."""
        return (*self._unanswered, *(request_id for request_id, _ in self._answers))

    def add(self, request: HostRequest) -> None:
        """Serve a request as soon as there is room."""
        if self._is_cancelled:
            return
        self._unanswered[request.id] = request
        self._queue.append(request)
        if self._idle_server is not None:
            self.let_go()
        elif len(self._servers) < self._most_at_once:
            # Known before the task runs, so that a cancellation in between reaches it.
            scope = anyio.CancelScope()
            self._servers.add(scope)
            self._tasks.start_soon(self._serve, scope)

    @contextmanager
    def asking_person(self, request_id: int) -> Generator[None]:
        """The handler of this request waits for a person while this is entered."""
        self._with_people.add(request_id)
        self._wake()
        try:
            yield
        finally:
            self._with_people.discard(request_id)
            self._wake()

    def let_go(self) -> None:
        """Have the idle server look at the queue; it ends if there is nothing in it."""
        if self._idle_server is not None:
            self._idle_server.set()
            self._idle_server = None

    def answer(self, request_id: int, value: JsonValue = None) -> None:
        """Answer a request that needs no handler, such as a yield."""
        self._answers.append((request_id, b"[%d,true,%b]" % (request_id, encode_json(value))))

    def take_answers(self) -> tuple[list[int], bytes]:
        """The ids and the JSON `[[id, succeeded, value], ...]` of what came in; each once."""
        answers, self._answers = self._answers, []
        self._bytes_left = self._most_bytes
        return [found for found, _ in answers], b"[%b]" % b",".join(json for _, json in answers)

    def cancel(self, reason: str) -> None:
        """Give up every request; nothing is answered any more."""
        self._is_cancelled = True
        for request in self._queue:
            del self._unanswered[request.id]
        self._queue.clear()
        self._abort.abort(reason)
        for scope in self._servers:
            scope.cancel()

    async def _serve(self, scope: anyio.CancelScope) -> None:
        """Serve requests one by one. One server waits for more: starting a task costs as much as
        all the rest of a quick request."""
        try:
            with scope:
                while True:
                    try:
                        await self._serve_all()
                        break
                    except BaseException as error:
                        # A handler's own code may hold this task and cancel it; a task group that
                        # saw it end so would give up every other cell.
                        if not _is_cancelled_from_outside(error):
                            raise
        finally:
            self._servers.discard(scope)
            self._wake()

    async def _serve_all(self) -> None:
        turn_began = time.monotonic()
        while self._queue:
            await self._serve_one(self._queue.popleft())
            if not self._queue and self._idle_server is None:
                await self._wait_for_more()
                turn_began = time.monotonic()
            elif time.monotonic() - turn_began > _TURN_SECONDS:
                # Handlers that never wait would keep everybody else waiting.
                await anyio.lowlevel.checkpoint()
                turn_began = time.monotonic()

    async def _wait_for_more(self) -> None:
        idle = self._idle_server = anyio.Event()
        try:
            await idle.wait()
        finally:
            # Woken by somebody who is not us: nobody may count on this server any more.
            if self._idle_server is idle:
                self._idle_server = None

    async def _serve_one(self, request: HostRequest) -> None:
        try:
            answer = await self._answer_for(request)
        finally:
            # Also when it is cancelled: nobody serves it any more.
            self._unanswered.pop(request.id, None)
        if len(answer) > self._bytes_left:
            answer = _rejection(request.id, _no_room(request, len(answer)))
        self._bytes_left -= len(answer)
        self._answers.append((request.id, answer))
        self._wake()

    async def _answer_for(self, request: HostRequest) -> bytes:
        task = asyncio.current_task()
        try:
            if self._handler is None:
                raise HostRequestError(f"no host function {request.method!r} is defined")
            encoded = encode_json(await self._handler(request))
            if len(encoded) > MAX_ANSWER_BYTES:
                raise _too_large(request, len(encoded))
            return b"[%d,true,%b]" % (request.id, encoded)
        except HostRequestError as error:
            return _rejection(request.id, error)
        except NotJsonError as error:
            problem = f"the answer of {request.method} is not JSON: {error}"
            return _rejection(request.id, HostRequestError(problem, name="TypeError"))
        except BaseException as error:
            if passes_through(error, caller=task) and not _is_cancelled_from_outside(error):
                raise
            # The program gets plain words; the traceback is for the operator.
            logger.exception("the handler of the host request %s failed", request.method)
            return _rejection(request.id, HostRequestError(describe_error(error)))


def _is_cancelled_from_outside(error: BaseException) -> bool:
    """Whether somebody cancelled this task who does not own it; the task can go on then."""
    if not isinstance(error, asyncio.CancelledError):
        return False
    if anyio.current_effective_deadline() == -math.inf:
        return False
    task = asyncio.current_task()
    while task is not None and task.cancelling():
        task.uncancel()
    return True


def _no_room(request: HostRequest, size: int) -> HostRequestError:
    return HostRequestError(
        f"the answer of {request.method} ({size} bytes) does not fit beside the others that the "
        "program has not taken yet; await some before you start more, or ask for less",
        name="RangeError",
        code="result_too_large",
    )


def _too_large(request: HostRequest, size: int) -> HostRequestError:
    return HostRequestError(
        f"the answer of {request.method} is {size} bytes, more than a program can be given "
        f"({MAX_ANSWER_BYTES}); ask for less at a time",
        name="RangeError",
        code="result_too_large",
    )


def _rejection(request_id: int, error: HostRequestError) -> bytes:
    data: dict[str, object] = {**error.data, "name": error.name, "message": error.message}
    if error.code is not None:
        data["code"] = error.code
    try:
        encoded = encode_json(data)
    except NotJsonError:
        encoded = b""
    if not 0 < len(encoded) <= _MAX_REJECTION_BYTES:
        texts = {"name": error.name, "message": error.message, "code": error.code or ""}
        encoded = encode_json(
            {key: str(text)[:MAX_ERROR_CHARACTERS] for key, text in texts.items() if text}
        )
    return b"[%d,false,%b]" % (request_id, encoded)
