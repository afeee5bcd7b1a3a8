"""The host requests of a cell: passed to a handler, with a limit on concurrent calls.

Requests outlive the burst and the leg that made them. While a cell waits they continue, and their
answers are stored until the cell is resumed.
"""

import asyncio
import logging
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import field
from typing import Final

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup

from nacre.errors import HostRequestError
from nacre.foreign_calls import describe_error, passes_through
from nacre.json_types import JsonObject, JsonValue, NotJsonError, TooLargeError, encode_json
from nacre.large_json import MAX_VALUE_BYTES, MAX_VALUES, CheckedJson, encode_pieces_off_loop
from nacre.lazy_dataclasses import dataclass
from nacre.run_context import AbortController, AbortSignal
from nacre.sandbox.results import MAX_ERROR_CHARACTERS, CellId, PendingRequest
from nacre.sandbox.worker_process import WakeUp

logger = logging.getLogger(__name__)

# How long requests are served before other tasks get a turn.
_TURN_SECONDS: Final = 0.005
# The size of an error with its data. Of a larger error, only the start of the message is sent.
_MAX_REJECTION_BYTES: Final = 1 << 18


@dataclass(frozen=True, kw_only=True, slots=True)
class HostRequest:
    """A request of a program to the host: a method that the caller defined, and a JSON value."""

    id: int
    method: str
    payload: JsonValue
    cell_id: CellId
    abort: AbortSignal = field(default_factory=AbortSignal)
    """Aborted just before the handler is cancelled, when the cell fails or is aborted."""
    asking_person: Callable[[], AbstractContextManager[None]] = nullcontext
    """Enter it while the handler waits for a person. This time does not count for the program."""
    pause_clock: Callable[[], AbstractContextManager[None]] = nullcontext
    """Enter it for a wait that does not count as time of the program. The program is not suspended
    meanwhile, so the handler has to limit the wait."""


_Answer = tuple[bytes, ...]
"""`[id, succeeded, value]` as JSON. The value is in pieces of its own, the others are not."""

HostRequestHandler = Callable[[HostRequest], Awaitable[JsonValue | CheckedJson]]
"""Answers a request. A HostRequestError rejects the program's promise with its data; any other
exception rejects it with its message alone. The handler is cancelled when the cell is aborted."""


class HostRequests:
    """The unanswered requests of a cell, and the answers that are not delivered yet."""

    def __init__(
        self,
        handler: HostRequestHandler | None,
        *,
        tasks: TaskGroup,
        max_concurrent: int,
        max_bytes: int,
        wake: Callable[[], None],
    ) -> None:
        self._handler = handler
        self._tasks = tasks
        self._max_concurrent = max_concurrent
        self._wake = wake
        self._queue: deque[HostRequest] = deque()
        self._servers: set[anyio.CancelScope] = set()
        # Set to wake the idle server when there are more requests, or when it has to end.
        self._idle_server: WakeUp | None = None
        self._unanswered: dict[int, HostRequest] = {}
        self._answers: list[tuple[int, _Answer]] = []
        # The space left for answers that are delivered together in the next burst.
        self._max_bytes = self._bytes_left = max_bytes
        self._waiting_for_person: set[int] = set()
        self._pause_count = 0
        self._is_cancelled = False
        self._abort = AbortController()
        self.cancelled: tuple[PendingRequest, ...] = ()
        """The requests whose handlers were running when all requests were cancelled."""

    @property
    def abort_signal(self) -> AbortSignal:
        return self._abort.signal

    @property
    def pending(self) -> tuple[PendingRequest, ...]:
        """The unanswered requests, oldest first."""
        return tuple(
            PendingRequest(
                id=request.id,
                method=request.method,
                payload=request.payload,
                is_with_person=request.id in self._waiting_for_person,
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
        """Whether the program still waits for an answer of the host."""
        return bool(self._unanswered or self._answers)

    @property
    def is_clock_paused(self) -> bool:
        """Whether a handler waits for something that does not count as time of the program."""
        return self._pause_count > 0

    @property
    def waits_only_for_people(self) -> bool:
        """Whether all running requests wait for a person."""
        running = len(self._unanswered) - len(self._queue)
        return 0 < running == len(self._waiting_for_person) and not self._answers

    def open_ids(self) -> tuple[int, ...]:
        """Return the ids that the program still waits for, answered or not."""
        return (*self._unanswered, *(request_id for request_id, _ in self._answers))

    def add(self, request: HostRequest) -> None:
        """Add a request to the queue and start a server for it if the limit allows."""
        if self._is_cancelled:
            return
        self._unanswered[request.id] = request
        self._queue.append(request)
        if self._idle_server is not None:
            self.wake_idle_server()
        elif len(self._servers) < self._max_concurrent:
            # Added before the task starts, so that a cancellation in between reaches it.
            scope = anyio.CancelScope()
            self._servers.add(scope)
            self._tasks.start_soon(self._serve, scope)

    @contextmanager
    def asking_person(self, request_id: int) -> Generator[None]:
        """Count the request as waiting for a person inside this block."""
        self._waiting_for_person.add(request_id)
        self._wake()
        try:
            yield
        finally:
            self._waiting_for_person.discard(request_id)
            self._wake()

    @contextmanager
    def pause_clock(self) -> Generator[None]:
        """Stop the clock of the program inside this block."""
        self._pause_count += 1
        self._wake()
        try:
            yield
        finally:
            self._pause_count -= 1
            self._wake()

    def wake_idle_server(self) -> None:
        """Make the idle server check the queue. It ends if the queue is empty."""
        if self._idle_server is not None:
            self._idle_server.set()
            self._idle_server = None

    def answer(self, request_id: int, value: JsonValue = None) -> None:
        """Answer a request that needs no handler, such as a yield."""
        self._answers.append((request_id, _success(request_id, [encode_json(value)])))

    def refuse(self, request_id: int, problem: str) -> None:
        """Reject a request whose payload cannot be passed to the handler."""
        error = HostRequestError(
            f"the data of this call {problem}; pass less data at a time",
            name="RangeError",
            code="input_too_large",
        )
        self._answers.append((request_id, _rejection(request_id, error)))

    @property
    def answers(self) -> list[tuple[int, bool, Sequence[bytes]]]:
        """The answers that are not delivered yet: id, whether it succeeded, and JSON in pieces."""
        return [
            (request_id, head.endswith(_SUCCEEDED), pieces)
            for request_id, (head, *pieces, _) in self._answers
        ]

    def to_json(self) -> JsonObject:
        """The unanswered requests, and the answers that are not delivered yet."""
        return {
            "requests": [
                [request.id, request.method, request.payload]
                for request in self._unanswered.values()
            ],
            "answers": [[number, b"".join(answer).decode()] for number, answer in self._answers],
        }

    def load_answers(self, answers: Sequence[tuple[int, str]]) -> None:
        """Take over answers of another process that are not delivered yet."""
        self._answers += [(number, (text.encode(), b"", b"")) for number, text in answers]

    def take_answers(self) -> tuple[list[int], list[bytes]]:
        """Return and remove the answers: their ids, and `[[id, succeeded, value], ...]` as pieces
        of JSON. Large pieces are not joined: copying them would stop the event loop."""
        answers, self._answers = self._answers, []
        self._bytes_left = self._max_bytes
        pieces: list[bytes] = []
        for _, answer in answers:
            pieces += (b"," if pieces else b"[", *answer)
        return [found for found, _ in answers], [*pieces, b"]"]

    def cancel(self, reason: str) -> None:
        """Cancel all requests. Later answers are dropped."""
        for request in self._queue:
            del self._unanswered[request.id]
        self._queue.clear()
        if not self._is_cancelled:
            self._is_cancelled = True
            self.cancelled = self.pending
        self._abort.abort(reason)
        for scope in self._servers:
            scope.cancel()

    async def _serve(self, scope: anyio.CancelScope) -> None:
        """Serve requests one by one.

        One server stays idle and waits for more, because starting a task costs as much as a quick
        request.
        """
        try:
            with scope:
                while True:
                    try:
                        await self._serve_all()
                        break
                    except BaseException as error:
                        # A handler may cancel its own task. The task group would then cancel the
                        # tasks of all other cells.
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
                # Handlers that never wait would block the event loop.
                await anyio.lowlevel.checkpoint()
                turn_began = time.monotonic()

    async def _wait_for_more(self) -> None:
        idle = self._idle_server = WakeUp()
        try:
            await idle.wait()
        finally:
            # On a cancellation, this server is no longer available.
            if self._idle_server is idle:
                self._idle_server = None

    async def _serve_one(self, request: HostRequest) -> None:
        try:
            answer = await self._call_handler(request)
        finally:
            # Also on a cancellation.
            self._unanswered.pop(request.id, None)
        size = sum(map(len, answer))
        if size > self._bytes_left:
            answer = _rejection(request.id, _backlog_full(request, size))
            size = sum(map(len, answer))
        self._bytes_left -= size
        self._answers.append((request.id, answer))
        self._wake()

    async def _call_handler(self, request: HostRequest) -> _Answer:
        task = asyncio.current_task()
        try:
            if self._handler is None:
                raise HostRequestError(f"no host function {request.method!r} is defined")
            encoded = await _encode_answer(request, await self._handler(request))
            return _success(request.id, encoded)
        except HostRequestError as error:
            return _rejection(request.id, error)
        except NotJsonError as error:
            problem = f"the answer of {request.method} is not JSON: {error}"
            return _rejection(request.id, HostRequestError(problem, name="TypeError"))
        except BaseException as error:
            if passes_through(error, caller=task) and not _is_cancelled_from_outside(error):
                raise
            # The program gets the message; the traceback goes to the log.
            logger.exception("the handler of the host request %s failed", request.method)
            return _rejection(request.id, HostRequestError(describe_error(error)))


async def _encode_answer(request: HostRequest, answer: JsonValue | CheckedJson) -> list[bytes]:
    try:
        pieces = await encode_pieces_off_loop(answer)
    except TooLargeError as error:
        raise _too_large(request, error.problem) from error
    size = sum(map(len, pieces))
    if size > MAX_VALUE_BYTES:
        raise _too_large(request, f"has {size} bytes")
    return pieces


def _is_cancelled_from_outside(error: BaseException) -> bool:
    """Whether this task was cancelled by code that does not own it. It then continues."""
    if not isinstance(error, asyncio.CancelledError):
        return False
    if anyio.current_effective_deadline() == -math.inf:
        return False
    task = asyncio.current_task()
    while task is not None and task.cancelling():
        task.uncancel()
    return True


def _backlog_full(request: HostRequest, size: int) -> HostRequestError:
    return HostRequestError(
        f"the answer of {request.method} ({size} bytes) does not fit with the other answers that "
        "are not delivered yet; await some calls before you start more, or request less data",
        name="RangeError",
        code="result_too_large",
    )


def _too_large(request: HostRequest, problem: str) -> HostRequestError:
    return HostRequestError(
        f"the answer of {request.method} {problem}, the limit is {MAX_VALUE_BYTES} bytes in "
        f"{MAX_VALUES} values; request less data at a time",
        name="RangeError",
        code="result_too_large",
    )


_SUCCEEDED: Final = b"true,"


def _success(request_id: int, pieces: Sequence[bytes]) -> _Answer:
    return b"[%d,true," % request_id, *pieces, b"]"


def _rejection(request_id: int, error: HostRequestError) -> _Answer:
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
    return b"[%d,false," % request_id, encoded, b"]"
