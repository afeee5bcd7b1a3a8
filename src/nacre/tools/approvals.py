"""Approvals of tool calls: requests, decisions, the queue, and remembered decisions."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import json
import logging
import os
import time
from collections import OrderedDict
from contextlib import contextmanager
from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeAlias, assert_never, cast

import anyio

from nacre.errors import ApprovalError, ConfigError, ToolInputError
from nacre.foreign_calls import call_in_thread, passes_through
from nacre.json_types import NotJsonError, decode_json, encode_json
from nacre.lazy_dataclasses import dataclass, replace

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

    from nacre.json_types import JsonObject
    from nacre.run_context import RunContext

logger = logging.getLogger(__name__)


_MAX_REMEMBERED_CALLS: Final = 1024


class ApprovalMemory:
    """Calls that are always allowed: a tool with an exact input, in one session of one agent."""

    def __init__(
        self,
        max_remembered: int = _MAX_REMEMBERED_CALLS,
        *,
        max_age_seconds: float = float("inf"),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._max_remembered = max_remembered
        self._max_age_seconds = max_age_seconds
        self._clock = clock
        # The time of the decision by key, the least recently used first.
        self._keys: OrderedDict[str, float] = OrderedDict()

    def remember(self, *, tool_id: str, input: JsonObject, context: RunContext) -> None:
        """Remember a call; beyond the limit, the least recently used one is forgotten."""
        self._keys[call_fingerprint(tool_id, input, context)] = self._clock()
        if len(self._keys) > self._max_remembered:
            self._keys.popitem(last=False)

    def contains(self, *, tool_id: str, input: JsonObject, context: RunContext) -> bool:
        key = call_fingerprint(tool_id, input, context)
        decided = self._keys.get(key)
        if decided is None:
            return False
        if self._clock() - decided > self._max_age_seconds:
            del self._keys[key]
            return False
        self._keys.move_to_end(key)
        return True


def call_fingerprint(tool_id: str, input: JsonObject, context: RunContext) -> str:
    """The same for the same call in the same session, whatever the order of its members is."""
    parts = [context.session_id, context.session_key, context.agent_id, tool_id, input]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def accept_any_input(given: JsonObject) -> JsonObject:
    """The input check of a call that has none."""
    return given


@dataclass(frozen=True, kw_only=True, slots=True)
class ApprovalRequest:
    """A call that needs an approval. `input` is a copy; changing it has no effect."""

    id: str
    tool_id: str
    tool_name: str
    input: JsonObject
    reason: str
    """Why the call needs an approval."""
    context: RunContext
    call_id: str
    parent_id: str
    """The id of the `exec` call that contains the nested call; empty for a direct call."""
    created: float
    """Seconds since the epoch, like `expires`."""
    expires: float
    check: Callable[[JsonObject], object] = field(
        default=accept_any_input, repr=False, compare=False
    )
    """Raises ToolInputError if the call does not accept the input."""

    def check_edited_input(self, edited: JsonObject) -> None:
        """Raise ApprovalError if the call does not accept the edited input."""
        try:
            self.check(edited)
        except ToolInputError as error:
            raise ApprovalError(f"the edited input is invalid: {error.message}") from error


@dataclass(frozen=True, slots=True)
class AllowOnce:
    """Make the call."""


@dataclass(frozen=True, slots=True)
class AllowAlways:
    """Make the call, and allow this tool with exactly this input for the rest of the session."""


@dataclass(frozen=True, slots=True)
class AllowEdited:
    """Make the call with this input instead; it is validated against the tool's schema."""

    input: JsonObject


@dataclass(frozen=True, slots=True)
class Deny:
    """Do not make the call; the program gets the reason."""

    reason: str = ""


ApprovalDecision: TypeAlias = AllowOnce | AllowAlways | AllowEdited | Deny
ApprovalInfo: TypeAlias = Literal["allow-once", "allow-always", "deny"] | ApprovalDecision
"""A decision as a word or as an object."""


def parse_decision(answer: object) -> ApprovalDecision:
    """Parse a decision; raises ApprovalError."""
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
                f"the answer is of type {type(answer).__name__}, or an unknown word; "
                'allowed: "allow-once", "allow-always", "deny", AllowOnce, AllowAlways, '
                "AllowEdited(input), Deny(reason)"
            )


def _copy_input(edited: object) -> JsonObject:
    if not isinstance(edited, dict):
        raise ApprovalError(f"the edited input is a {type(edited).__name__}; it must be a dict")
    try:
        return cast("JsonObject", decode_json(encode_json(cast("object", edited))))
    except NotJsonError as error:
        raise ApprovalError(f"the edited input is not JSON: {error}") from error


_MAX_CLOSED_IDS: Final = 1024
_MAX_SHOWN_CHARACTERS: Final = 80

_Ending = Literal["was answered already", "has expired, or its call was cancelled"]

ApprovalListener: TypeAlias = "Callable[[ApprovalRequest, ApprovalDecision | None, bool], None]"
"""Called when a request is opened and when it is closed, with the request, the decision if there
is one, and whether the request is open."""


@dataclass(kw_only=True, slots=True)
class PendingApproval:
    """A request in a queue, and its decision."""

    request: ApprovalRequest
    number: int
    decision: ApprovalDecision | None = None
    has_decision: anyio.Event = field(default_factory=anyio.Event)


@dataclass(frozen=True, kw_only=True, slots=True)
class EarlierApproval:
    """A request of a process that has ended. The call that it belongs to is going to repeat it."""

    id: str
    run_id: str
    call_id: str
    fingerprint: str
    """Of the call, see `call_fingerprint`."""
    created: float
    expires: float
    seconds_left: float
    """Until it expires; the clock of the process that has ended may have been another one."""
    decision: ApprovalDecision | None = None
    """If it was answered, and the call had not begun."""


class ApprovalQueue:
    """The open approval requests; answer each by its id, once.

    `async for request in queue` yields the open requests and then each new one. Each loop gets all
    requests and never ends by itself.
    """

    def __init__(self) -> None:
        self._open: dict[str, PendingApproval] = {}
        self._closed: OrderedDict[str, _Ending] = OrderedDict()
        self._earlier: dict[tuple[str, str], EarlierApproval] = {}
        self._request_count = 0
        self._change = anyio.Event()
        self._listeners: dict[ApprovalListener, None] = {}

    def listen(self, listener: ApprovalListener) -> Callable[[], None]:
        """Call `listener` when a request opens or closes; call the returned function to stop.

        Unlike a reader of the queue, a listener misses no request that is answered quickly.
        """
        self._listeners[listener] = None
        return lambda: self._listeners.pop(listener, None)

    @property
    def pending(self) -> tuple[ApprovalRequest, ...]:
        """The open requests, oldest first."""
        return tuple(pending.request for pending in self._open.values())

    async def wait_for_change(self) -> None:
        """Wait until a request is opened, answered or closed."""
        await self._change.wait()

    def answer(self, request_id: str, answer: ApprovalInfo) -> None:
        """Answer an open request.

        Raises ApprovalError if it is not open, or if the answer is invalid; the request then
        stays open.
        """
        pending = self._find_open(request_id)
        decision = parse_decision(answer)
        if isinstance(decision, AllowEdited):
            pending.request.check_edited_input(decision.input)
        pending.decision = decision
        self._close(pending, "was answered already")
        pending.has_decision.set()

    def find(self, request_id: str) -> ApprovalRequest:
        """Return an open request. Raises ApprovalError if it is not open."""
        return self._find_open(request_id).request

    def _find_open(self, request_id: str) -> PendingApproval:
        pending = self._open.get(request_id)
        if pending is None:
            ending = self._closed.get(request_id, "does not exist, or was closed long ago")
            raise ApprovalError(f"the approval {request_id[:_MAX_SHOWN_CHARACTERS]!r} {ending}")
        return pending

    def is_open(self, request_id: str) -> bool:
        """Whether the request waits for an answer."""
        return request_id in self._open

    def expect(self, earlier: EarlierApproval) -> None:
        """Keep the id and the decision of an earlier request for the call that repeats it."""
        self._earlier[(earlier.run_id, earlier.call_id)] = earlier

    def take_earlier(
        self, *, run_id: str, call_id: str, fingerprint: str
    ) -> EarlierApproval | None:
        """Take the earlier request of a call; None if there is none, or the call has changed."""
        earlier = self._earlier.pop((run_id, call_id), None)
        if earlier is not None:
            self._notify_change()
        return None if earlier is None or earlier.fingerprint != fingerprint else earlier

    @property
    def has_earlier(self) -> bool:
        """Whether calls have not repeated their earlier requests yet."""
        return bool(self._earlier)

    def forget_earlier(self, run_id: str) -> None:
        """Forget the earlier requests of a run that has ended."""
        forgotten = [key for key in self._earlier if key[0] == run_id]
        for key in forgotten:
            del self._earlier[key]
        if forgotten:
            self._notify_change()

    def was_closed(self, request_id: str) -> bool:
        """Whether the request was closed recently."""
        return request_id in self._closed

    @contextmanager
    def open_request(self, request: ApprovalRequest) -> Generator[PendingApproval]:
        """Keep a request open within the block; for `Approvals`."""
        self._request_count += 1
        pending = PendingApproval(request=request, number=self._request_count)
        self._open[request.id] = pending
        self._notify(pending, is_open=True)
        self._notify_change()
        try:
            yield pending
        finally:
            if pending.decision is None:
                self._close(pending, "has expired, or its call was cancelled")

    def __aiter__(self) -> _RequestIterator:
        return _RequestIterator(self)

    def first_after(self, number: int) -> PendingApproval | None:
        """The oldest open request with a higher number."""
        return next((it for it in self._open.values() if it.number > number), None)

    def _close(self, pending: PendingApproval, ending: _Ending) -> None:
        del self._open[pending.request.id]
        self._closed[pending.request.id] = ending
        if len(self._closed) > _MAX_CLOSED_IDS:
            self._closed.popitem(last=False)
        self._notify(pending, is_open=False)
        self._notify_change()

    def _notify(self, pending: PendingApproval, *, is_open: bool) -> None:
        for listener in list(self._listeners):
            try:
                listener(pending.request, pending.decision, is_open)
            except Exception:
                logger.exception("a listener of the approval queue failed")

    def _notify_change(self) -> None:
        change, self._change = self._change, anyio.Event()
        change.set()


class _RequestIterator:
    """Iterates over the requests of a queue."""

    def __init__(self, queue: ApprovalQueue) -> None:
        self._queue = queue
        self._number = 0

    def __aiter__(self) -> _RequestIterator:
        return self

    async def __anext__(self) -> ApprovalRequest:
        while (pending := self._queue.first_after(self._number)) is None:
            await self._queue.wait_for_change()
        self._number = pending.number
        return pending.request


APPROVAL_SECONDS: Final = 3600.0


class Approver(Protocol):
    """Decides about a request. Called with one request at a time; cancelled when it expires.

    An async function, or a function, which is called in a thread.
    """

    def __call__(self, request: ApprovalRequest, /) -> ApprovalInfo | Awaitable[ApprovalInfo]: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Granted:
    """The call may be made with this input, which may have been edited."""

    input: JsonObject
    is_edited: bool = False
    is_remembered: bool = False
    """Whether an earlier "allow always" covers the call."""
    is_always: bool = field(default=False, compare=False)
    """Whether the decision is "allow always"; the call is granted as with "allow once"."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Refused:
    """The call may not be made."""

    code: Literal["approval_denied", "approval_expired"]
    reason: str


class Approvals:
    """Gets approvals from an approver or a queue; without either, refuses the call."""

    def __init__(
        self,
        approver: Approver | ApprovalQueue | None = None,
        *,
        ttl_seconds: float = APPROVAL_SECONDS,
        memory: ApprovalMemory | None = None,
    ) -> None:
        if approver is not None and not isinstance(approver, ApprovalQueue):
            _check_approver(approver)
        self._approver = approver
        self._ttl_seconds = ttl_seconds
        self._memory = ApprovalMemory() if memory is None else memory
        # An approver gets one request at a time, in the order of the calls.
        self._approver_lock = anyio.Lock()

    async def request(
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
        """Request an approval for a call, unless a remembered decision covers it.

        The request expires `ttl_seconds` after it reaches the approver or the queue. `check`
        raises ToolInputError for an invalid edited input; a queue rejects such an answer.
        """
        call = _Call(
            tool_id=tool_id,
            tool_name=tool_name,
            # Encoded, so that later changes of the dict do not change the approved call.
            input_json=encode_json(input),
            reason=reason,
            context=context,
            call_id=call_id,
            parent_id=parent_id,
            check=check,
        )
        if self._is_remembered(call):
            return Granted(input=call.input(), is_remembered=True)
        match self._approver:
            case None:
                return _refuse_without_approver(call)
            case ApprovalQueue() as queue:
                return self._apply(call, await self._wait_for_queue(queue, call))
            case approver:
                return await self._wait_for_approver(approver, call)

    async def _wait_for_approver(self, approver: Approver, call: _Call) -> Granted | Refused:
        async with self._approver_lock:
            # The previous decision may have been "allow always".
            if self._is_remembered(call):
                return Granted(input=call.input(), is_remembered=True)
            decision: ApprovalDecision | None = None
            with anyio.move_on_after(self._ttl_seconds) as scope:
                decision = await _call_approver(approver, call.to_request(self._ttl_seconds))
            # A decision after the timeout is ignored, even if the approver ignores cancellation.
            return self._apply(call, None if scope.cancel_called else decision)

    async def _wait_for_queue(self, queue: ApprovalQueue, call: _Call) -> ApprovalDecision | None:
        earlier = queue.take_earlier(
            run_id=call.context.run_id,
            call_id=call.call_id,
            fingerprint=call_fingerprint(call.tool_id, call.input(), call.context),
        )
        if earlier is not None and earlier.decision is not None:
            return earlier.decision
        request, seconds = call.to_request(self._ttl_seconds), self._ttl_seconds
        if earlier is not None:
            request = replace(
                request, id=earlier.id, created=earlier.created, expires=earlier.expires
            )
            seconds = earlier.seconds_left
        with queue.open_request(request) as pending:
            with anyio.move_on_after(seconds):
                await pending.has_decision.wait()
            # An accepted decision counts, even if the timeout comes at the same moment.
            return pending.decision

    def _apply(self, call: _Call, decision: ApprovalDecision | None) -> Granted | Refused:
        match decision:
            case None:
                return _refuse_expired(self._ttl_seconds)
            case AllowOnce():
                return Granted(input=call.input())
            case AllowAlways():
                self._memory.remember(
                    tool_id=call.tool_id, input=call.input(), context=call.context
                )
                return Granted(input=call.input(), is_always=True)
            case AllowEdited():
                return Granted(input=decision.input, is_edited=True)
            case Deny():
                return _refuse_denied(decision.reason)
            case _:
                assert_never(decision)

    def _is_remembered(self, call: _Call) -> bool:
        return self._memory.contains(tool_id=call.tool_id, input=call.input(), context=call.context)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Call:
    """A call that needs an approval, before its request is made."""

    tool_id: str
    tool_name: str
    input_json: bytes
    reason: str
    context: RunContext
    call_id: str
    parent_id: str
    check: Callable[[JsonObject], object]

    def input(self) -> JsonObject:
        """A new copy of the input."""
        return cast("JsonObject", decode_json(self.input_json))

    def to_request(self, ttl_seconds: float) -> ApprovalRequest:
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


async def _call_approver(approver: Approver, request: ApprovalRequest) -> ApprovalDecision:
    """The decision of the approver; Deny if it fails."""
    task = asyncio.current_task()
    try:
        if _is_async(approver):
            answer = approver(request)
        else:
            # It may wait for a person.
            answer = await call_in_thread(partial(approver, request))
        return parse_decision(await answer if inspect.isawaitable(answer) else answer)
    except BaseException as error:
        if passes_through(error, caller=task):
            raise
        logger.exception("the approver failed for a call of %s", request.tool_id)
    return Deny("the approver failed")


def _is_async(approver: Approver) -> bool:
    return inspect.iscoroutinefunction(approver) or inspect.iscoroutinefunction(
        type(approver).__call__
    )


def _check_approver(approver: object) -> None:
    if not callable(approver):
        raise ConfigError(
            "approvals",
            f"is a {type(approver).__name__}; allowed: a function that takes an "
            "ApprovalRequest, async or not, and an ApprovalQueue",
        )


def _refuse_without_approver(call: _Call) -> Refused:
    return Refused(
        code="approval_denied",
        reason=f"{call.tool_id} needs an approval, and there is nobody to approve it; "
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
