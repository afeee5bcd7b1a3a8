"""Shared data inside a worker: JSON texts, and members of them looked up when a program asks."""

import json
from typing import Any, cast


class SharedParts:
    """The parts of one set of shared data. Nothing is parsed before a program looks it up."""

    def __init__(self, sizes: list[tuple[str, int]], texts: bytes) -> None:
        self._texts: dict[str, bytes] = {}
        # Parts that were looked into by key, parsed.
        self._members: dict[str, dict[str, Any]] = {}
        start = 0
        for name, size in sizes:
            self._texts[name] = texts[start : start + size]
            start += size

    def text(self, part: str) -> bytes | None:
        """The whole JSON text of a part."""
        return self._texts.get(part)

    def member(self, part: str, key: bytes) -> bytes | None:
        """The JSON text of one member of a part that is an object."""
        try:
            found = self._members_of(part).get(key.decode(), self)
        except UnicodeDecodeError:
            # Half a surrogate pair: JSON in UTF-8 has no such key.
            return None
        return None if found is self else json.dumps(found, separators=(",", ":")).encode()

    def _members_of(self, part: str) -> dict[str, Any]:
        if part not in self._members:
            parsed: object = json.loads(self._texts.get(part, b"{}"))
            is_object = isinstance(parsed, dict)
            self._members[part] = cast("dict[str, Any]", parsed) if is_object else {}
        return self._members[part]
