"""How a run is shown: who is told of its events, and of its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from nacre.cli.output import warn

if TYPE_CHECKING:
    from nacre.agent import AgentRun, RunEvent
    from nacre.cli.output import Printer


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
