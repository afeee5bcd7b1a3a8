"""A worker's end of the socket."""

import json
import os
import select
import socket
from typing import Final

from nacre.sandbox.worker_protocol import HEADER_BYTES, Frame, decode_header

_CHUNK_BYTES: Final = 1 << 18


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
