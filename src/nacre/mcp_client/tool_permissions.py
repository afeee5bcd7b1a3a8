"""Matches the patterns of a server's configuration against the names of its tools."""

from __future__ import annotations

import re
import unicodedata
from fnmatch import translate
from typing import TYPE_CHECKING

from nacre.tools import OPERATION_MARK, possible_guest_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from nacre.config import McpServerConfig


class ToolPatterns:
    """Globs without regard to case. One matches a tool by the name that the server gave it, by
    those that programs may call it by, and by its id; an operation with and without its mark."""

    def __init__(self, server: str, patterns: Sequence[str]) -> None:
        self._server = server
        self._compiled = {text: re.compile(translate(_fold(text))) for text in patterns}

    def matches(self, name: str) -> bool:
        if not self._compiled:
            return False
        names = [_fold(known) for known in _known_names(self._server, name)]
        return any(_matches_one(pattern, names) for pattern in self._compiled.values())

    def without_match(self, names: Iterable[str]) -> list[str]:
        """The patterns that match none of the names."""
        left = dict(self._compiled)
        for name in names:
            if not left:
                break
            known = [_fold(known) for known in _known_names(self._server, name)]
            for text in [text for text, found in left.items() if _matches_one(found, known)]:
                del left[text]
        return list(left)


class ToolPermissions:
    """What the configuration of a server says of its tools and operations."""

    def __init__(self, config: McpServerConfig) -> None:
        self._config = config
        self._allow = None if config.allow is None else ToolPatterns(config.name, config.allow)
        self._deny = ToolPatterns(config.name, config.deny)
        self._asked = ToolPatterns(config.name, config.require_approval)

    def permits(self, name: str) -> bool:
        """Without an allow list, all that is not denied; what is denied is so, allowed or not."""
        is_allowed = self._allow is None or self._allow.matches(name)
        return is_allowed and not self._deny.matches(name)

    def approval_for(self, name: str) -> str:
        """Why a person has to agree to a call; empty if nobody has to."""
        if not self._asked.matches(name):
            return ""
        return f"the configuration of {self._config.name} asks for it"

    def notes(self, names: Sequence[str]) -> Iterator[str]:
        """A pattern that matches none of the names has no effect: most likely a slip."""
        config = self._config
        settings = (
            ("allow", config.allow or ()),
            ("deny", config.deny),
            ("requireApproval", config.require_approval),
        )
        for setting, patterns in settings:
            # `*` means all, even where there is nothing.
            named = [pattern for pattern in patterns if pattern != "*"]
            for pattern in ToolPatterns(config.name, named).without_match(names):
                yield f"`{setting}` has {pattern!r}, which matches no tool of this server"


def _known_names(server: str, name: str) -> Iterator[str]:
    plain = name.removeprefix(OPERATION_MARK)
    for spelled in {name, plain}:
        yield spelled
        yield f"mcp:{server}:{spelled}"
    if plain == name:
        yield from possible_guest_names(name)


def _matches_one(pattern: re.Pattern[str], names: Sequence[str]) -> bool:
    return any(map(pattern.match, names))


def _fold(text: str) -> str:
    return unicodedata.normalize("NFC", text).casefold()
