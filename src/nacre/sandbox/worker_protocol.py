"""The protocol between the supervisor and a worker: frames on a Unix socket.

A frame has a kind, a JSON object and a binary tail. Values of the guest are in the tail, as JSON
text that the guest wrote. They are decoded once, by the side that uses them. The supervisor trusts
no frame of a worker, because guest code may have compromised it.
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

# Added to the size of each item of output, so that many empty items also reach the limit.
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
    """One message. `fields` is a JSON object; the kind defines the content of `tail`."""

    kind: int
    fields: dict[str, Any]
    tail: bytes


def encode_frame(kind: int, fields: Mapping[str, object], tail: bytes = b"") -> bytes:
    """Encode a frame."""
    encoded = json.dumps(fields, separators=(",", ":")).encode()
    return _HEADER.pack(kind, len(encoded), len(tail)) + encoded + tail


def decode_header(data: bytes | bytearray) -> tuple[int, int, int]:
    """Decode the kind, the length of the fields and the length of the tail."""
    return _HEADER.unpack_from(data)


class WorkerConnection:
    """The worker's end of the socket, with blocking calls. The process exits when it is closed."""

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=descriptor)
        self._received = bytearray()
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
        return bool(self._received) or bool(self._poll.poll(0))

    def receive(self) -> Frame:
        """Wait for the next command."""
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
