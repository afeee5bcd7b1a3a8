"""Tells the events of a server-sent stream apart as they pass by, for the debug log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from nacre.json_types import NotJsonError, decode_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nacre.json_types import JsonValue

# What is kept of one event: enough to show it.
_MAX_KEPT_BYTES: Final = 65_536


@dataclass(frozen=True, kw_only=True, slots=True)
class SeenEvent:
    """One event: its kind as the stream names it, its size, and its data as far as it was kept."""

    kind: str
    size_bytes: int
    data: JsonValue


class SseWatch:
    """Fed with the bytes of a stream, in pieces of any size."""

    def __init__(self) -> None:
        self._line = bytearray()
        self._is_blank_line = True
        self._size_bytes = 0
        self._name = ""
        self._data: list[bytes] = []
        self._kept_bytes = 0

    def feed(self, chunk: bytes) -> Iterator[SeenEvent]:
        """The events that end in this piece."""
        for part in chunk.splitlines(keepends=True):
            self._size_bytes += len(part)
            kept = part[: _MAX_KEPT_BYTES - self._kept_bytes]
            self._line += kept
            self._kept_bytes += len(kept)
            self._is_blank_line = self._is_blank_line and not part.strip(b"\r\n")
            if part.endswith(b"\n"):
                if self._is_blank_line:
                    yield from self._finish_event()
                else:
                    self._take(bytes(self._line).strip(b"\r\n"))
                self._line.clear()
                self._is_blank_line = True

    def _take(self, line: bytes) -> None:
        field, _, value = line.partition(b":")
        if field == b"event":
            self._name = value.strip().decode(errors="replace")
        elif field == b"data":
            self._data.append(value.strip())

    def _finish_event(self) -> Iterator[SeenEvent]:
        if self._data or self._name:
            data = _data_from(b"\n".join(self._data))
            yield SeenEvent(
                kind=self._name or _kind_in(data), size_bytes=self._size_bytes, data=data
            )
        self._size_bytes = self._kept_bytes = 0
        self._name = ""
        self._data = []


def _data_from(data: bytes) -> JsonValue:
    try:
        return decode_json(data)
    except NotJsonError:
        return data.decode(errors="replace")


def _kind_in(data: JsonValue) -> str:
    if isinstance(data, dict):
        for key in ("type", "object"):
            kind = data.get(key)
            if isinstance(kind, str):
                return kind
    return "message" if isinstance(data, dict) else str(data)[:20]
