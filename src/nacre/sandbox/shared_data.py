"""Data that many programs read and none changes: a worker gets it once and finds it by its hash."""

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

# What one worker holds, at most; a worker's own memory is limited as well.
_MAX_HELD: Final = 16
_MAX_HELD_BYTES: Final = 64 << 20
# Half of that: what is on its way takes room twice.
MAX_SHARED_BYTES: Final = _MAX_HELD_BYTES // 2


class SharedData:
    """JSON texts that programs read without leaving their worker.

    `parts` are the texts by name; the caller vouches that they are JSON. `methods` are the host
    requests that the guest makes on a program's behalf when it has this data. A program reads a
    part when it touches what is made of it, never before.
    """

    __slots__ = ("digest", "methods", "parts", "size")

    def __init__(self, parts: Mapping[str, bytes], *, methods: Iterable[str] = ()) -> None:
        for name, text in parts.items():
            if not isinstance(text, bytes):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise TypeError(f"part {name!r} is a {type(text).__name__}; it has to be bytes")
        self.parts: Mapping[str, bytes] = MappingProxyType(dict(parts))
        self.methods = frozenset(methods)
        self.size = sum(map(len, parts.values()))
        if self.size > MAX_SHARED_BYTES:
            raise ValueError(
                f"the shared data takes {self.size} bytes; the most is {MAX_SHARED_BYTES}"
            )
        self.digest = _digest(self.parts)


class SharedHoldings:
    """What one worker holds, as the supervisor knows it; decides what it has to forget."""

    def __init__(self) -> None:
        self._sizes: OrderedDict[str, int] = OrderedDict()

    def has(self, digest: str) -> bool:
        """Whether the worker holds this data; if so, it is the one used last."""
        if digest not in self._sizes:
            return False
        self._sizes.move_to_end(digest)
        return True

    def surplus(self, size: int) -> list[str]:
        """What to forget, the longest unused first, to make room for so many bytes."""
        count, total = len(self._sizes), sum(self._sizes.values())
        forgotten: list[str] = []
        for digest, held in self._sizes.items():
            if count < _MAX_HELD and total + size <= _MAX_HELD_BYTES:
                break
            forgotten.append(digest)
            count, total = count - 1, total - held
        return forgotten

    def note(self, data: SharedData, *, forgotten: Iterable[str]) -> None:
        """The worker was given this and has forgotten those."""
        for digest in forgotten:
            del self._sizes[digest]
        self._sizes[data.digest] = data.size


def _digest(parts: Mapping[str, bytes]) -> str:
    """One hash for names and texts; each with its length, so that none can pass for two."""
    found = hashlib.sha256()
    for name in sorted(parts):
        for text in (name.encode(errors="surrogatepass"), parts[name]):
            found.update(len(text).to_bytes(8, "little"))
            found.update(text)
    return found.hexdigest()
