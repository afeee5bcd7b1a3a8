"""The requests of one cell: served by a handler, so many at a time, each answered once.

Requests outlive the burst and the leg that made them: while a cell waits they go on, and their
answers are kept until the cell is resumed.
"""

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field

import anyio
from anyio.abc import TaskGroup

from nacre.errors import HostRequestError
from nacre.ids import RunId
from nacre.json_types import JsonValue, NotJsonError, encode_json
from nacre.run_context import AbortController, AbortSignal
from nacre.sandbox.limits import MAX_ANSWER_BYTES
from nacre.sandbox.results import PendingRequest

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class HostRequest:
    """What a program asks of the host: a method that the caller defined, and one JSON value."""

    id: int
    method: str
    payload: JsonValue
    run_id: RunId
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
                while self._queue:
                    await self._serve_one(self._queue.popleft())
                    if not self._queue and self._idle_server is None:
                        idle = self._idle_server = anyio.Event()
                        await idle.wait()
        finally:
            self._servers.discard(scope)
            self._wake()

    async def _serve_one(self, request: HostRequest) -> None:
        try:
            answer = await self._answer_for(request)
        finally:
            # Also when it is cancelled: nobody serves it any more.
            self._unanswered.pop(request.id, None)
        self._answers.append((request.id, answer))
        self._wake()

    async def _answer_for(self, request: HostRequest) -> bytes:
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
        except anyio.get_cancelled_exc_class():
            if anyio.get_current_task().has_pending_cancellation():
                raise
            # Not ours: the handler awaited something that somebody else cancelled.
            return _rejection(request.id, HostRequestError("the call was cancelled"))
        except Exception as error:
            # The program gets plain words; the traceback is for the operator.
            logger.exception("the handler of the host request %s failed", request.method)
            message = str(error) or type(error).__name__
            return _rejection(request.id, HostRequestError(message))


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
        encoded = encode_json({"name": error.name, "message": error.message})
    return b"[%d,false,%b]" % (request_id, encoded)
