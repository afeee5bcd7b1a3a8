"""What the supervisor and a worker say to each other: frames on a Unix socket.

A frame is a kind, a JSON object and a binary tail. Values of the guest travel in the tail, as the
JSON text that the guest made of them, and are read once, by the side that needs them. The
supervisor trusts no frame of a worker: hostile code may have taken it over.
"""

import json
import os
import select
import socket
import struct
from collections.abc import Mapping
from enum import IntEnum
from typing import Any, Final, NamedTuple

_HEADER = struct.Struct("<BII")
HEADER_BYTES: Final = _HEADER.size

# An item of output costs the host more than its text: a million empty ones are a flood, too.
OUTPUT_ITEM_BYTES: Final = 16

_CHUNK_BYTES: Final = 1 << 18


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
    """One message; `fields` is a JSON object, `tail` whatever the kind says."""

    kind: int
    fields: dict[str, Any]
    tail: bytes


def encode_frame(kind: int, fields: Mapping[str, object], tail: bytes = b"") -> bytes:
    """The bytes of a frame."""
    encoded = json.dumps(fields, separators=(",", ":")).encode()
    return _HEADER.pack(kind, len(encoded), len(tail)) + encoded + tail


def decode_header(data: bytes | bytearray) -> tuple[int, int, int]:
    """Kind, length of the fields and length of the tail."""
    return _HEADER.unpack_from(data)


class WorkerConnection:
    """Blocking, because a worker has nothing else to do. The end of the socket ends the process."""

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=descriptor)
        self._received = bytearray()
        # Made now: a hardened worker can open nothing, not even this.
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, data: bytes) -> None:
        """Send a whole frame."""
        self._socket.sendall(data)

    def has_news(self) -> bool:
        """Whether the supervisor has said something that is not read yet."""
        return bool(self._received) or bool(self._poll.poll(0))

    def receive(self) -> Frame:
        """The next command."""
        self._read_at_least(HEADER_BYTES)
        kind, fields_size, tail_size = decode_header(self._received)
        fields_end = HEADER_BYTES + fields_size
        end = fields_end + tail_size
        self._read_at_least(end)
        fields = json.loads(self._received[HEADER_BYTES:fields_end])
        tail = bytes(self._received[fields_end:end])
        del self._received[:end]
        return Frame(kind, fields, tail)

    def _read_at_least(self, size: int) -> None:
        while len(self._received) < size:
            chunk = self._socket.recv(_CHUNK_BYTES)
            if not chunk:
                os._exit(0)
            self._received += chunk
