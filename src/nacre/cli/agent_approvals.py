"""Asks the person at the terminal to approve, edit or deny a tool call."""

from __future__ import annotations

import json
import os
import shlex
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio
import anyio.to_thread

from nacre.cli.output import cell_text
from nacre.display import UnshowableInputError, escape, format_input
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
    from nacre.cli.agent_screen import Screen
    from nacre.cli.runner import StopSignals
    from nacre.cli.terminal_input import TypedLines
    from nacre.json_types import JsonObject, JsonValue


_MAX_LINES: Final = 120
_MAX_CHARACTERS: Final = 12_000
# As `shown_input` has it.
_CUT_MARK: Final = "… (cut: "
_CUT_NOTE: Final = "(long texts are cut; `e` shows all of it in your editor)"


def format_input_lines(given: JsonObject) -> list[str]:
    """One or more lines per member; texts of several lines as such, behind a bar.

    Raises UnshowableInputError for an input of too many parts.
    """
    # First: it refuses what is too deep or has too many parts to be written out below.
    short = format_input(given)
    if not given:
        return ["(no input)"]
    lines = [line for key, value in given.items() for line in _member_lines(key, value)]
    if len(lines) <= _MAX_LINES and sum(map(len, lines)) <= _MAX_CHARACTERS:
        return lines
    return [short, _CUT_NOTE] if _CUT_MARK in short else [short]


def _member_lines(key: str, value: JsonValue) -> list[str]:
    name = escape(json.dumps(key, ensure_ascii=False))
    if isinstance(value, str) and "\n" in value:
        text = [f"  | {escape(line.expandtabs(4))}" for line in value.split("\n")]
        return [f"{name}:", *text]
    written = json.dumps(value, ensure_ascii=False, indent=2).split("\n")
    first, *rest = (escape(line) for line in written)
    return [f"{name}: {first}", *rest]


_DEFAULT_EDITOR: Final = "vi"


class EditError(NacreError):
    """What came back from the editor is no input, or nothing came back."""


async def edit_input(given: JsonObject) -> JsonObject:
    """What the person made of the input; raises EditError."""
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
        # With this process's own terminal.
        async with await anyio.open_process(words, stdin=None, stdout=None, stderr=None) as editor:
            status = await editor.wait()
    except (OSError, ValueError) as error:
        problem = f"the editor {command!r} cannot be started: {error}"
        raise EditError(f"{problem}; set EDITOR to another one") from None
    if status != 0:
        raise EditError(f"the editor {command!r} ended with status {status}; nothing was changed")


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
        raise EditError(f"the edited input is no JSON: {error}") from None
    if not isinstance(value, dict):
        raise EditError("the edited input is JSON, but no object; it has to be one")
    return value


# Short: the call, the program around it and the model's answer repeat it.
_NOBODY: Final = "nobody can be asked without a terminal"
_WHAT_TO_DO: Final = "run it at a terminal, or have the configuration not ask about this tool"
_CHOICES: Final = (
    "[a] allow once  [A] always, with just this input in this session  [e] edit the input  [d] deny"
)
_WHY: Final = "why? the agent is told; Enter for no reason"


class ApprovalsPrompt:
    """One question at a time, put and answered at the terminal."""

    def __init__(self, screen: Screen, lines: TypedLines | None, stops: StopSignals) -> None:
        """`lines` is None where there is no terminal."""
        self._screen = screen
        self._lines = lines
        self._stops = stops

    async def answer(self, request: ApprovalRequest) -> ApprovalDecision:
        """What the person says; whatever goes wrong is a no."""
        if self._lines is None:
            return self._deny(request, _NOBODY, hint=f"; {_WHAT_TO_DO}")
        try:
            shown = format_input_lines(request.input)
        except UnshowableInputError as error:
            return self._deny(request, str(error))
        with self._screen.held(), self._lines.lent():
            self._show_question(request, shown)
            return await self._read_answer(request, self._lines)

    def _deny(self, request: ApprovalRequest, reason: str, *, hint: str = "") -> Deny:
        """The agent is told the reason, and only the person what to do about it."""
        self._screen.note(f"{cell_text(request.tool_id)} was denied: {reason}{hint}", "warning")
        return Deny(reason)

    def _show_question(self, request: ApprovalRequest, shown: list[str]) -> None:
        screen = self._screen
        screen.note("a call needs your approval; its input:", "warning")
        for line in shown:
            screen.note(f"  {line}")
        # Last, where no input can push it out of sight.
        screen.note(f"tool: {cell_text(request.tool_id)}", "strong")
        screen.note(f"why you are asked: {cell_text(request.reason)}")
        screen.note(_CHOICES, "strong")

    async def _read_answer(self, request: ApprovalRequest, lines: TypedLines) -> ApprovalDecision:
        while True:
            line = await lines.ask()
            match line.strip() if line is not None else None:
                case None:
                    return Deny("the person at the terminal gave no answer")
                case "a":
                    return AllowOnce()
                case "A":
                    return AllowAlways()
                case "d":
                    self._screen.note(_WHY)
                    return Deny((await lines.ask() or "").strip())
                case str(words) if words.startswith("d "):
                    return Deny(words.removeprefix("d ").strip())
                case "e":
                    edited = await self._edit_input(request)
                    if edited is not None:
                        return edited
                case words:
                    # Such as a message that somebody was typing when the question came.
                    self._screen.note(f"{cell_text(words)!r} is no answer; {_CHOICES}", "warning")

    async def _edit_input(self, request: ApprovalRequest) -> AllowEdited | None:
        try:
            # To an editor Ctrl-C means something of its own.
            with self._stops.ignore():
                edited = await edit_input(request.input)
        except EditError as error:
            self._screen.note(f"{error}; {_CHOICES}", "warning")
            return None
        finally:
            # An editor is cut off when the question expires, and has no time to do it.
            self._stops.restore_terminal()
        if edited == request.input:
            self._screen.note(f"the input is as it was; {_CHOICES}", "warning")
            return None
        try:
            request.check_edited_input(edited)
        except ApprovalError as error:
            self._screen.note(f"{cell_text(str(error))}; {_CHOICES}", "warning")
            return None
        return AllowEdited(edited)
