"""The runs that callers can ask for: all that are live, and those that ended lately."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from nacre.agent.run import AgentRun

_MAX_ENDED: Final = 256
_MAX_ENDED_BYTES: Final = 64 * 1024 * 1024


class RunRegistry:
    """Of one service. Runs that ended long ago, or that hold much, are forgotten first."""

    def __init__(self) -> None:
        self._live: dict[str, AgentRun] = {}
        self._ended: OrderedDict[str, AgentRun] = OrderedDict()
        self._ended_bytes = 0
        self._watchers: dict[Callable[[AgentRun], None], None] = {}

    def get(self, run_id: str) -> AgentRun | None:
        return self._live.get(run_id) or self._ended.get(run_id)

    def all(self, session_id: str | None = None) -> list[AgentRun]:
        """Oldest first."""
        known = [*self._ended.values(), *self._live.values()]
        return [run for run in known if session_id in (None, run.session_id)]

    def live(self) -> list[AgentRun]:
        return list(self._live.values())

    def watch(self, watcher: Callable[[AgentRun], None]) -> Callable[[], None]:
        """Have every run told as it is added; call what is returned to stop."""
        self._watchers[watcher] = None
        return lambda: self._watchers.pop(watcher, None)

    def add(self, run: AgentRun) -> None:
        self._live[run.id] = run
        for watcher in list(self._watchers):
            watcher(run)

    def note_ended(self, run: AgentRun) -> None:
        self._live.pop(run.id, None)
        self._ended[run.id] = run
        self._ended_bytes += run.bytes_held
        while len(self._ended) > _MAX_ENDED or (
            self._ended_bytes > _MAX_ENDED_BYTES and len(self._ended) > 1
        ):
            self._ended_bytes -= self._ended.popitem(last=False)[1].bytes_held
