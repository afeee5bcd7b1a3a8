"""The commands that run; one in the background belongs to the session that started it."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import anyio

from nacre.tools.core.shell_process import ShellProblem, ShellProcess

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nacre.tools.core.shell_process import Command

_MAX_RUNNING: Final = 32
_MAX_PER_SESSION: Final = 8
_MAX_ENDED: Final = 16
_CLOSE_GRACE_SECONDS: Final = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class BackgroundProcess:
    """A command that goes on after the call that started it."""

    id: str
    session_id: str
    process: ShellProcess


class Processes:
    """Starts commands. Whatever still runs when this is closed is ended."""

    def __init__(self) -> None:
        self._started: set[ShellProcess] = set()
        self._background: dict[str, BackgroundProcess] = {}
        self._numbers = itertools.count(1)
        # One at a time, so that the bounds hold for commands that are started at once.
        self._starting = anyio.Lock()
        self._is_closed = False
        self._background_refusal = ""

    async def start(self, command: Command) -> ShellProcess:
        """Start a command; raises ShellProblem if that cannot be done."""
        self._refuse_if_closed()
        process = await ShellProcess.start(command)
        self._started = {each for each in self._started if each.is_running} | {process}
        if self._is_closed:
            await process.end(grace_seconds=0)
            self._refuse_if_closed()
        return process

    async def start_in_background(self, command: Command, *, session_id: str) -> BackgroundProcess:
        """The same, and keep what it writes until somebody asks; raises ShellProblem."""
        async with self._starting:
            self._forget_oldest()
            self._refuse_if_full(session_id)
            if self._background_refusal:
                raise ShellProblem(f"the command was not started: {self._background_refusal}")
            process = await self.start(command)
            kept = BackgroundProcess(
                id=f"p{next(self._numbers)}", session_id=session_id, process=process
            )
            self._background[kept.id] = kept
        return kept

    def of_session(self, session_id: str) -> list[BackgroundProcess]:
        """Those in the background, oldest first; of those that ended, the last ones."""
        self._forget_oldest()
        return [each for each in self._background.values() if each.session_id == session_id]

    def get(self, process_id: str, *, session_id: str) -> BackgroundProcess:
        """Raises ShellProblem for one that this session has not started."""
        mine = {each.id: each for each in self.of_session(session_id)}
        if process_id not in mine:
            known = ", ".join(mine) or "none"
            raise ShellProblem(f"this session has no process {process_id[:60]!r}; it has: {known}")
        return mine[process_id]

    async def end_background(self, reason: str) -> None:
        """End those in the background, and for this reason start no more of them. Commands that
        a call waits for go on."""
        self._background_refusal = reason
        # After a start that is under way: what it starts has to be known here.
        async with self._starting:
            await _end_all(each.process for each in self._background.values())

    async def aclose(self) -> None:
        """End all of them, with their children."""
        self._is_closed = True
        await _end_all(self._started)

    def _refuse_if_closed(self) -> None:
        if self._is_closed:
            raise ShellProblem("the command was not run: the system is shutting down")

    def _refuse_if_full(self, session_id: str) -> None:
        running = [each for each in self._background.values() if each.process.is_running]
        mine = [each for each in running if each.session_id == session_id]
        if len(mine) >= _MAX_PER_SESSION:
            raise ShellProblem(
                f"{len(mine)} processes of this session run in the background, and no more may; "
                f"end one with the tool `process`: {', '.join(each.id for each in mine)}"
            )
        if len(running) >= _MAX_RUNNING:
            raise ShellProblem(
                f"{len(running)} processes run in the background, and no more may; try later"
            )

    def _forget_oldest(self) -> None:
        ended = [each for each in self._background.values() if not each.process.is_running]
        for each in ended[: max(0, len(ended) - _MAX_ENDED)]:
            del self._background[each.id]


async def _end_all(processes: Iterable[ShellProcess]) -> None:
    async with anyio.create_task_group() as tasks:
        for process in processes:
            tasks.start_soon(partial(process.end, grace_seconds=_CLOSE_GRACE_SECONDS))
