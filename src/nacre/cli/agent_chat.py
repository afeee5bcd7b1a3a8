"""The conversation of `nacre chat`, and the lines that it reads."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import threading
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import anyio

from nacre.cli.output import ExitStatus, error_stream
from nacre.config import user_folder
from nacre.errors import ConfigError, SessionError
from nacre.private_files import create_private

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from nacre.agent import AgentRun, TurnRequest
    from nacre.bootstrap import System
    from nacre.cli.agent_runner import RunFollower
    from nacre.cli.agent_screen import Screen
    from nacre.cli.runner import StopSignals
    from nacre.cli.terminal_input import TypedLines


PROMPT: Final = "> "
_MAX_LINE_BYTES: Final = 4 << 20
_MAX_HISTORY_LINES: Final = 1000
# Readline asks a terminal to mark what is pasted, and takes it back at the end of the line.
_PASTE_AS_USUAL: Final = "\x1b[?2004l\r\n"


class ChatInput:
    """Reads in a thread: a line editor cannot be waited for in any other way."""

    def __init__(self) -> None:
        self.is_terminal = sys.stdin is not None and sys.stdin.isatty()
        self._is_edited = self.is_terminal and sys.stdout is not None and sys.stdout.isatty()
        self._is_reading = False

    def open_history(self) -> None:
        """Have the lines of former chats at hand. Blocks."""
        if self._is_edited:
            # Not part of every Python; importing it is what makes `input` edit lines.
            with suppress(ImportError, OSError):
                import readline

                readline.set_history_length(_MAX_HISTORY_LINES)
                readline.read_history_file(_history_file())

    def save_history(self) -> None:
        """Keep the lines for the next chat, for the user alone. Blocks."""
        if self._is_edited:
            with suppress(ImportError, OSError):
                import readline

                path = _history_file()
                create_private(path)
                readline.write_history_file(path)

    async def next_line(self) -> str | None:
        """The next line without its end; None at the end of the input."""
        self._is_reading = True
        line = await _from_thread(self._read)
        self._is_reading = False
        return line

    def close(self) -> None:
        """Leave a line that nobody will read any more."""
        if self._is_reading and self._is_edited:
            with suppress(OSError):
                sys.stdout.write(_PASTE_AS_USUAL)
                sys.stdout.flush()

    def _read(self) -> str | None:
        if self._is_edited:
            try:
                # What is no text in the terminal's encoding becomes a mark.
                return input(PROMPT).encode(errors="replace").decode()
            except EOFError:
                return None
        if self.is_terminal:
            errors = error_stream()
            errors.write(PROMPT)
            errors.flush()
        return _plain_line()


def _plain_line() -> str | None:
    if sys.stdin is None:
        return None
    line = sys.stdin.buffer.readline(_MAX_LINE_BYTES)
    return line.decode(errors="replace").rstrip("\r\n") if line else None


def _history_file() -> Path:
    return user_folder("state", os.environ) / "chat_history"


async def _from_thread(read: Callable[[], str | None]) -> str | None:
    """What it returns. A thread that is not waited for any more does not keep Python from ending,
    as a thread of anyio would."""
    loop = asyncio.get_running_loop()
    is_read = anyio.Event()
    lines: list[str | None] = []

    def work() -> None:
        try:
            lines.append(read())
        except (OSError, ValueError, UnicodeError):
            # The terminal is gone, or closed by whoever started the process.
            lines.append(None)
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(is_read.set)

    threading.Thread(target=work, name="chat input", daemon=True).start()
    await is_read.wait()
    return lines[0]


HELP: Final = """\
/new    begin a new session
/abort  end the turn that runs; Ctrl-C does, too
/quit   leave; Ctrl-D does, too
/help   this
Anything else is a message to the agent. What you type while it works reaches it on its way.
A message that begins like a command has a space before it."""

# A path is none: `/etc/hosts` has a second slash.
_COMMAND = re.compile(r"/(\w*)\s*")


class Chat:
    """Sends each line as a message, and follows what comes of it."""

    def __init__(
        self,
        system: System,
        stops: StopSignals,
        *,
        request: TurnRequest,
        screen: Screen,
        follower: RunFollower,
        source: ChatInput,
        lines: TypedLines | None,
    ) -> None:
        self._system = system
        self._stops = stops
        self._request = request
        self._screen = screen
        self._follower = follower
        self._source = source
        self._lines = lines if source.is_terminal else None
        self._run: AgentRun | None = None
        self._is_leaving = False
        self._has_failed = False

    @property
    def session(self) -> str:
        """How the session can be named later; nothing before the first message."""
        return self._request.session_id or self._request.session_key

    async def talk(self) -> ExitStatus:
        """Return when somebody leaves. A chat from a pipe has failed if a turn of it has."""
        while not self._is_leaving and (line := await self._source.next_line()) is not None:
            if line.strip():
                await self._handle_line(line)
        problem = self._screen.printer.problem or self._stops.status
        if problem is not None:
            return problem
        has_failed = self._has_failed and not self._source.is_terminal
        return ExitStatus.FAILED if has_failed else ExitStatus.COMPLETED

    # While nothing runs.

    async def _handle_line(self, line: str) -> None:
        match _command_in(line):
            case None:
                await self._run_turn(line)
            case "quit":
                self._is_leaving = True
            case "new":
                self._request = replace(self._request, session_id="", session_key="")
                self._screen.note("a new session begins with your next message", "dim")
            case "abort":
                self._screen.note("nothing runs that could be aborted", "dim")
            case command:
                self._explain(command)

    async def _run_turn(self, text: str) -> None:
        run = await self._start_turn(text)
        while run is not None:
            self._run = run
            listen = None if self._lines is None else self._listen
            await self._follower.follow(run, meanwhile=listen)
            self._has_failed |= run.state != "completed"
            self._leave_if_stopped()
            run = None if self._is_leaving else self._next_run(run.session_id)
        self._run = None

    async def _start_turn(self, text: str) -> AgentRun | None:
        try:
            run = await self._system.agents.start(replace(self._request, message=text))
        except (SessionError, ConfigError) as error:
            self._screen.note(f"the message was not taken: {error}", "bad")
            self._has_failed = True
            return None
        self._request = replace(self._request, session_id=run.session_id, session_key="")
        return run

    def _leave_if_stopped(self) -> None:
        """Ctrl-C at a terminal ends a turn; everything else ends the chat."""
        stopped = self._stops.status
        if self._screen.printer.problem is not None:
            self._is_leaving = True
        elif stopped == ExitStatus.INTERRUPTED and self._source.is_terminal:
            self._stops.clear()
        elif stopped is not None:
            self._is_leaving = True

    def _next_run(self, session_id: str) -> AgentRun | None:
        """A turn that messages got which came too late for the one before."""
        runs = self._system.agents.runs(session_id)
        return next((run for run in runs if not run.has_ended), None)

    # While a turn runs.

    async def _listen(self) -> None:
        if self._lines is not None:
            await self._lines.listen(self._handle_typed_line)

    async def _handle_typed_line(self, line: str) -> None:
        if not line.strip() or self._run is None:
            return
        match _command_in(line):
            case None:
                await self._start_turn(line)
            case "abort":
                self._run.request_abort("aborted at the terminal")
            case "quit":
                self._is_leaving = True
                self._run.request_abort("aborted at the terminal, to leave")
            case "new":
                self._screen.note("a turn runs; /abort ends it", "warning")
            case command:
                self._explain(command)

    def _explain(self, command: str) -> None:
        if command != "help":
            self._screen.note(f"there is no command /{command}", "warning")
        self._screen.note(HELP, "dim")


def _command_in(line: str) -> str | None:
    """The command that the line is; None for a message."""
    found = _COMMAND.fullmatch(line)
    return None if found is None else found[1]
