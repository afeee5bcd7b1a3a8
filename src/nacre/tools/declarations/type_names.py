"""Names for the types of a declaration file."""

from __future__ import annotations

import re
from typing import Final

_MAX_CHARACTERS: Final = 80
_WORDS: Final = re.compile(r"[A-Za-z0-9]+")


class TypeNames:
    """The names of types in one file: nobody gets a name that another has."""

    def __init__(self) -> None:
        self._given: set[str] = set()
        self._counts: dict[str, int] = {}

    def claim(self, wanted: str) -> str:
        """The wanted name, or with a number behind it."""
        name, count = wanted, self._counts.get(wanted, 1)
        while name in self._given:
            count += 1
            name = f"{wanted}{count}"
        # Kept, so that thousands of claims to one name do not count up from the start each time.
        self._counts[wanted] = count
        self._given.add(name)
        return name


def pascal_case(name: str) -> str:
    """`create_issue` as `CreateIssue`, of ASCII letters and digits alone; may be empty."""
    words = _WORDS.findall(name[:_MAX_CHARACTERS])
    joined = "".join(word[0].upper() + word[1:] for word in words)
    return f"_{joined}" if joined[:1].isdigit() else joined
