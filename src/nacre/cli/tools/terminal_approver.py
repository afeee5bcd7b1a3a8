"""Asks the person at the terminal whether a call may be made."""

from __future__ import annotations

import os
import select
import sys
import termios
from typing import TYPE_CHECKING, Final

import anyio

from nacre.cli.output import cell_text, errors_are_on_terminal, say
from nacre.mcp_server.shown_input import UnshowableInputError, format_input
from nacre.tools import AllowOnce, Deny

if TYPE_CHECKING:
    from nacre.tools import ApprovalInfo, ApprovalRequest

_YES: Final = ("y", "yes")
_MAX_LINE_BYTES: Final = 4096


async def ask_at_terminal(request: ApprovalRequest) -> ApprovalInfo:
    """Yes, or no: also where there is no terminal, or the input cannot be shown in full."""
    if not is_person_there():
        return Deny(
            "standard input and standard error are no terminal, so that nobody can be asked; "
            "call it from a terminal"
        )
    try:
        shown = format_input(request.input)
    except UnshowableInputError as error:
        return Deny(str(error))
    terminal = sys.stdin.fileno()
    # What was typed before the question is no answer to it.
    termios.tcflush(terminal, termios.TCIFLUSH)
    say(f"{cell_text(request.tool_id)} needs your approval: {cell_text(request.reason)}")
    say(f"input: {shown}")
    say("make this call? [y/N]")
    answer = await line_from(terminal)
    return AllowOnce() if answer.strip().lower() in _YES else Deny("you said no")


def is_person_there() -> bool:
    """Whether questions can be read and answered."""
    return sys.stdin is not None and sys.stdin.isatty() and errors_are_on_terminal()


async def line_from(terminal: int) -> str:
    """The next line; nothing at the end of the input."""
    while True:
        # A thread that reads could not be stopped by Ctrl-C.
        await anyio.wait_readable(terminal)
        line = line_if_any(terminal)
        if line is not None:
            return line


def line_if_any(terminal: int) -> str | None:
    """A line that was typed already, else None; nothing at the end of the input.

    At once, so that nothing happens between the look and the reading: a line that is thrown away
    meanwhile would leave a reader who takes the answer to the next question.
    """
    if not select.select([terminal], [], [], 0)[0]:
        return None
    try:
        return os.read(terminal, _MAX_LINE_BYTES).decode(errors="replace")
    except OSError:
        # Nobody is at the other end of the terminal any more.
        return ""
