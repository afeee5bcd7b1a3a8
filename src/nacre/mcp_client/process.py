"""Starts and stops a server process with its children, and stores its last output."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

import anyio
import anyio.to_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from anyio.abc import ByteReceiveStream, ByteSendStream, Process


logger = logging.getLogger(__name__)

_MAX_LINES: Final = 20
_MAX_LINE_CHARACTERS: Final = 400


class OutputTail:
    """The last lines of the output of a process. `clean` removes secrets from them."""

    def __init__(self, clean: Callable[[str], str] = str) -> None:
        self._clean = clean
        self._lines: deque[str] = deque(maxlen=_MAX_LINES)
        self._open = b""

    @property
    def lines(self) -> tuple[str, ...]:
        """The last lines, oldest first, including an incomplete line."""
        shown = (self._clean(line) for line in (*self._lines, _format_line(self._open)) if line)
        return tuple(line[:_MAX_LINE_CHARACTERS] for line in shown)[-_MAX_LINES:]

    @property
    def last(self) -> str:
        lines = self.lines
        return lines[-1] if lines else ""

    def add(self, chunk: bytes) -> None:
        """Add output."""
        # Split from the end, so that only the lines that are stored take time.
        *ended, rest = chunk.rsplit(b"\n", _MAX_LINES + 1)
        if not ended:
            self._open = (self._open + rest)[: 4 * _MAX_LINE_CHARACTERS]
            return
        self._note(self._open + ended[0][: 4 * _MAX_LINE_CHARACTERS])
        for line in ended[1:]:
            self._note(line)
        self._open = rest[: 4 * _MAX_LINE_CHARACTERS]

    def add_line(self, line: bytes, *, label: str) -> None:
        """Add a line from another source."""
        self._lines.append(f"{label}: {_format_line(line)}")

    def _note(self, line: bytes) -> None:
        if shown := _format_line(line):
            self._lines.append(shown)


def _format_line(line: bytes) -> str:
    # Longer than the displayed line, so that `clean` sees a secret at the end as a whole.
    text = line[: 4 * _MAX_LINE_CHARACTERS].decode(errors="replace")
    printable = "".join(char if char.isprintable() else " " for char in text)
    return printable.strip()[: 2 * _MAX_LINE_CHARACTERS]


# A server should exit when its input ends. Otherwise it gets SIGTERM, then SIGKILL.
_EXIT_SECONDS: Final = 1.0
_TERM_SECONDS: Final = 2.0
_KILL_SECONDS: Final = 2.0
# For a server that was never used.
_SHORT_SECONDS: Final = 0.5
_POLL_SECONDS: Final = 0.01
_KILL: Final = signal.SIGTERM if sys.platform == "win32" else signal.SIGKILL

_live_groups: Final[set[int]] = set()


def kill_all_groups() -> None:
    """Kill all running servers with their children, without waiting.

    For an immediate exit, for example at a second signal. It takes no lock.
    """
    for group in tuple(_live_groups):
        _signal(group, _KILL)


def _signal(group: int, number: int) -> bool:
    """Send a signal to a process group. Returns whether the group exists."""
    with suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":
            os.kill(group, number)
        else:
            os.killpg(group, number)
        return True
    return False


# Reads the process groups of servers, and kills those that are left when its input ends.
_GUARD_SCRIPT: Final = """\
live=" "
while read -r sign group; do
  case $sign in
    +) live="$live$group " ;;
    -) live="${live%% $group *} ${live#* $group }" ;;
  esac
done
for group in $live; do kill -s KILL -- "-$group"; done
"""


class _Guard:
    """A small process that kills the servers and their children if this process is killed.

    It runs while there are servers. A death signal of Linux would reach neither the children of a
    server, such as those of `npx`, nor a server whose program changes its user. Methods block.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._servers = 0
        self._groups: set[int] = set()
        self._process: subprocess.Popen[bytes] | None = None

    def prepare(self) -> None:
        """Start the guard before its server: it takes long, and a kill may come meanwhile."""
        with self._lock:
            self._servers += 1
            if self._process is None:
                self._start()

    def add(self, group: int) -> None:
        with self._lock:
            self._groups.add(group)
            if not self._send(f"+ {group}\n"):
                self._start()

    def remove(self, group: int | None) -> None:
        """Remove a server, or with None one that did not start."""
        with self._lock:
            self._servers -= 1
            if group in self._groups:
                self._groups.remove(group)
                self._send(f"- {group}\n")
            if not self._servers:
                self._stop()

    def _start(self) -> None:
        self._stop()
        try:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", _GUARD_SCRIPT],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            # Servers that exit at the end of their input do not need it.
            logger.info("MCP servers may survive a kill of this process: %s", error)
            return
        self._send("".join(f"+ {group}\n" for group in self._groups))

    def _send(self, text: str) -> bool:
        if self._process is None or self._process.stdin is None:
            return False
        try:
            os.write(self._process.stdin.fileno(), text.encode())
        except OSError:
            return False
        return True

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is not None and process.stdin is not None:
            process.stdin.close()
            process.wait()


_guard: Final = _Guard()


async def _call_guard(function: Callable[[], None]) -> None:
    if sys.platform != "win32":
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(function)


class ServerProcess:
    """The process of one stdio server."""

    def __init__(self, process: Process) -> None:
        self._process = process

    @classmethod
    async def start(
        cls,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        cwd: str | Path | None = None,
    ) -> ServerProcess:
        """Start the process. Raises OSError for a missing command or directory, and ValueError."""
        await _call_guard(_guard.prepare)
        try:
            process = await anyio.open_process(
                command,
                env=environment,
                cwd=cwd,
                start_new_session=True,
            )
        except BaseException:
            await _call_guard(partial(_guard.remove, None))
            raise
        _live_groups.add(process.pid)
        await _call_guard(partial(_guard.add, process.pid))
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

    async def describe_end(self) -> str:
        """Describe how the process ended. Call it after the end of its output."""
        if not await self._has_exited(within_seconds=_EXIT_SECONDS):
            return "closed its standard output"
        status = self._process.returncode or 0
        if status >= 0:
            return f"exited with status {status}"
        with suppress(ValueError):
            return f"was killed by {signal.Signals(-status).name}"
        return f"was killed by signal {-status}"

    async def stop(self, *, is_in_use: bool) -> None:
        """Stop the process and its group. Takes a few seconds at most, less if it was not used."""
        exit_seconds, term_seconds = (
            (_EXIT_SECONDS, _TERM_SECONDS) if is_in_use else (_SHORT_SECONDS, _SHORT_SECONDS)
        )
        with suppress(OSError, anyio.BrokenResourceError):
            await self.input.aclose()
        await self._has_exited(within_seconds=exit_seconds)
        # Also if the process has ended, because its children may still run.
        if self._signal_group(signal.SIGTERM) and not await self._is_gone(term_seconds):
            self._signal_group(_KILL)
            # There is no need to wait for its children.
            await self._has_exited(within_seconds=_KILL_SECONDS)
        _live_groups.discard(self._process.pid)
        self._close_pipes()
        await _call_guard(partial(_guard.remove, self._process.pid))

    def kill(self) -> None:
        """Kill the process and its group at once; `stop` is still needed."""
        self._signal_group(_KILL)

    async def _has_exited(self, *, within_seconds: float) -> bool:
        # `wait` of asyncio returns only when the pipes are closed, but a child may keep them open.
        with anyio.move_on_after(within_seconds):
            while self._process.returncode is None:  # noqa: ASYNC110
                await anyio.sleep(_POLL_SECONDS)
        return self._process.returncode is not None

    async def _is_gone(self, within_seconds: float) -> bool:
        with anyio.move_on_after(within_seconds):
            # There is no event for the end of the last process of a group.
            while self._process.returncode is None or self._signal_group(0):  # noqa: ASYNC110
                await anyio.sleep(_POLL_SECONDS)
            return True
        return False

    def _signal_group(self, number: int) -> bool:
        """Send a signal to the process group. Returns whether the group exists."""
        if sys.platform == "win32":
            if self._process.returncode is None:
                self._process.kill()
            return False
        return _signal(self._process.pid, number)

    def _close_pipes(self) -> None:
        # If a process that left the group has the other ends open, no public method closes ours.
        transport = getattr(getattr(self._process, "_process", None), "_transport", None)
        if transport is not None:
            with suppress(PermissionError):
                transport.close()
