"""Asks the person at the terminal about a call, and says no where there is nobody to ask."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from nacre.cli.agent.approval_text import format_input_lines
from nacre.cli.agent.input_editor import EditError, edit_input
from nacre.cli.output import cell_text
from nacre.errors import ApprovalError
from nacre.mcp_server.shown_input import UnshowableInputError
from nacre.tools import AllowAlways, AllowEdited, AllowOnce, Deny

if TYPE_CHECKING:
    from nacre.cli.runner import Stops
    from nacre.cli.screen import Screen
    from nacre.cli.terminal_input import TypedLines
    from nacre.tools import ApprovalRequest
    from nacre.tools.approvals.requests import ApprovalDecision

# Short: the call, the program around it and the model's answer repeat it.
_NOBODY: Final = "nobody can be asked without a terminal"
_WHAT_TO_DO: Final = "run it at a terminal, or have the configuration not ask about this tool"
_CHOICES: Final = (
    "[a] allow once  [A] always, with just this input in this session  [e] edit the input  [d] deny"
)
_WHY: Final = "why? the agent is told; Enter for no reason"


class ApprovalsPrompt:
    """One question at a time, put and answered at the terminal."""

    def __init__(self, screen: Screen, lines: TypedLines | None, stops: Stops) -> None:
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
            with self._stops.ignored():
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
            request.refuse_unfit(edited)
        except ApprovalError as error:
            self._screen.note(f"{cell_text(str(error))}; {_CHOICES}", "warning")
            return None
        return AllowEdited(edited)
