"""One shell command as a process group: its output, its exit status and its children.

It uses callbacks of the event loop and no task, because a background command outlives the call that
started it and so has no task group.
"""

from __future__ import annotations

import asyncio
import codecs
import os
import signal
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import anyio

from nacre.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


_MAX_TRAIL_BYTES: Final = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class OutputPart:
    """Output from a position on."""

    text: str
    """Omitted bytes are marked by a line."""
    left_out_bytes: int
    next_position: int


class CommandOutput:
    """The first and the last bytes of an output, within a limit."""

    def __init__(self, max_bytes: int) -> None:
        self.total_bytes = 0
        self._head = bytearray()
        self._tail = bytearray()
        self._max_head = max_bytes // 2
        self._max_tail = max_bytes - self._max_head

    def add(self, data: bytes) -> None:
        """Append data; beyond the limit, the middle is dropped."""
        self.total_bytes += len(data)
        room = self._max_head - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        # Not at every write, because it moves the remaining bytes.
        if len(self._tail) > 2 * self._max_tail:
            del self._tail[: -self._max_tail]

    @property
    def is_full(self) -> bool:
        """Whether bytes were dropped."""
        return self.total_bytes > self._max_head + self._max_tail

    def part(self, position: int = 0, *, is_final: bool) -> OutputPart:
        """The output from a position on, without an incomplete character at the end."""
        position = min(position, self.total_bytes)
        tail = self._tail[-self._max_tail :]
        tail_start = self.total_bytes - len(tail)
        if position >= tail_start:
            text, used = _decode(tail[position - tail_start :], is_final=is_final)
            return OutputPart(text=text, left_out_bytes=0, next_position=position + used)
        head_size = len(self._head)
        if tail_start == head_size:
            text, used = _decode(self._head[position:] + tail, is_final=is_final)
            return OutputPart(text=text, left_out_bytes=0, next_position=position + used)
        before, used_before = _decode(self._head[position:], is_final=False)
        skipped = _trail_bytes(tail)
        after, used_after = _decode(tail[skipped:], is_final=is_final)
        resumes_at = tail_start + skipped
        left_out = resumes_at - position - used_before
        return OutputPart(
            text=f"{before}\n[... {left_out} bytes left out ...]\n{after}",
            left_out_bytes=left_out,
            next_position=resumes_at + used_after,
        )


def _decode(data: bytearray, *, is_final: bool) -> tuple[str, int]:
    """The text and its number of bytes; invalid UTF-8 becomes U+FFFD."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(bytes(data), is_final)
    return text, len(data) - len(decoder.getstate()[0])


def _trail_bytes(data: bytearray) -> int:
    """The number of bytes at the start that belong to an earlier character."""
    count = 0
    while count < min(_MAX_TRAIL_BYTES, len(data)) and data[count] & 0xC0 == 0x80:
        count += 1
    return count


_CHUNK_BYTES: Final = 65_536
# Dropped output must be read too, or the command would block; but not at full speed.
_FLOOD_PAUSE_SECONDS: Final = 0.001
# A pipe contains at most 1 MiB; anything after that comes from a child that is still running.
_MAX_LAST_CHUNKS: Final = 16
_KILL_SECONDS: Final = 2.0
_POLL_SECONDS: Final = 0.01
_MAX_SHOWN_CHARACTERS: Final = 200

_live_groups: Final[set[int]] = set()


def kill_all_commands() -> None:
    """Kill all running commands and their children without waiting.

    For a process that must exit now, such as after a second signal.
    """
    for group in tuple(_live_groups):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)


class ShellProblem(Exception):
    """A command failed to start, or there is no such process; the message is for the model."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Command:
    """A command with its working directory and environment."""

    argv: Sequence[str]
    folder: str
    environment: Mapping[str, str]
    max_output_bytes: int


class ShellProcess(asyncio.SubprocessProtocol):
    """A running or ended command. When it ends, its children are killed."""

    def __init__(self, command: Command, *, reading_end: int) -> None:
        self.command_line = _shorten(" ".join(command.argv))
        self.output = CommandOutput(command.max_output_bytes)
        self.exited = anyio.Event()
        self.started = time.monotonic()
        self.exit_status: int | None = None
        """Negative for a signal, as in `subprocess`; None while it runs."""
        self.left_children = False
        """Whether it ended by itself and left running children."""
        self._has_news = anyio.Event()
        self._transport: asyncio.SubprocessTransport | None = None
        self._reading_end = reading_end
        self._resumption: asyncio.TimerHandle | None = None
        self._is_being_ended = False

    @classmethod
    async def start(cls, command: Command) -> ShellProcess:
        """Start a command with empty input; raises ShellProblem."""
        reading_end, writing_end = os.pipe()
        os.set_blocking(reading_end, False)
        process = cls(command, reading_end=reading_end)
        try:
            # Shielded, because a process that is started but not registered could not be ended.
            with anyio.CancelScope(shield=True):
                await asyncio.get_running_loop().subprocess_exec(
                    lambda: process,
                    *command.argv,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=writing_end,
                    stderr=asyncio.subprocess.STDOUT,
                    cwd=command.folder,
                    env=command.environment,
                    start_new_session=True,
                )
        except BaseException as error:
            process._stop_reading()
            if isinstance(error, (OSError, ValueError)):
                raise ShellProblem(_why_not_started(command, error)) from error
            raise
        finally:
            os.close(writing_end)
        process._read_on()
        return process

    @property
    def is_running(self) -> bool:
        return not self.exited.is_set()

    @property
    def signal_name(self) -> str:
        """The signal that ended it, or an empty string."""
        if self.exit_status is None or self.exit_status >= 0:
            return ""
        with suppress(ValueError):
            return signal.Signals(-self.exit_status).name
        return f"signal {-self.exit_status}"

    async def wait_for_output(self) -> None:
        """Wait until it writes output or ends."""
        if self._has_news.is_set():
            self._has_news = anyio.Event()
        if self.is_running:
            await self._has_news.wait()

    async def end(self, *, grace_seconds: float) -> None:
        """End it and its children with SIGTERM, and with SIGKILL after `grace_seconds`.

        Shielded from cancellation; it takes little longer than the grace period.
        """
        if not self.is_running:
            # Its process id may have been reused.
            return
        self._is_being_ended = True
        with anyio.CancelScope(shield=True):
            self._signal(signal.SIGTERM)
            with anyio.move_on_after(grace_seconds):
                await self._wait_for_all()
            self._signal(signal.SIGKILL)
            with anyio.move_on_after(_KILL_SECONDS):
                await self.exited.wait()
            self._close()

    # Called by the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Other event loops than asyncio's have other transport types, so there is no check.
        self._transport = transport  # pyright: ignore[reportAttributeAccessIssue]
        assert self._transport is not None
        _live_groups.add(self._transport.get_pid())

    def process_exited(self) -> None:
        assert self._transport is not None
        self.exit_status = self._transport.get_returncode()
        if not self._is_being_ended:
            self.left_children = self._signal(signal.SIGKILL)
            self._close()
        self.exited.set()
        self._has_news.set()

    def _read_ready(self) -> None:
        if not self._read_chunk():
            return
        self._has_news.set()
        if self.output.is_full:
            loop = asyncio.get_running_loop()
            loop.remove_reader(self._reading_end)
            self._resumption = loop.call_later(_FLOOD_PAUSE_SECONDS, self._read_on)

    # The pipe.

    def _read_on(self) -> None:
        self._resumption = None
        if self._reading_end >= 0:
            asyncio.get_running_loop().add_reader(self._reading_end, self._read_ready)

    def _read_chunk(self) -> bool:
        """Read available output; return whether there was any."""
        if self._reading_end < 0:
            return False
        try:
            data = os.read(self._reading_end, _CHUNK_BYTES)
        except BlockingIOError:
            return False
        if not data:
            self._stop_reading()
        self.output.add(data)
        return bool(data)

    def _stop_reading(self) -> None:
        if self._reading_end < 0:
            return
        if self._resumption is not None:
            self._resumption.cancel()
            self._resumption = None
        asyncio.get_running_loop().remove_reader(self._reading_end)
        os.close(self._reading_end)
        self._reading_end = -1

    def _close(self) -> None:
        for _ in range(_MAX_LAST_CHUNKS):
            if not self._read_chunk():
                break
        self._stop_reading()
        if self._transport is not None:
            _live_groups.discard(self._transport.get_pid())
            self._transport.close()

    # The group.

    async def _wait_for_all(self) -> None:
        await self.exited.wait()
        # There is no event for the end of the last process of a group. A closed pipe is a sign
        # too: in containers without an init process, zombies stay in the group forever.
        while self._reading_end >= 0 and self._signal(0):  # noqa: ASYNC110
            await anyio.sleep(_POLL_SECONDS)

    def _signal(self, number: int) -> bool:
        """Send a signal to the group; return whether the group exists."""
        assert self._transport is not None
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._transport.get_pid(), number)
            return True
        return False


def _why_not_started(command: Command, error: OSError | ValueError) -> str:
    program = _shorten(command.argv[0])
    if isinstance(error, OSError) and error.filename == command.folder:
        return f"the command cannot be run in {command.folder}: {error.strerror}"
    if isinstance(error, FileNotFoundError):
        return f"the program {program!r} does not exist"
    if isinstance(error, PermissionError):
        return f"{program!r} cannot be run: permission denied"
    message = error.strerror if isinstance(error, OSError) else None
    return f"the command cannot be started: {message or error}"


def _shorten(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN_CHARACTERS else f"{text[:_MAX_SHOWN_CHARACTERS]}…"
