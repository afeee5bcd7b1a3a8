"""One MCP server: how it is reached, what of it may be used, and how long anything may take."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

Transport = Literal["stdio", "http", "sse"]

DEFAULT_TIMEOUT_SECONDS: Final = 60.0
DEFAULT_STARTUP_SECONDS: Final = 30.0
DEFAULT_IDLE_SECONDS: Final = 600.0
DEFAULT_MAX_RESULT_BYTES: Final = 4 * 1024 * 1024

_ORIGIN = re.compile(r"(https?://)(?:[^/?#]*@)?([^/?#@]*)")


def _no_texts() -> Mapping[str, str]:
    return {}


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class McpServerConfig:
    """Complete and checked, references replaced: so it holds secrets, and never shows them."""

    name: str
    transport: Transport
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=_no_texts)
    cwd: str | None = None
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=_no_texts)
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS
    """For one request."""
    startup_seconds: float = DEFAULT_STARTUP_SECONDS
    idle_seconds: float = DEFAULT_IDLE_SECONDS
    allow: tuple[str, ...] | None = None
    """Patterns of tools and operations; None for all of them, empty for none."""
    deny: tuple[str, ...] = ()
    require_approval: tuple[str, ...] = ()
    """Patterns of the tools that a person has to approve; `*` for all."""
    is_disabled: bool = False
    oauth: bool = False
    """Whether the user may be asked to log in."""
    max_result_bytes: int = DEFAULT_MAX_RESULT_BYTES
    """A part of a result beyond this is named instead of carried."""

    looked_up: tuple[str, ...] = ()
    """What `${...}` references were replaced by, in arguments too: as secret as `env`."""

    missing: str = ""
    """A variable or file that is named and not there: all but the name is a stopgap then."""

    @property
    def place(self) -> str:
        """Where the server is, for people. Arguments and the rest of an URL often are secrets."""
        if self.transport == "stdio":
            return self.command
        # Of a disabled server the URL may be anything.
        origin = _ORIGIN.match(self.url)
        return f"{origin[1]}{origin[2]}" if origin else ""

    def __repr__(self) -> str:
        return (
            f"McpServerConfig(name={self.name!r}, transport={self.transport!r}, "
            f"place={self.place!r}, env={sorted(self.env)}, headers={sorted(self.headers)}, "
            f"is_disabled={self.is_disabled})"
        )
