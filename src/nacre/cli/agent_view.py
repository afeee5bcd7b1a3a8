"""Shows the events of a run: live for people, as JSON lines, or the answer alone."""

from __future__ import annotations

import io
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from nacre.cli.call_view import (
    MARKS,
    error_text,
    input_text,
    program_of,
    program_status,
    result_text,
    value_text,
)
from nacre.cli.output import cell_text, count_text, duration_text, size_text, warn
from nacre.display import escape

if TYPE_CHECKING:
    from collections.abc import Callable

    from nacre.agent import AgentRun, RunEvent, RunEventKind
    from nacre.cli.agent_screen import Screen, Style
    from nacre.cli.output import Printer
    from nacre.json_types import JsonObject


class RunView(Protocol):
    """Is told of every event of a run, in order, and of its end."""

    def add(self, run: AgentRun, event: RunEvent) -> None: ...

    def end(self, run: AgentRun) -> None: ...


class JsonView:
    """Every event as a line of JSON."""

    def __init__(self, printer: Printer) -> None:
        self._printer = printer

    def add(self, run: AgentRun, event: RunEvent) -> None:
        whose = {"runId": run.id, "sessionId": run.session_id}
        self._printer.write_json({**whose, **event.to_json()}, is_indented=False)

    def end(self, run: AgentRun) -> None:
        pass


class QuietView:
    """The last answer and nothing else; standard error says why there is none."""

    def __init__(self, printer: Printer) -> None:
        self._printer = printer

    def add(self, run: AgentRun, event: RunEvent) -> None:
        pass

    def end(self, run: AgentRun) -> None:
        result = run.result
        if result is None:
            return
        if result.text:
            self._printer.write(f"{result.text}\n")
        if run.state == "failed":
            warn(f"failed: {result.error}")


class LiveView:
    """Writes to a screen; shorter where that is no terminal. One for any number of runs."""

    def __init__(self, screen: Screen, *, colours: Callable[[str], str] | None = None) -> None:
        self._screen = screen
        self._colours = colours
        self._calls = CallsView(screen, colours=colours)
        self._waited_for = ""
        self._has_said = False
        self._started = time.monotonic()
        self._takers: dict[RunEventKind, Callable[[JsonObject], None]] = {
            "run.queued": self._on_queued,
            "run.started": self._on_started,
            "run.waiting": self._on_waiting,
            "run.resumed": self._on_resumed,
            "steered": self._on_steered,
            "model.started": self._on_model_started,
            "retry": self._on_retry,
            "text.delta": self._on_text,
            "thinking.delta": self._on_thinking,
            "message.completed": self._on_message_completed,
            "message.sent": self._on_message_sent,
            "compaction.started": self._on_compaction_started,
            "compaction.ended": self._on_compaction_ended,
            "server.unavailable": self._on_server_unavailable,
            "run.failed": self._on_failed,
            "run.aborted": self._on_aborted,
        }

    def add(self, run: AgentRun, event: RunEvent) -> None:
        take = self._takers.get(event.kind) or self._calls.takers.get(event.kind)
        if take is None:
            # Cells begin and end with their calls; questions are put to whoever can answer.
            return
        take(event.data)
        # How far a tool has come is a status already.
        if event.kind != "call.updated":
            self._screen.status(self._calls.status or self._waited_for)

    def end(self, run: AgentRun) -> None:
        self._waited_for = ""
        self._screen.status("")
        if run.state == "completed" and run.result is not None:
            took = duration_text((time.monotonic() - self._started) * 1000)
            tokens = count_text(run.result.usage.total_tokens, "token")
            self._screen.note(f"completed in {took}, {tokens}, {run.result.model}", "dim")

    # The run.

    def _on_started(self, data: JsonObject) -> None:
        self._started = time.monotonic()
        self._calls = CallsView(self._screen, colours=self._colours)
        self._waited_for = "starting"

    def _on_queued(self, data: JsonObject) -> None:
        self._screen.note("queued: it is taken up when the turn before it has ended", "dim")

    def _on_waiting(self, data: JsonObject) -> None:
        self._waited_for = "waiting for an answer"

    def _on_resumed(self, data: JsonObject) -> None:
        self._waited_for = ""

    def _on_steered(self, data: JsonObject) -> None:
        if dropped := text_in(data, "dropped"):
            self._screen.note(f"dropped: {cell_text(text_in(data, 'text'))} ({dropped})", "warning")
        elif text := text_in(data, "text"):
            self._screen.note(f"taken in: {cell_text(text, most_characters=80)}", "dim")
        else:
            self._screen.note("it came too late for this turn, and gets one of its own", "dim")

    def _on_failed(self, data: JsonObject) -> None:
        self._screen.end_answer()
        self._screen.note(f"failed: {text_in(data, 'error')}", "bad")

    def _on_aborted(self, data: JsonObject) -> None:
        self._screen.end_answer()
        self._screen.note(f"aborted: {text_in(data, 'error')}", "warning")

    # The model.

    def _on_model_started(self, data: JsonObject) -> None:
        self._has_said = False
        self._waited_for = f"waiting for {text_in(data, 'model')}"

    def _on_retry(self, data: JsonObject) -> None:
        problem = cell_text(text_in(data, "problem"))
        if failed_model := text_in(data, "failedModel"):
            text = f"{failed_model} failed: {problem}; asking {text_in(data, 'model')} instead"
        else:
            attempt, delay = number_in(data, "attempt"), number_in(data, "delaySeconds")
            text = f"attempt {attempt:.0f} failed: {problem}; once more in {delay:.1f} s"
        self._screen.note(text, "warning")

    def _on_text(self, data: JsonObject) -> None:
        self._has_said = True
        self._screen.answer(text_in(data, "text"))

    def _on_thinking(self, data: JsonObject) -> None:
        self._screen.thought(text_in(data, "text"))

    def _on_message_completed(self, data: JsonObject) -> None:
        if not self._has_said:
            # From a provider that does not stream.
            self._screen.answer(text_in(data, "text"))
        self._screen.end_answer()
        self._waited_for = ""

    def _on_message_sent(self, data: JsonObject) -> None:
        """By the tool `message`, for the person; it is no part of the answer, and no less."""
        self._screen.answer(f"{text_in(data, 'text').rstrip()}\n")

    # What happens besides.

    def _on_compaction_started(self, data: JsonObject) -> None:
        count = count_text(int(number_in(data, "messageCount")), "older message")
        self._waited_for = f"summing up {count}"

    def _on_compaction_ended(self, data: JsonObject) -> None:
        count = count_text(int(number_in(data, "messageCount")), "older message")
        if error := text_in(data, "error"):
            self._screen.note(f"{count} could not be summed up: {cell_text(error)}", "warning")
        else:
            self._screen.note(f"{count} summed up", "dim")

    def _on_server_unavailable(self, data: JsonObject) -> None:
        server, problem = text_in(data, "server"), cell_text(text_in(data, "problem"))
        self._screen.note(f"the tools of {cell_text(server)} are missing: {problem}", "warning")


def text_in(data: JsonObject, key: str) -> str:
    value = data.get(key)
    return value if isinstance(value, str) else ""


def number_in(data: JsonObject, key: str) -> float:
    value = data.get(key)
    return float(value) if isinstance(value, int | float) else 0.0


_MAX_LINES: Final = 60
_MAX_LINE_CHARACTERS: Final = 400
_THEME: Final = "ansi_dark"


def program_lines(code: str, *, colours: Callable[[str], str] | None) -> list[str]:
    """The program's lines, safe for a terminal; of a long one the beginning."""
    lines = [_prepare_line(line) for line in code.strip("\n").split("\n")]
    shown = "\n".join(lines[:_MAX_LINES])
    colour = (colours(shown) if colours else shown).split("\n")
    left_out = len(lines) - _MAX_LINES
    return colour if left_out <= 0 else [*colour, f"… {left_out} more lines"]


def javascript_colours() -> Callable[[str], str]:
    """What colours a program; slow to make, so before anything runs."""
    from rich.console import Console
    from rich.syntax import Syntax

    # TypeScript is a superset. Looked up now: finding the lexer reads files.
    highlighter = Syntax("", "typescript", theme=_THEME, background_color="default")
    lexer = highlighter.lexer or "text"

    def colour(code: str) -> str:
        page = io.StringIO()
        console = Console(file=page, force_terminal=True, color_system="standard", width=10_000)
        syntax = Syntax(code, lexer, theme=_THEME, background_color="default")
        console.print(syntax.highlight(code), end="", soft_wrap=True)
        return page.getvalue().rstrip("\n")

    return colour


def _prepare_line(line: str) -> str:
    line = line.removesuffix("\r").expandtabs(2)
    cut = line if len(line) <= _MAX_LINE_CHARACTERS else f"{line[:_MAX_LINE_CHARACTERS]}…"
    return escape(cut)


_MAX_OUTPUT_LINES: Final = 20
_MAX_DEPTH: Final = 8
_STYLES: Final[dict[str, Style]] = {"completed": "good", "failed": "bad", "waiting": "warning"}


@dataclass(kw_only=True, slots=True)
class _Call:
    """A call that has not ended."""

    id: str
    name: str
    root_id: str
    """The call that the model made; this one itself, or one around it."""
    given: str
    depth: int
    is_program: bool


class CallsView:
    """Writes a line when a call ends; which calls run is the status."""

    def __init__(self, screen: Screen, *, colours: Callable[[str], str] | None) -> None:
        self._screen = screen
        self._colours = colours
        self._calls: dict[str, _Call] = {}
        # Of calls that the model made, also of those that have ended: programs may go on.
        self._headings: dict[str, str] = {}
        self._programs: set[str] = set()
        # Whose lines come next: those of others need a heading first.
        self._heading = ""
        self.takers: dict[RunEventKind, Callable[[JsonObject], None]] = {
            "call.started": self._on_call_started,
            "call.changed": self._on_call_changed,
            "call.updated": self._on_call_updated,
            "call.ended": self._on_call_ended,
            "cell.output": self._on_output,
            "cell.suspended": self._on_suspended,
            "cell.resumed": self._on_resumed,
            "approval.answered": self._on_approval_answered,
        }

    @property
    def status(self) -> str:
        """What runs; nothing if nothing does."""
        inner = [call.name for call in self._calls.values() if not call.is_program]
        names = inner or [call.name for call in self._calls.values()]
        return f"{', '.join(names)} …" if names else ""

    def _on_call_started(self, data: JsonObject) -> None:
        call_id, parent_id = text_in(data, "toolCallId"), text_in(data, "parentToolCallId")
        given, program = data.get("input"), program_of(data.get("input"))
        parent = self._calls.get(parent_id)
        name = text_in(data, "toolId") if parent_id else text_in(data, "toolName")
        call = _Call(
            id=call_id,
            name=cell_text(name),
            root_id=parent.root_id if parent else parent_id or call_id,
            given="" if program and not parent_id else input_text(given),
            depth=min(parent.depth + 1, _MAX_DEPTH) if parent else 1 if parent_id else 0,
            is_program=bool(program),
        )
        self._calls[call_id] = call
        if not parent_id:
            if program:
                self._programs.add(call_id)
            self._write_heading(call, program)

    def _write_heading(self, call: _Call, program: str) -> None:
        self._heading = call.id
        screen = self._screen
        given = cell_text(program, most_characters=120) if program else call.given
        self._headings[call.id] = f"{call.name} {given}".rstrip()
        is_whole_below = bool(program) and screen.is_terminal
        screen.note(f"● {call.name if is_whole_below else self._headings[call.id]}", "strong")
        if is_whole_below:
            gutter = screen.styled("  │ ", "dim")
            for line in program_lines(program, colours=self._colours):
                screen.write_lines(f"{gutter}{line}")

    def _on_call_ended(self, data: JsonObject) -> None:
        call_id = text_in(data, "toolCallId")
        call = self._calls.get(call_id)
        if call is None:
            return
        outcome = "completed" if data.get("outcome") == "completed" else "failed"
        took = duration_text(number_in(data, "durationMs"))
        if outcome == "failed":
            came = error_text(text_in(data, "error"), text_in(data, "errorCode"))
        else:
            came = "" if call.depth else result_text(data.get("result"))
            outcome = program_status(data.get("result")) or outcome
        what = f"{call.name} {call.given}".rstrip() if call.depth else outcome
        parts = [what, took, came] if outcome != "waiting" else [came, took]
        line = f"{MARKS.get(outcome, '…')} {'  '.join(filter(None, parts))}"
        self._line(call.root_id, line, _STYLES[outcome], depth=call.depth)
        del self._calls[call_id]

    def _on_call_changed(self, data: JsonObject) -> None:
        call = self._calls.get(text_in(data, "toolCallId"))
        if call is not None:
            call.given = f"{input_text(data.get('input'))} (changed)"

    def _on_call_updated(self, data: JsonObject) -> None:
        call = self._calls.get(text_in(data, "toolCallId"))
        update = data.get("update")
        if call is not None and update is not None:
            text = update if isinstance(update, str) else value_text(update, most_characters=60)
            self._screen.status(f"{call.name}: {text}")

    def _on_output(self, data: JsonObject) -> None:
        value = data.get("text", data.get("result"))
        lines = (value if isinstance(value, str) else value_text(value)).split("\n")
        shown = lines[: _MAX_OUTPUT_LINES if self._screen.is_terminal else 1]
        for line in shown:
            self._line(text_in(data, "toolCallId"), f"» {escape(cell_text(line))}", "plain")
        if len(lines) > len(shown):
            more = count_text(len(lines) - len(shown), "more line")
            self._line(text_in(data, "toolCallId"), f"» … {more}", "dim")

    def _on_suspended(self, data: JsonObject) -> None:
        size = size_text(number_in(data, "snapshotBytes"))
        line = f"suspended: {cell_text(text_in(data, 'reason'))} ({size})"
        self._line(text_in(data, "toolCallId"), line, "warning")

    def _on_resumed(self, data: JsonObject) -> None:
        self._line(text_in(data, "toolCallId"), "goes on", "dim")

    def _on_approval_answered(self, data: JsonObject) -> None:
        call = self._calls.get(text_in(data, "toolCallId"))
        name = call.name if call else "the call"
        match data.get("answer"), data.get("how"):
            case "allow", "remembered":
                self._approval_line(call, f"{name}: allowed before, for always", "dim")
            case "allow", how:
                self._approval_line(call, f"{name}: allowed ({how})", "good")
            case "deny", _:
                # The call fails, and says so.
                pass
            case answer, _:
                self._approval_line(call, f"{name}: the question is {answer}", "warning")

    def _approval_line(self, call: _Call | None, text: str, style: Style) -> None:
        self._line(call.root_id if call else self._heading, text, style)

    def _line(self, root_id: str, text: str, style: Style, *, depth: int = 1) -> None:
        """A line under its call; the last one of a call has depth 0."""
        heading = self._heading
        # Under a `wait` stands what goes on of the program that it waits for, whose call has ended.
        is_waited_for = root_id not in self._calls and heading in self._calls
        if root_id != heading and (heading in self._programs or not is_waited_for):
            self._heading = root_id
            self._screen.note(f"● {self._headings.get(root_id, root_id)}", "strong")
        branch = "├ " if depth else "└ "
        indent = "│ " * (depth - 1)
        self._screen.note(f"  {indent}{branch}{text}", style)
