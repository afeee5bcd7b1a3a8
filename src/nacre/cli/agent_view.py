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
from nacre.cli.output import count_text, duration_text, shorten, size_text, warn
from nacre.display import escape

if TYPE_CHECKING:
    from collections.abc import Callable

    from nacre.agent import AgentRun, RunEvent, RunEventKind
    from nacre.cli.agent_screen import Screen, Style
    from nacre.cli.output import Printer
    from nacre.json_types import JsonObject
    from nacre.storage import MediaRecord


class RunView(Protocol):
    """Receives every event of a run, in order, and its end."""

    def add(self, run: AgentRun, event: RunEvent) -> None: ...

    def add_media(self, record: MediaRecord, path: str) -> None:
        """A file of the reply, and where it is on this machine."""
        ...

    def end(self, run: AgentRun) -> None: ...


class JsonView:
    """Prints every event as a JSON line."""

    def __init__(self, printer: Printer) -> None:
        self._printer = printer

    def add(self, run: AgentRun, event: RunEvent) -> None:
        whose = {"runId": run.id, "sessionId": run.session_id}
        self._printer.write_json({**whose, **event.to_json()}, is_indented=False)

    def add_media(self, record: MediaRecord, path: str) -> None:
        pass

    def end(self, run: AgentRun) -> None:
        pass


class QuietView:
    """Prints the last answer only, with the paths of its files, and an error on standard error."""

    def __init__(self, printer: Printer) -> None:
        self._printer = printer
        self._paths: list[str] = []

    def add(self, run: AgentRun, event: RunEvent) -> None:
        pass

    def add_media(self, record: MediaRecord, path: str) -> None:
        self._paths.append(path)

    def end(self, run: AgentRun) -> None:
        result = run.result
        if result is None:
            return
        if result.reply:
            self._printer.write(f"{result.reply}\n")
        for path in self._paths:
            self._printer.write(f"{path}\n")
        if run.state == "failed":
            warn(f"failed: {result.error}")


class LiveView:
    """Shows runs on a screen, in short form without a terminal. One view serves several runs."""

    def __init__(
        self,
        screen: Screen,
        *,
        code_mode_command: str,
        colours: Callable[[str], str] | None = None,
    ) -> None:
        self._screen = screen
        self._code_mode_command = code_mode_command
        self._surface = ""
        self._has_warned_of_tools = False
        self._colours = colours
        self._calls = CallsView(screen, colours=colours)
        self._waited_for = ""
        self._has_said = False
        self._has_question = False
        self._started = time.monotonic()
        self._handlers: dict[RunEventKind, Callable[[JsonObject], None]] = {
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
            "input.requested": self._on_input_requested,
            "input.answered": self._on_input_answered,
            "compaction.started": self._on_compaction_started,
            "compaction.ended": self._on_compaction_ended,
            "server.unavailable": self._on_server_unavailable,
            "tool.unavailable": self._on_tool_unavailable,
            "codex_app_server.lifecycle": self._on_codex_lifecycle,
            "run.failed": self._on_failed,
            "run.aborted": self._on_aborted,
        }

    def add(self, run: AgentRun, event: RunEvent) -> None:
        handle = self._handlers.get(event.kind) or self._calls.handlers.get(event.kind)
        if handle is None:
            # Cells start and end with their calls, and `RunFollower` asks for approvals.
            return
        handle(event.data)
        # The progress of a tool is already the status.
        if event.kind != "call.updated":
            self._screen.set_status(self._calls.status or self._waited_for)

    def add_media(self, record: MediaRecord, path: str) -> None:
        self._screen.end_answer()
        about = f"{record.type}, {size_text(record.size)}"
        self._screen.write_note(f"file: {path} ({about})", "good")

    def end(self, run: AgentRun) -> None:
        self._waited_for = ""
        self._screen.set_status("")
        if run.state == "completed" and run.result is not None and not run.command:
            took = duration_text((time.monotonic() - self._started) * 1000)
            tokens = count_text(run.result.usage.total_tokens, "token")
            facts = [f"completed in {took}", tokens, run.result.model]
            self._screen.write_note(", ".join(filter(None, [*facts, self._surface])), "dim")

    # Events of the run.

    def _on_started(self, data: JsonObject) -> None:
        self._started = time.monotonic()
        self._has_said = False
        self._calls = CallsView(self._screen, colours=self._colours)
        self._waited_for = "starting"

    def _on_queued(self, data: JsonObject) -> None:
        self._screen.write_note("queued until the running turn ends", "dim")

    def _on_waiting(self, data: JsonObject) -> None:
        if not self._has_question:
            self._waited_for = "waiting for an approval or a result"

    def _on_resumed(self, data: JsonObject) -> None:
        self._waited_for = ""

    def _on_steered(self, data: JsonObject) -> None:
        if dropped := text_in(data, "dropped"):
            self._screen.write_note(
                f"dropped: {shorten(text_in(data, 'text'))} ({dropped})", "warning"
            )
        elif text := text_in(data, "text"):
            self._screen.write_note(f"steered: {shorten(text, max_characters=80)}", "dim")
        else:
            self._screen.write_note("too late for this turn; it starts a new one", "dim")

    def _on_codex_lifecycle(self, data: JsonObject) -> None:
        if note := text_in(data, "note"):
            self._screen.write_note(note, "warning")

    def _on_failed(self, data: JsonObject) -> None:
        self._screen.end_answer()
        self._screen.write_note(f"failed: {text_in(data, 'error')}", "bad")

    def _on_aborted(self, data: JsonObject) -> None:
        self._screen.end_answer()
        self._screen.write_note(f"aborted: {text_in(data, 'error')}", "warning")

    # Events of the model.

    def _on_model_started(self, data: JsonObject) -> None:
        self._has_said = False
        self._waited_for = f"waiting for {text_in(data, 'model')}"
        self._note_surface(data)

    def _note_surface(self, data: JsonObject) -> None:
        names = data.get("toolNames")
        count = len(names) if isinstance(names, list) else 0
        is_direct = data.get("surface") == "direct"
        kind = "direct tool" if is_direct else "tool"
        self._surface = _SURFACES.get(text_in(data, "surface"), count_text(count, kind))
        if is_direct and count > _MAX_DIRECT_TOOLS and not self._has_warned_of_tools:
            self._has_warned_of_tools = True
            size = size_text(number_in(data, "toolBytes"))
            self._screen.write_note(
                f"the model gets {count} tools ({size}) with every request; with code mode it gets "
                f"two: {self._code_mode_command}",
                "warning",
            )

    def _on_retry(self, data: JsonObject) -> None:
        problem = shorten(text_in(data, "problem"))
        if failed_model := text_in(data, "failedModel"):
            text = f"{failed_model} failed: {problem}; trying {text_in(data, 'model')}"
        else:
            attempt, delay = number_in(data, "attempt"), number_in(data, "delaySeconds")
            text = f"attempt {attempt:.0f} failed: {problem}; retrying in {delay:.1f} s"
        self._screen.write_note(text, "warning")

    def _on_text(self, data: JsonObject) -> None:
        self._has_said = True
        self._screen.write_answer(text_in(data, "text"))

    def _on_thinking(self, data: JsonObject) -> None:
        self._screen.write_thinking(text_in(data, "text"))

    def _on_message_completed(self, data: JsonObject) -> None:
        if not self._has_said:
            # The provider does not stream.
            self._screen.write_answer(text_in(data, "text"))
        self._screen.end_answer()
        self._waited_for = ""

    def _on_message_sent(self, data: JsonObject) -> None:
        """A message of the tool `message`, which goes to the user beside the answer."""
        self._screen.write_answer(f"{text_in(data, 'text').rstrip()}\n")

    # Questions to the user.

    def _on_input_requested(self, data: JsonObject) -> None:
        self._screen.end_answer()
        self._screen.write_note(text_in(data, "text"), "strong")
        self._has_question, self._waited_for = True, "waiting for your answer"

    def _on_input_answered(self, data: JsonObject) -> None:
        self._has_question, self._waited_for = False, ""
        if (how := text_in(data, "how")) != "answered":
            self._screen.write_note(f"the question is {how}", "dim")

    # Other events.

    def _on_compaction_started(self, data: JsonObject) -> None:
        count = count_text(int(number_in(data, "messageCount")), "older message")
        self._waited_for = f"summarizing {count}"

    def _on_compaction_ended(self, data: JsonObject) -> None:
        count = count_text(int(number_in(data, "messageCount")), "older message")
        if error := text_in(data, "error"):
            note = f"cannot summarize {count}: {shorten(error)}"
            self._screen.write_note(note, "warning")
        else:
            self._screen.write_note(f"summarized {count}", "dim")

    def _on_server_unavailable(self, data: JsonObject) -> None:
        server, problem = text_in(data, "server"), shorten(text_in(data, "problem"))
        self._screen.write_note(f"the tools of {shorten(server)} are missing: {problem}", "warning")

    def _on_tool_unavailable(self, data: JsonObject) -> None:
        tool, problem = text_in(data, "toolId"), shorten(text_in(data, "problem"))
        self._screen.write_note(f"the tool {shorten(tool)} is missing: {problem}", "warning")


def text_in(data: JsonObject, key: str) -> str:
    value = data.get(key)
    return value if isinstance(value, str) else ""


def number_in(data: JsonObject, key: str) -> float:
    value = data.get(key)
    return float(value) if isinstance(value, int | float) else 0.0


_MAX_DIRECT_TOOLS: Final = 20
_SURFACES: Final = {"code_mode": "code mode", "tool_search": "tool search", "codex": "in Codex"}
_MAX_LINES: Final = 60
_MAX_LINE_CHARACTERS: Final = 400
_THEME: Final = "ansi_dark"


def program_lines(code: str, *, colours: Callable[[str], str] | None) -> list[str]:
    """The lines of a program, safe for a terminal. A long program is cut."""
    lines = [_prepare_line(line) for line in code.strip("\n").split("\n")]
    shown = "\n".join(lines[:_MAX_LINES])
    colour = (colours(shown) if colours else shown).split("\n")
    left_out = len(lines) - _MAX_LINES
    return colour if left_out <= 0 else [*colour, f"… {left_out} more lines"]


def create_highlighter() -> Callable[[str], str]:
    """A function that colours programs. Slow to create, so do it before the event loop runs."""
    from rich.console import Console
    from rich.syntax import Syntax

    # TypeScript includes JavaScript. Finding the lexer reads files, so do it now.
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
    """A running call."""

    id: str
    name: str
    root_id: str
    """The model's call that contains this one, or this call itself."""
    given: str
    depth: int
    is_program: bool


class CallsView:
    """Shows calls: a line when a call ends, and the running calls as the status."""

    def __init__(self, screen: Screen, *, colours: Callable[[str], str] | None) -> None:
        self._screen = screen
        self._colours = colours
        self._calls: dict[str, _Call] = {}
        # Also of calls that have ended: their programs may continue.
        self._headings: dict[str, str] = {}
        self._programs: set[str] = set()
        # The call that the next lines belong to. Lines of another call need a new heading.
        self._heading = ""
        self.handlers: dict[RunEventKind, Callable[[JsonObject], None]] = {
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
        """The names of the running calls."""
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
            name=shorten(name),
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
        given = shorten(program, max_characters=120) if program else call.given
        self._headings[call.id] = f"{call.name} {given}".rstrip()
        is_whole_below = bool(program) and screen.is_terminal
        screen.write_note(f"● {call.name if is_whole_below else self._headings[call.id]}", "strong")
        if is_whole_below:
            gutter = screen.apply_style("  │ ", "dim")
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
            text = update if isinstance(update, str) else value_text(update, max_characters=60)
            self._screen.set_status(f"{call.name}: {text}")

    def _on_output(self, data: JsonObject) -> None:
        value = data.get("text", data.get("result"))
        lines = (value if isinstance(value, str) else value_text(value)).split("\n")
        shown = lines[: _MAX_OUTPUT_LINES if self._screen.is_terminal else 1]
        for line in shown:
            self._line(text_in(data, "toolCallId"), f"» {escape(shorten(line))}", "plain")
        if len(lines) > len(shown):
            more = count_text(len(lines) - len(shown), "more line")
            self._line(text_in(data, "toolCallId"), f"» … {more}", "dim")

    def _on_suspended(self, data: JsonObject) -> None:
        size = size_text(number_in(data, "snapshotBytes"))
        line = f"suspended: {shorten(text_in(data, 'reason'))} ({size})"
        self._line(text_in(data, "toolCallId"), line, "warning")

    def _on_resumed(self, data: JsonObject) -> None:
        self._line(text_in(data, "toolCallId"), "resumed", "dim")

    def _on_approval_answered(self, data: JsonObject) -> None:
        call = self._calls.get(text_in(data, "toolCallId"))
        name = call.name if call else "the call"
        match data.get("answer"), data.get("how"):
            case "allow", "remembered":
                self._approval_line(call, f"{name}: always allowed", "dim")
            case "allow", how:
                self._approval_line(call, f"{name}: allowed ({how})", "good")
            case "deny", _:
                # The failed call shows it.
                pass
            case answer, _:
                self._approval_line(call, f"{name}: the approval is {answer}", "warning")

    def _approval_line(self, call: _Call | None, text: str, style: Style) -> None:
        self._line(call.root_id if call else self._heading, text, style)

    def _line(self, root_id: str, text: str, style: Style, *, depth: int = 1) -> None:
        """Write a line under its call. The last line of a call has depth 0."""
        heading = self._heading
        # Below a `wait` come the lines of the resumed program, whose own call has ended.
        is_waited_for = root_id not in self._calls and heading in self._calls
        if root_id != heading and (heading in self._programs or not is_waited_for):
            self._heading = root_id
            self._screen.write_note(f"● {self._headings.get(root_id, root_id)}", "strong")
        branch = "├ " if depth else "└ "
        indent = "│ " * (depth - 1)
        self._screen.write_note(f"  {indent}{branch}{text}", style)
