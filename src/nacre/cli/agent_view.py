"""Shows the events of a run: live for people, as JSON lines, or the answer alone."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

from nacre.cli.calls_view import CallsView, number_in, text_in
from nacre.cli.output import cell_text, count_text, duration_text, warn

if TYPE_CHECKING:
    from collections.abc import Callable

    from nacre.agent import AgentRun, RunEvent, RunEventKind
    from nacre.cli.agent_screen import Screen
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
