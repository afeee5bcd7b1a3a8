"""One shell command as a process group: output, exit status, and killing its children.

It is watched by callbacks of the event loop, not by a task: a command in the background outlives
the call that started it, and no task group is there that could hold such a task.
"""

from __future__ import annotations

import asyncio
import codecs
import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import anyio

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


_MAX_TRAIL_BYTES: Final = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class OutputPart:
    """Output from one position on."""

    text: str
    """With a line that says so where bytes were left out."""
    left_out_bytes: int
    next_position: int


class CommandOutput:
    """Bytes as they come, within a bound."""

    def __init__(self, most_bytes: int) -> None:
        self.total_bytes = 0
        self._head = bytearray()
        self._tail = bytearray()
        self._most_head = most_bytes // 2
        self._most_tail = most_bytes - self._most_head

    def add(self, data: bytes) -> None:
        """Keep what there is room for; of the middle nothing stays."""
        self.total_bytes += len(data)
        room = self._most_head - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        # Cut now and then, not at every write: a cut moves all that stays.
        if len(self._tail) > 2 * self._most_tail:
            del self._tail[: -self._most_tail]

    @property
    def is_full(self) -> bool:
        """Whether something had to be left out."""
        return self.total_bytes > self._most_head + self._most_tail

    def part(self, position: int = 0, *, is_final: bool) -> OutputPart:
        """Output from a position on; a character that is not all there yet waits until it is."""
        position = min(position, self.total_bytes)
        tail = self._tail[-self._most_tail :]
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
    """The text, and how many bytes it stands for; what is no UTF-8 becomes U+FFFD."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(bytes(data), is_final)
    return text, len(data) - len(decoder.getstate()[0])


def _trail_bytes(data: bytearray) -> int:
    """How many bytes at the start belong to a character that began before."""
    count = 0
    while count < min(_MAX_TRAIL_BYTES, len(data)) and data[count] & 0xC0 == 0x80:
        count += 1
    return count


_CHUNK_BYTES: Final = 65_536
# What nobody will see is still read, or the command would stand still; but not at full speed.
_FLOOD_PAUSE_SECONDS: Final = 0.001
# A pipe holds at most a mebibyte; what comes after that, a child writes that has not ended.
_MAX_LAST_CHUNKS: Final = 16
_KILL_SECONDS: Final = 2.0
_POLL_SECONDS: Final = 0.01
_MAX_SHOWN_CHARACTERS: Final = 200

_live_groups: Final[set[int]] = set()


def kill_all_commands() -> None:
    """Kill every command that runs, with its children, at once and without waiting.

    For whoever must end now, such as at a second signal.
    """
    for group in tuple(_live_groups):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)


class ShellProblem(Exception):
    """A command cannot be run, or a process not be found; the message is for the model."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Command:
    """What is run, and where."""

    argv: Sequence[str]
    folder: str
    environment: Mapping[str, str]
    most_output_bytes: int


class ShellProcess(asyncio.SubprocessProtocol):
    """A command that was started. When it ends, its children are ended as well."""

    def __init__(self, command: Command, *, reading_end: int) -> None:
        self.command_line = _shorten(" ".join(command.argv))
        self.output = CommandOutput(command.most_output_bytes)
        self.exited = anyio.Event()
        self.started = time.monotonic()
        self.exit_status: int | None = None
        """As `subprocess` has it: a signal is negative. None while it runs."""
        self.left_children = False
        """Whether children were still there when it ended by itself."""
        self._news = anyio.Event()
        self._transport: asyncio.SubprocessTransport | None = None
        self._reading_end = reading_end
        self._resumption: asyncio.TimerHandle | None = None
        self._is_being_ended = False

    @classmethod
    async def start(cls, command: Command) -> ShellProcess:
        """Raises ShellProblem for what cannot be started. Its input is empty."""
        reading_end, writing_end = os.pipe()
        os.set_blocking(reading_end, False)
        process = cls(command, reading_end=reading_end)
        try:
            # Shielded: what has been started has to be known, or nobody could end it.
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
        """The signal that ended it; empty if none did."""
        if self.exit_status is None or self.exit_status >= 0:
            return ""
        with suppress(ValueError):
            return signal.Signals(-self.exit_status).name
        return f"signal {-self.exit_status}"

    async def wait_for_news(self) -> None:
        """Return when it writes more, or ends; at once if it has ended."""
        if self._news.is_set():
            self._news = anyio.Event()
        if self.is_running:
            await self._news.wait()

    async def end(self, *, grace_seconds: float) -> None:
        """End it and its children: asked first, then killed; nothing happens if it has ended.

        Not interrupted by a cancellation: it takes a moment longer than the grace at most.
        """
        if not self.is_running:
            # Its number may be somebody else's by now.
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
        # The loop may be another implementation than asyncio's own, so the type is not checked.
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
        self._news.set()

    def _read_ready(self) -> None:
        if not self._read_chunk():
            return
        self._news.set()
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
        """Whether something was there."""
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
        # Nothing tells when the last of a group has ended. That nobody can write any more is a
        # sign: where nobody collects the dead, they stay in the group for ever.
        while self._reading_end >= 0 and self._signal(0):  # noqa: ASYNC110
            await anyio.sleep(_POLL_SECONDS)

    def _signal(self, number: int) -> bool:
        """Whether there was anybody to signal."""
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
        return f"there is no program {program!r} here"
    if isinstance(error, PermissionError):
        return f"{program!r} may not be run: permission denied"
    said = error.strerror if isinstance(error, OSError) else None
    return f"the command cannot be started: {said or error}"


def _shorten(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN_CHARACTERS else f"{text[:_MAX_SHOWN_CHARACTERS]}…"
