"""Asks the user at the terminal to approve, edit or deny a tool call, or to answer the agent."""

from __future__ import annotations

import json
import os
import shlex
import tempfile
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio
import anyio.to_thread

from nacre.cli.call_view import input_lines
from nacre.cli.output import shorten
from nacre.display import UnshowableInputError, format_input
from nacre.errors import ApprovalError, NacreError
from nacre.json_types import NotJsonError, decode_json
from nacre.tools import (
    AllowAlways,
    AllowEdited,
    AllowOnce,
    ApprovalDecision,
    ApprovalRequest,
    Deny,
)

if TYPE_CHECKING:
    from collections.abc import Generator

    from nacre.cli.agent_screen import Screen
    from nacre.cli.runner import StopSignals
    from nacre.cli.terminal_input import TypedLines
    from nacre.json_types import JsonObject


_MAX_LINES: Final = 120
_MAX_CHARACTERS: Final = 12_000
# As `format_input` writes it.
_CUT_MARK: Final = "… (cut: "
_CUT_NOTE: Final = "(long texts are cut; `e` shows the whole input in your editor)"


def format_input_lines(given: JsonObject) -> list[str]:
    """The lines of `input_lines`, or a shorter form if there are too many.

    Raises UnshowableInputError for an input with too many parts.
    """
    # First, because it rejects input that is too deep or has too many parts.
    short = format_input(given)
    lines = input_lines(given)
    if len(lines) <= _MAX_LINES and sum(map(len, lines)) <= _MAX_CHARACTERS:
        return lines
    return [short, _CUT_NOTE] if _CUT_MARK in short else [short]


_DEFAULT_EDITOR: Final = "vi"


class EditError(NacreError):
    """The editor failed, or its result is not a valid input."""


async def edit_input(given: JsonObject) -> JsonObject:
    """Let the user edit the input. Raises EditError."""
    path = await anyio.to_thread.run_sync(_write_file, given)
    try:
        await _edit(path)
        content = await anyio.to_thread.run_sync(path.read_bytes)
    except OSError as error:
        raise EditError(f"the edited input cannot be read: {error}") from None
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(_remove, path)
    return _input_from(content)


async def _edit(path: Path) -> None:
    command = os.environ.get("VISUAL") or os.environ.get("EDITOR") or _DEFAULT_EDITOR
    try:
        words = [*shlex.split(command), str(path)]
        # With the terminal of this process.
        async with await anyio.open_process(words, stdin=None, stdout=None, stderr=None) as editor:
            status = await editor.wait()
    except (OSError, ValueError) as error:
        problem = f"the editor {command!r} cannot be started: {error}"
        raise EditError(f"{problem}; set EDITOR to another editor") from None
    if status != 0:
        raise EditError(f"the editor {command!r} ended with status {status}; nothing is changed")


def _write_file(given: JsonObject) -> Path:
    handle, name = tempfile.mkstemp(prefix="nacre-input-", suffix=".json")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(json.dumps(given, ensure_ascii=False, indent=2))
        file.write("\n")
    return Path(name)


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink()


def _input_from(content: bytes) -> JsonObject:
    try:
        value = decode_json(content)
    except NotJsonError as error:
        raise EditError(f"the edited input is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise EditError("the edited input must be a JSON object")
    return value


# Short, because the call, the program and the model's answer repeat it.
_NO_TERMINAL: Final = "there is no terminal to ask for an approval"
_ADVICE: Final = "run it at a terminal, or change the approval settings of this tool"
_CHOICES: Final = (
    "[a] allow once  [A] always allow this input in this session  [e] edit the input  [d] deny"
)
_WHY: Final = "reason for the agent (Enter for none):"


class ApprovalsPrompt:
    """Asks one question at a time at the terminal."""

    def __init__(self, screen: Screen, lines: TypedLines | None, stops: StopSignals) -> None:
        """`lines` is None without a terminal."""
        self._screen = screen
        self._lines = lines
        self._stops = stops

    async def answer(self, request: ApprovalRequest) -> ApprovalDecision:
        """Ask the user. Without an answer, the call is denied."""
        if self._lines is None:
            return self._deny(request, _NO_TERMINAL, hint=f"; {_ADVICE}")
        try:
            shown = format_input_lines(request.input)
        except UnshowableInputError as error:
            return self._deny(request, str(error))
        with self._screen.pause_status(), self._lines.lend():
            self._show_question(request, shown)
            return await self._read_answer(request, self._lines)

    @contextmanager
    def take_terminal(self) -> Generator[None]:
        """Discard what was typed before; show a question of the agent in this block, and read."""
        with self._screen.pause_status(), self._lines.lend() if self._lines else nullcontext():
            yield

    async def read_input(self) -> str | None:
        """Read the answer; None without a terminal, and at the end of the input."""
        return await self._lines.ask() if self._lines else None

    def _deny(self, request: ApprovalRequest, reason: str, *, hint: str = "") -> Deny:
        """Deny the call. The agent gets the reason, and the user also gets the hint."""
        self._screen.write_note(f"{shorten(request.tool_id)} was denied: {reason}{hint}", "warning")
        return Deny(reason)

    def _show_question(self, request: ApprovalRequest, shown: list[str]) -> None:
        screen = self._screen
        screen.write_note("a tool call needs your approval; its input:", "warning")
        for line in shown:
            screen.write_note(f"  {line}")
        # Last, so that a long input cannot scroll it out of view.
        screen.write_note(f"tool: {shorten(request.tool_id)}", "strong")
        screen.write_note(f"reason: {shorten(request.reason)}")
        screen.write_note(_CHOICES, "strong")

    async def _read_answer(self, request: ApprovalRequest, lines: TypedLines) -> ApprovalDecision:
        while True:
            line = await lines.ask()
            match line.strip() if line is not None else None:
                case None:
                    return Deny("the user gave no answer")
                case "a":
                    return AllowOnce()
                case "A":
                    return AllowAlways()
                case "d":
                    self._screen.write_note(_WHY)
                    return Deny((await lines.ask() or "").strip())
                case str(words) if words.startswith("d "):
                    return Deny(words.removeprefix("d ").strip())
                case "e":
                    edited = await self._edit_input(request)
                    if edited is not None:
                        return edited
                case words:
                    # For example a message that the user was typing when the question came.
                    problem = f"{shorten(words)!r} is not an answer"
                    self._screen.write_note(f"{problem}; {_CHOICES}", "warning")

    async def _edit_input(self, request: ApprovalRequest) -> AllowEdited | None:
        try:
            # Ctrl-C is for the editor.
            with self._stops.ignore():
                edited = await edit_input(request.input)
        except EditError as error:
            self._screen.write_note(f"{error}; {_CHOICES}", "warning")
            return None
        finally:
            # If the question expires, the editor is killed and cannot restore the terminal.
            self._stops.restore_terminal()
        if edited == request.input:
            self._screen.write_note(f"the input has not changed; {_CHOICES}", "warning")
            return None
        try:
            request.check_edited_input(edited)
        except ApprovalError as error:
            self._screen.write_note(f"{shorten(str(error))}; {_CHOICES}", "warning")
            return None
        return AllowEdited(edited)
