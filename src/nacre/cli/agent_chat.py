"""The conversation of `nacre chat`, and its input."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

import anyio

from nacre.agent import ChatCommand
from nacre.cli.output import ExitStatus, error_stream
from nacre.config import user_folder
from nacre.errors import ConfigError, SessionError
from nacre.private_files import create_private

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from anyio.abc import TaskGroup

    from nacre.agent import AgentRun, CommandCall, TurnRequest
    from nacre.bootstrap import System
    from nacre.cli.agent_runner import RunFollower
    from nacre.cli.agent_screen import Screen
    from nacre.cli.runner import StopSignals
    from nacre.cli.terminal_input import TypedLines


PROMPT: Final = "> "
_MAX_LINE_BYTES: Final = 4 << 20
_MAX_HISTORY_LINES: Final = 1000
# Readline enables bracketed paste; this disables it, as readline does at the end of a line.
_DISABLE_BRACKETED_PASTE: Final = "\x1b[?2004l\r\n"


class ChatInput:
    """Reads lines in a thread, because a line editor blocks."""

    def __init__(self) -> None:
        self.is_terminal = sys.stdin is not None and sys.stdin.isatty()
        self._has_line_editor = self.is_terminal and sys.stdout is not None and sys.stdout.isatty()
        self._is_reading = False

    def open_history(self) -> None:
        """Load the lines of earlier chats. Blocks."""
        if self._has_line_editor:
            # Not in every Python. Importing it makes `input` edit lines.
            with suppress(ImportError, OSError):
                import readline

                readline.set_history_length(_MAX_HISTORY_LINES)
                readline.read_history_file(_history_file())

    def save_history(self) -> None:
        """Save the lines for the next chat, readable for the user alone. Blocks."""
        if self._has_line_editor:
            with suppress(ImportError, OSError):
                import readline

                path = _history_file()
                create_private(path)
                readline.write_history_file(path)

    def complete_commands(self, names: Sequence[str]) -> None:
        """Let the Tab key complete the names of commands."""
        if not self._has_line_editor:
            return
        with suppress(ImportError):
            import readline

            def complete(text: str, state: int) -> str | None:
                found = [f"/{name} " for name in names if f"/{name}".startswith(text)]
                is_command = text.startswith("/") and readline.get_begidx() == 0
                return found[state] if is_command and state < len(found) else None

            readline.set_completer_delims(" \t\n")
            readline.set_completer(complete)
            is_libedit = "libedit" in (readline.__doc__ or "")
            readline.parse_and_bind("bind ^I rl_complete" if is_libedit else "tab: complete")

    async def next_line(self) -> str | None:
        """Read the next line without its newline; None at the end of the input."""
        self._is_reading = True
        line = await _from_thread(self._read)
        self._is_reading = False
        return line

    def close(self) -> None:
        """Reset the terminal if a line is still being edited."""
        if self._is_reading and self._has_line_editor:
            with suppress(OSError):
                sys.stdout.write(_DISABLE_BRACKETED_PASTE)
                sys.stdout.flush()

    def _read(self) -> str | None:
        if self._has_line_editor:
            try:
                # Bytes that are not valid in the terminal's encoding are replaced.
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
    """Call `read` in a daemon thread, which does not keep Python from exiting as anyio's would."""
    loop = asyncio.get_running_loop()
    is_read = anyio.Event()
    lines: list[str | None] = []

    def work() -> None:
        try:
            lines.append(read())
        except (OSError, ValueError, UnicodeError):
            # The terminal is gone, or standard input was closed.
            lines.append(None)
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(is_read.set)

    threading.Thread(target=work, name="chat input", daemon=True).start()
    await is_read.wait()
    return lines[0]


class Chat:
    """Sends each line as a message, and shows the turns."""

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
        self._unshown: list[AgentRun] = []
        """Commands that were typed during a turn, until their reply is shown."""
        self._is_leaving = False
        self._has_failed = False
        commands = system.agents.commands
        commands.add(
            ChatCommand(
                name="quit",
                description="Leave the chat, like Ctrl-D",
                handler=self._quit,
                aliases=("exit",),
                is_stored=False,
            )
        )
        source.complete_commands(
            [name for command in commands.all for name in (command.name, *command.aliases)]
        )

    @property
    def session(self) -> str:
        """The id or key of the session; empty before the first message."""
        return self._request.session_id or self._request.session_key

    async def talk(self) -> ExitStatus:
        """Chat until the user leaves. With a pipe as input, a failed turn fails the command."""
        while not self._is_leaving and (line := await self._source.next_line()) is not None:
            if line.strip():
                await self._run_turn(line)
        problem = self._screen.printer.problem or self._stops.status
        if problem is not None:
            return problem
        has_failed = self._has_failed and not self._source.is_terminal
        return ExitStatus.FAILED if has_failed else ExitStatus.COMPLETED

    # Between turns.

    async def _run_turn(self, text: str) -> None:
        run = await self._start_turn(text)
        while run is not None:
            self._run = run
            await self._follow(run)
            while self._unshown:
                # Commands that were typed during the turn, and are not answered yet.
                await self._follow(self._unshown.pop(0))
            self._leave_if_stopped()
            run = None if self._is_leaving else self._next_run()
        self._run = None

    async def _follow(self, run: AgentRun) -> None:
        listen = None if self._lines is None else self._listen
        await self._follower.follow(run, meanwhile=listen, answer_input=self._answer_input)
        self._has_failed |= run.state != "completed"

    async def _start_turn(self, text: str) -> AgentRun | None:
        try:
            run = await self._system.agents.start(replace(self._request, message=text))
        except (SessionError, ConfigError) as error:
            self._screen.write_note(f"the message was not sent: {error}", "bad")
            self._has_failed = True
            return None
        if run.is_stored:
            self._request = replace(self._request, session_id=run.session_id, session_key="")
        if run.command == "model" and len(text.split()) > 1:
            # The model of the session now counts, not the option of the command line.
            self._request = replace(self._request, model="")
        return run

    async def _quit(self, call: CommandCall) -> str:
        self._is_leaving = True
        if self._run is not None:
            self._run.request_abort("aborted at the terminal to leave the chat")
        return ""

    def _leave_if_stopped(self) -> None:
        """Ctrl-C at a terminal ends the turn; other signals end the chat."""
        stopped = self._stops.status
        if self._screen.printer.problem is not None:
            self._is_leaving = True
        elif stopped == ExitStatus.INTERRUPTED and self._source.is_terminal:
            self._stops.clear()
        elif stopped is not None:
            self._is_leaving = True

    def _next_run(self) -> AgentRun | None:
        """The turn that was started for messages that came too late for the last one."""
        session_id = self._request.session_id
        runs = self._system.agents.runs(session_id) if session_id else []
        return next((run for run in runs if not run.has_ended), None)

    # During a turn.

    async def _listen(self) -> None:
        assert self._lines is not None
        async with anyio.create_task_group() as tasks:
            await self._lines.listen(partial(self._handle_typed_line, tasks))

    async def _answer_input(self) -> None:
        """The next line answers a question of the agent; at a terminal, `_listen` reads it."""
        if self._lines is not None or self._run is None:
            return
        line = await self._source.next_line()
        if line is None:
            self._run.input_requests.withdraw()
        else:
            await self._start_turn(line)

    async def _handle_typed_line(self, tasks: TaskGroup, line: str) -> None:
        if not line.strip() or self._run is None:
            return
        run = await self._start_turn(line)
        if run is None or not run.command:
            return
        if any(event.kind == "run.queued" for event in run.events.events):
            self._screen.write_note("queued until the running turn ends", "dim")
        else:
            self._unshown.append(run)
            tasks.start_soon(self._show_reply, run)

    async def _show_reply(self, run: AgentRun) -> None:
        """Show the reply of a command between the lines of the running turn."""
        result = await run.wait()
        if run in self._unshown:
            self._unshown.remove(run)
            self._has_failed |= run.state != "completed"
            if result.text or result.error:
                self._screen.write_note(result.text or result.error)
