"""Starts, watches and stops one server process with its children, and keeps its last output."""

from __future__ import annotations

import os
import signal
import sys
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import anyio

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from anyio.abc import ByteReceiveStream, ByteSendStream, Process

    from nacre.config import McpServerConfig


_MAX_LINES: Final = 20
_MAX_LINE_CHARACTERS: Final = 400


class OutputTail:
    """Takes bytes as they come; `clean` takes secrets out of what is shown."""

    def __init__(self, clean: Callable[[str], str] = str) -> None:
        self._clean = clean
        self._lines: deque[str] = deque(maxlen=_MAX_LINES)
        self._open = b""

    @property
    def lines(self) -> tuple[str, ...]:
        """The last lines, oldest first; also the one that has not ended."""
        shown = (self._clean(line) for line in (*self._lines, _format_line(self._open)) if line)
        return tuple(line[:_MAX_LINE_CHARACTERS] for line in shown)[-_MAX_LINES:]

    @property
    def last(self) -> str:
        lines = self.lines
        return lines[-1] if lines else ""

    def add(self, chunk: bytes) -> None:
        """More of the output."""
        # Looked at from its end: of a flood, only what is kept costs anything.
        *ended, rest = chunk.rsplit(b"\n", _MAX_LINES + 1)
        if not ended:
            self._open = (self._open + rest)[: 4 * _MAX_LINE_CHARACTERS]
            return
        self._note(self._open + ended[0][: 4 * _MAX_LINE_CHARACTERS])
        for line in ended[1:]:
            self._note(line)
        self._open = rest[: 4 * _MAX_LINE_CHARACTERS]

    def add_line(self, line: bytes, *, label: str) -> None:
        """A line from elsewhere."""
        self._lines.append(f"{label}: {_format_line(line)}")

    def _note(self, line: bytes) -> None:
        if shown := _format_line(line):
            self._lines.append(shown)


def _format_line(line: bytes) -> str:
    # Twice what is shown, so that a secret at the cut is seen as a whole.
    text = line[: 4 * _MAX_LINE_CHARACTERS].decode(errors="replace")
    printable = "".join(char if char.isprintable() else " " for char in text)
    return printable.strip()[: 2 * _MAX_LINE_CHARACTERS]


# A sound server ends when its input does; SIGTERM and SIGKILL are for the others.
_EXIT_SECONDS: Final = 1.0
_TERM_SECONDS: Final = 2.0
_KILL_SECONDS: Final = 2.0
# For one that has nothing to finish.
_SHORT_SECONDS: Final = 0.5
_POLL_SECONDS: Final = 0.01
_KILL: Final = signal.SIGTERM if sys.platform == "win32" else signal.SIGKILL

_live_groups: Final[set[int]] = set()


def kill_all_groups() -> None:
    """Kill every server that runs, with its children, at once and without waiting.

    For whoever must end now, such as at a second signal: nothing in here waits or takes a lock.
    """
    for group in tuple(_live_groups):
        _signal(group, _KILL)


def _signal(group: int, number: int) -> bool:
    """Whether there was anybody to signal."""
    with suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":
            os.kill(group, number)
        else:
            os.killpg(group, number)
        return True
    return False


class ServerProcess:
    """The process of one stdio server."""

    def __init__(self, process: Process) -> None:
        self._process = process

    @classmethod
    async def start(
        cls, config: McpServerConfig, *, environment: Mapping[str, str]
    ) -> ServerProcess:
        """Raises OSError when there is no such command or directory, ValueError for a NUL byte."""
        process = await anyio.open_process(
            [config.command, *config.args],
            env=environment,
            cwd=config.cwd,
            start_new_session=True,
        )
        _live_groups.add(process.pid)
        return cls(process)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def input(self) -> ByteSendStream:
        assert self._process.stdin is not None
        return self._process.stdin

    @property
    def output(self) -> ByteReceiveStream:
        assert self._process.stdout is not None
        return self._process.stdout

    @property
    def errors(self) -> ByteReceiveStream:
        assert self._process.stderr is not None
        return self._process.stderr

    async def how_it_ended(self) -> str:
        """For people; to be asked when its output has ended."""
        if not await self._has_exited(within_seconds=_EXIT_SECONDS):
            return "closed its standard output"
        status = self._process.returncode or 0
        if status >= 0:
            return f"exited with status {status}"
        with suppress(ValueError):
            return f"was killed by {signal.Signals(-status).name}"
        return f"was killed by signal {-status}"

    async def stop(self, *, is_in_use: bool) -> None:
        """End it and what is left of its group; takes some seconds at most, and little for one
        that nobody has got to use."""
        exit_seconds, term_seconds = (
            (_EXIT_SECONDS, _TERM_SECONDS) if is_in_use else (_SHORT_SECONDS, _SHORT_SECONDS)
        )
        with suppress(OSError, anyio.BrokenResourceError):
            await self.input.aclose()
        await self._has_exited(within_seconds=exit_seconds)
        # Also when it has ended: its children may not have.
        if self._signal_group(signal.SIGTERM) and not await self._is_gone(term_seconds):
            self._signal_group(_KILL)
            # Of its children, nobody has to wait for what is left of them to be cleared away.
            await self._has_exited(within_seconds=_KILL_SECONDS)
        _live_groups.discard(self._process.pid)
        self._close_pipes()

    async def _has_exited(self, *, within_seconds: float) -> bool:
        # `wait` of asyncio returns only when the pipes are closed, which a child may hold open.
        with anyio.move_on_after(within_seconds):
            while self._process.returncode is None:  # noqa: ASYNC110
                await anyio.sleep(_POLL_SECONDS)
        return self._process.returncode is not None

    async def _is_gone(self, within_seconds: float) -> bool:
        with anyio.move_on_after(within_seconds):
            # Nothing tells when the last process of a group has ended.
            while self._process.returncode is None or self._signal_group(0):  # noqa: ASYNC110
                await anyio.sleep(_POLL_SECONDS)
            return True
        return False

    def _signal_group(self, number: int) -> bool:
        """Whether there was anybody to signal."""
        if sys.platform == "win32":
            if self._process.returncode is None:
                self._process.kill()
            return False
        return _signal(self._process.pid, number)

    def _close_pipes(self) -> None:
        # A process that left the group may hold the other ends: nothing public closes ours then.
        transport = getattr(getattr(self._process, "_process", None), "_transport", None)
        if transport is not None:
            with suppress(PermissionError):
                transport.close()
