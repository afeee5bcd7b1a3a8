"""Validates the events that a worker sends about its cell.

Guest code may have compromised the worker. Every event that a correct worker would not send raises
WorkerProtocolError, and the worker is killed.
"""

from collections.abc import Collection
from typing import Any, Final, NamedTuple, cast

from nacre.errors import WorkerProtocolError
from nacre.json_types import JsonValue, NotJsonError, decode_json
from nacre.sandbox.results import Reason
from nacre.sandbox.worker_protocol import Event, Frame

_MAX_ID: Final = 2**53
# The longest timer of a program, which is also longer than any burst.
_MAX_MS: Final = 2.0**31
# The reasons that a worker can report. The others come from the supervisor.
_WORKER_REASONS: Final[frozenset[Reason]] = frozenset(
    {
        "aborted",
        "engine_trap",
        "guest_error",
        "memory_limit_exceeded",
        "module_access_denied",
        "nested_tool_failed",
        "never_settles",
        "output_limit_exceeded",
        "snapshot_restore_failed",
        "syntax_error",
        "timeout",
        "too_many_pending_tool_calls",
        "typescript_transform_failed",
        "unhandled_rejection",
    }
)


class RequestEvent(NamedTuple):
    """One request of the program."""

    id: int
    method: str
    payload: JsonValue


class YieldEvent(NamedTuple):
    """The program yields until the request with this id is answered."""

    id: int
    reason: str


class BurstEvent(NamedTuple):
    """The end of a burst: a value, new requests and yields, and the next timer."""

    value: JsonValue
    value_bytes: int
    requests: tuple[RequestEvent, ...]
    yields: tuple[YieldEvent, ...]
    timer_ms: float | None
    busy_ms: float


class EventReader:
    """Reads the events of one cell, and checks that request ids are not reused."""

    def __init__(self, methods: Collection[str], *, max_value_bytes: int) -> None:
        self._methods = frozenset(methods)
        self._max_value_bytes = max_value_bytes
        self._last_id = 0

    def burst(self, frame: Frame, *, max_requests: int) -> BurstEvent:
        """Read the end of a burst."""
        fields = frame.fields
        payloads = _Payloads(frame.tail)
        value = payloads.take(fields.get("valueBytes", 0))
        if len(value) > self._max_value_bytes:
            raise WorkerProtocolError("a worker sent a value over the cell's limit")
        requests = self._requests(fields.get("requests", []), payloads, max_requests)
        payloads.check_end()
        yields = self._yields(fields.get("yields", []))
        self._check_ids([*(request.id for request in requests), *(each.id for each in yields)])
        return BurstEvent(
            value=decode_value(value) if frame.kind == Event.COMPLETED else None,
            value_bytes=len(value),
            requests=requests,
            yields=yields,
            timer_ms=_read_milliseconds(fields.get("timerMs"), "timer"),
            busy_ms=_read_milliseconds(fields.get("busyMs", 0), "burst") or 0.0,
        )

    def _requests(
        self, entries: Any, payloads: "_Payloads", max_count: int
    ) -> tuple[RequestEvent, ...]:
        if not isinstance(entries, list):
            raise WorkerProtocolError("a worker sent requests that are not a list")
        entries = cast("list[Any]", entries)
        if len(entries) > max_count:
            raise WorkerProtocolError(
                f"a worker sent {len(entries)} requests; the limit is {max_count}"
            )
        return tuple(self._request(entry, payloads) for entry in entries)

    def _request(self, entry: Any, payloads: "_Payloads") -> RequestEvent:
        try:
            request_id, method, size = entry
        except (TypeError, ValueError):
            raise WorkerProtocolError("a worker sent a malformed request") from None
        if type(request_id) is not int or not isinstance(method, str):
            raise WorkerProtocolError("a worker sent a malformed request")
        if method not in self._methods:
            raise WorkerProtocolError("a worker sent a request that the program cannot make")
        return RequestEvent(id=request_id, method=method, payload=decode_value(payloads.take(size)))

    def _yields(self, entries: Any) -> tuple[YieldEvent, ...]:
        try:
            yields = tuple(YieldEvent(*entry) for entry in entries)
        except TypeError:
            raise WorkerProtocolError("a worker sent malformed yields") from None
        if any(type(each.id) is not int or not isinstance(each.reason, str) for each in yields):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise WorkerProtocolError("a worker sent malformed yields")
        return yields

    def _check_ids(self, ids: list[int]) -> None:
        # Ids must increase: with a repeated id, an answer would settle the wrong request.
        if not ids:
            return
        if len(set(ids)) != len(ids) or min(ids) <= self._last_id or max(ids) > _MAX_ID:
            raise WorkerProtocolError("a worker sent ids that are invalid or were used before")
        self._last_id = max(ids)


class _Payloads:
    """Splits the tail of a frame by the lengths in its fields."""

    def __init__(self, tail: bytes) -> None:
        self._tail = tail
        self._at = 0

    def take(self, size: Any) -> bytes:
        if type(size) is not int or not 0 <= size <= len(self._tail) - self._at:
            raise WorkerProtocolError("a worker sent an invalid length")
        start, self._at = self._at, self._at + size
        return self._tail[start : self._at]

    def check_end(self) -> None:
        if self._at != len(self._tail):
            raise WorkerProtocolError("a worker sent more than it announced")


def decode_value(data: bytes) -> JsonValue:
    """Decode a value of the guest."""
    try:
        return decode_json(data)
    except NotJsonError as error:
        raise WorkerProtocolError(f"a worker sent invalid JSON: {error}") from error


def read_reason(frame: Frame) -> Reason:
    """Read the reason why a cell failed."""
    reason = frame.fields.get("reason")
    if not isinstance(reason, str) or reason not in _WORKER_REASONS:
        raise WorkerProtocolError("a worker reported an invalid reason")
    return reason


def read_size(frame: Frame) -> int:
    """Read the size of a snapshot."""
    size = frame.fields.get("bytes")
    if type(size) is not int or not 0 <= size <= _MAX_ID:
        raise WorkerProtocolError("a worker sent an invalid size")
    return size


def read_output(frame: Frame) -> tuple[str, bytes]:
    """Read the kind and content of an item of output."""
    kind = frame.fields.get("kind")
    if kind not in ("text", "json"):
        raise WorkerProtocolError("a worker sent output of an unknown kind")
    return kind, frame.tail


def _read_milliseconds(value: object, what: str) -> float | None:
    if value is None:
        return None
    if type(value) not in (int, float):
        raise WorkerProtocolError(f"a worker sent a {what} time that is not a number")
    number = cast("int | float", value)
    if not 0 <= number <= _MAX_MS:
        raise WorkerProtocolError(f"a worker sent a {what} time out of range")
    return float(number)
