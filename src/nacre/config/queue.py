"""The `messages.queue` contract: what becomes of a message that arrives while a turn runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from nacre.config.section import Section

QueueMode = Literal["steer", "followup", "collect"]
QueueDrop = Literal["old", "new", "summarize"]


@dataclass(frozen=True, kw_only=True, slots=True)
class QueueConfig:
    """One queue per session."""

    mode: QueueMode = "steer"
    debounce_ms: int = 500
    cap: int = 20
    drop: QueueDrop = "old"
    """Which message goes when the queue is full; `summarize` drops old ones and leaves a note."""


def read_queue(messages: Section) -> QueueConfig:
    """Read `messages`; faults are noted."""
    queue, default = messages.section("queue"), QueueConfig()
    return QueueConfig(
        mode=queue.choice("mode", default.mode, get_args(QueueMode)),
        debounce_ms=queue.whole("debounceMs", default.debounce_ms, least=0, most=60_000),
        cap=queue.whole("cap", default.cap, least=1, most=1_000),
        drop=queue.choice("drop", default.drop, get_args(QueueDrop)),
    )
