"""What the supervisor and a worker say to each other: frames on a Unix socket.

A frame is a kind, a JSON object and a binary tail. Values of the guest travel in the tail, as the
JSON text that the guest made of them, and are read once, by the side that needs them. The
supervisor trusts no frame of a worker: hostile code may have taken it over.
"""

import json
import struct
from collections.abc import Mapping
from enum import IntEnum
from typing import Any, Final, NamedTuple

_HEADER = struct.Struct("<BII")
HEADER_BYTES: Final = _HEADER.size

# An item of output costs the host more than its text: a million empty ones are a flood, too.
OUTPUT_ITEM_BYTES: Final = 16


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
