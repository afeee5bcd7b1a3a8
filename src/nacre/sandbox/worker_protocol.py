"""The protocol between the supervisor and a worker: frames on a Unix socket.

A frame has a kind, a JSON object and a binary tail. Values of the guest are in the tail, as JSON
text that the guest wrote. They are decoded once, by the side that uses them. The supervisor trusts
no frame of a worker, because guest code may have compromised it: every event that a correct worker
would not send raises WorkerProtocolError, and the worker is killed.
"""

from __future__ import annotations

import _socket
import json
import os
import select
import struct
import sys
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from nacre.errors import WorkerProtocolError
from nacre.json_types import (
    MAX_PARTS,
    JsonValue,
    NotJsonError,
    TooLargeError,
    decode_json,
    make_encoder,
)

if TYPE_CHECKING:
    # Not imported by workers, which use this module too.
    from collections.abc import Collection, Mapping, Sequence

    from nacre.sandbox.results import Reason

_HEADER = struct.Struct("<BII")
HEADER_BYTES: Final = _HEADER.size

# Added to the size of each item of output, so that many empty items also reach the limit.
OUTPUT_ITEM_BYTES: Final = 16

# The images of a cell do not count as output. They are base64, so this is six megabytes of images.
MAX_CELL_IMAGE_BYTES: Final = 8 << 20
# The marker of an image, or the note that it was left out, counts as output.
IMAGE_ITEM_BYTES: Final = 192

_CHUNK_BYTES: Final = 1 << 18


_encode_fields = make_encoder(json.JSONEncoder(check_circular=False))
_decode_fields = json.JSONDecoder().raw_decode

_MAX_ID: Final = 2**53
# The longest timer of a program, which is also longer than any burst.
_MAX_MS: Final = 2.0**31
_MIN_CLOCK_ENTRIES: Final = 3
# With steps that grow, this is enough for years.
_MAX_CLOCK_ENTRIES: Final = 20_001
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


# Copying more than this in one step takes milliseconds.
_MAX_JOINED_BYTES: Final = 1 << 20


class Command(IntEnum):
    """From the supervisor to the worker."""

    START = 1
    RESTORE = 2
    DELIVER = 3
    FIRE_TIMERS = 4
    SUSPEND = 5
    ABORT = 6
    TRANSFORM = 7
    SHARE = 8
    SET_UP = 9


class Event(IntEnum):
    """From the worker to the supervisor."""

    READY = 64
    NOT_STARTED = 65
    OUTPUT = 66
    PARKED = 67
    COMPLETED = 68
    FAILED = 69
    SUSPENDED = 70
    SNAPSHOT_TOO_LARGE = 71
    ABORTED = 72
    TRANSFORMED = 73
    STARTED = 74


class Frame(NamedTuple):
    """One message. `fields` is a JSON object; the kind defines the content of `tail`."""

    kind: int
    fields: dict[str, Any]
    tail: bytes


def encode_frame(kind: int, fields: Mapping[str, object], tail: bytes = b"") -> bytes:
    """Encode a frame."""
    return b"".join(encode_pieces(kind, fields, (tail,)))


def encode_pieces(
    kind: int, fields: Mapping[str, object], tail: Sequence[bytes]
) -> Sequence[bytes]:
    """Encode a frame whose tail is in pieces. Only small pieces are joined."""
    encoded = _encode_fields(fields).encode()
    size = sum(map(len, tail))
    pieces = (_HEADER.pack(kind, len(encoded), size), encoded, *tail)
    return (b"".join(pieces),) if size <= _MAX_JOINED_BYTES else pieces


def decode_header(data: bytes | bytearray) -> tuple[int, int, int]:
    """Decode the kind, the length of the fields and the length of the tail."""
    return _HEADER.unpack_from(data)


class FrameBuffer:
    """Receives the frames of a socket.

    The memory to receive into is allocated once: for a new block of this size, the C library would
    map and unmap memory at each call.
    """

    def __init__(
        self, connection: _socket.socket, *, max_bytes: int, max_fields_bytes: int
    ) -> None:
        self._connection = connection
        self._max_bytes = max_bytes
        self._max_fields_bytes = max_fields_bytes
        self._chunk = memoryview(bytearray(_CHUNK_BYTES))
        self._received = bytearray()

    def __bool__(self) -> bool:
        """Whether there are received bytes."""
        return bool(self._received)

    def receive(self) -> int:
        """Receive once, and return the number of bytes: 0 if the other side has closed."""
        size = self._connection.recv_into(self._chunk)
        self._received += self._chunk[:size]
        return size

    def take(self) -> Frame | None:
        """Return and remove the next frame, or None if it is not complete."""
        received = self._received
        if len(received) < HEADER_BYTES:
            return None
        kind, fields_size, tail_size = decode_header(received)
        fields_end = HEADER_BYTES + fields_size
        end = fields_end + tail_size
        if end > self._max_bytes or fields_size > self._max_fields_bytes:
            raise WorkerProtocolError(f"a worker announced a frame of {end} bytes")
        if len(received) < end:
            return None
        fields = _read_fields(received[HEADER_BYTES:fields_end])
        # Copied once: a slice of the bytearray would be another copy.
        tail = bytes(memoryview(received)[fields_end:end])
        del received[:end]
        return Frame(kind, fields, tail)


def _read_fields(data: bytearray) -> dict[str, Any]:
    try:
        text = data.decode()
        # Not `json.loads`, which looks for spaces around the value.
        fields, end = _decode_fields(text)
    except (ValueError, RecursionError) as error:
        raise WorkerProtocolError(f"a worker sent invalid JSON: {error}") from error
    if not isinstance(fields, dict) or end != len(text):
        raise WorkerProtocolError("a worker sent fields that are not an object")
    return cast("dict[str, Any]", fields)


class WorkerConnection:
    """The worker's end of the socket, with blocking calls. The process exits when it is closed."""

    def __init__(self, descriptor: int) -> None:
        # Without the Python part of `socket`, whose import is a tenth of the start of a worker.
        self._socket = _socket.socket(fileno=descriptor)
        # The supervisor is trusted.
        self._frames = FrameBuffer(
            self._socket, max_bytes=sys.maxsize, max_fields_bytes=sys.maxsize
        )
        # Created now, because a hardened worker cannot create descriptors.
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, data: bytes) -> None:
        """Send a whole frame."""
        self._socket.sendall(data)

    def has_input(self) -> bool:
        """Whether there is an unread message of the supervisor."""
        return bool(self._frames) or bool(self._poll.poll(0))

    def receive(self) -> Frame:
        """Wait for the next command."""
        while (frame := self._frames.take()) is None:
            if not self._frames.receive():
                os._exit(0)
        return frame


# Events, as the supervisor reads them.


class RequestEvent(NamedTuple):
    """One request of the program."""

    id: int
    method: str
    payload: JsonValue
    refusal: str = ""
    """Why the payload is refused: it has too many parts."""


class YieldEvent(NamedTuple):
    """The program yields until the request with this id is answered."""

    id: int
    reason: str


class BurstEvent(NamedTuple):
    """The end of a burst: new requests and yields, the next timer, and the value of the program if
    it returned in this burst."""

    value: JsonValue
    value_bytes: int
    requests: tuple[RequestEvent, ...]
    yields: tuple[YieldEvent, ...]
    timer_ms: float | None
    busy_ms: float
    clock: tuple[int, ...] = ()
    """What the program read from its clock: see `GuestInputs.clock`."""


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
        value = payloads.take(fields["valueBytes"]) if "valueBytes" in fields else b""
        if len(value) > self._max_value_bytes:
            raise WorkerProtocolError("a worker sent a value over the cell's limit")
        # Most bursts have one request, and nothing else.
        requests = yields = ()
        if "requests" in fields:
            requests = self._requests(fields["requests"], payloads, max_requests)
        payloads.check_end()
        if "yields" in fields:
            yields = self._yields(fields["yields"])
        self._check_ids([each.id for each in (*requests, *yields)])
        return BurstEvent(
            decode_value(value) if value else None,
            len(value),
            requests,
            yields,
            _read_milliseconds(fields["timerMs"], "timer") if "timerMs" in fields else None,
            _read_milliseconds(fields.get("busyMs", 0), "burst") or 0.0,
            read_clock(fields["clock"]) if "clock" in fields else (),
        )

    def _requests(
        self, entries: Any, payloads: _Payloads, max_count: int
    ) -> tuple[RequestEvent, ...]:
        if not isinstance(entries, list):
            raise WorkerProtocolError("a worker sent requests that are not a list")
        entries = cast("list[Any]", entries)
        if len(entries) > max_count:
            raise WorkerProtocolError(
                f"a worker sent {len(entries)} requests; the limit is {max_count}"
            )
        return tuple([self._request(entry, payloads) for entry in entries])

    def _request(self, entry: Any, payloads: _Payloads) -> RequestEvent:
        try:
            request_id, method, size = entry
        except (TypeError, ValueError):
            raise WorkerProtocolError("a worker sent a malformed request") from None
        if type(request_id) is not int or not isinstance(method, str):
            raise WorkerProtocolError("a worker sent a malformed request")
        if method not in self._methods:
            raise WorkerProtocolError("a worker sent a request that the program cannot make")
        text = payloads.take(size)
        try:
            return RequestEvent(request_id, method, decode_value(text))
        except TooLargeError as error:
            return RequestEvent(request_id, method, None, error.problem)

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
        for number in sorted(ids):
            if not self._last_id < number <= _MAX_ID:
                raise WorkerProtocolError("a worker sent ids that are invalid or were used before")
            self._last_id = number


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
    """Decode a value of the guest. Raises TooLargeError if it has too many parts."""
    try:
        return decode_json(data, max_parts=MAX_PARTS)
    except TooLargeError:
        raise
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
    if kind not in ("text", "json", "image"):
        raise WorkerProtocolError("a worker sent output of an unknown kind")
    return kind, frame.tail


def read_clock(entries: object) -> tuple[int, ...]:
    """Check a report of a clock: two times and a number of reads, then steps and reads."""
    if not isinstance(entries, list):
        raise WorkerProtocolError("a worker sent a clock that is not a list")
    clock = tuple(cast("list[object]", entries))
    is_complete = len(clock) >= _MIN_CLOCK_ENTRIES and len(clock) % 2 == 1
    if not is_complete or len(clock) > _MAX_CLOCK_ENTRIES:
        raise WorkerProtocolError(f"a worker sent a clock with {len(clock)} entries")
    if not all(type(each) is int and 0 < each <= _MAX_ID for each in clock):
        raise WorkerProtocolError("a worker sent a clock with invalid entries")
    return cast("tuple[int, ...]", clock)


def _read_milliseconds(value: object, what: str) -> float | None:
    if value is None:
        return None
    if type(value) not in (int, float):
        raise WorkerProtocolError(f"a worker sent a {what} time that is not a number")
    number = cast("int | float", value)
    if not 0 <= number <= _MAX_MS:
        raise WorkerProtocolError(f"a worker sent a {what} time out of range")
    return float(number)
