"""How a server does, for people."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ServerState = Literal["idle", "starting", "ready", "failed", "closed"]
"""`idle`: starts when it is asked something, for the first time or again; `closed`: for good."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerStatus:
    """One server in one session; nothing in it is secret."""

    name: str
    state: ServerState = "idle"
    problem: str = ""
    """Why it failed; of a server that works, what is wrong with single tools."""
    tool_count: int | None = None
    """None as long as it was not asked for its tools."""
    listed_bytes: int = 0
    """What its list of tools takes as compact JSON, once it was asked."""
    version: str = ""
    restarts: int = 0
    """How often it was started again, after a failure or because it had been idle."""
    pid: int | None = None
    session_id: str = ""
    last_output: tuple[str, ...] = ()
    """The last lines of its standard error, and of what it wrote that was no message."""
