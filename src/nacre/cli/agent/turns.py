"""What turns at a terminal are made of: how they are shown, and who is asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nacre.cli.agent.approvals_prompt import ApprovalsPrompt
from nacre.cli.agent.following import RunFollower
from nacre.cli.agent.highlighting import javascript_colours
from nacre.cli.agent.live_view import LiveView
from nacre.cli.agent.run_view import JsonView, QuietView
from nacre.cli.output import ExitStatus
from nacre.cli.terminal_input import TypedLines, is_person_there

if TYPE_CHECKING:
    from nacre.agent import AgentRun
    from nacre.bootstrap import System
    from nacre.cli.agent.run_view import RunView
    from nacre.cli.agent.screen import Screen
    from nacre.cli.runner import Stops


def live_view(screen: Screen) -> LiveView:
    """For people. Reads files, so it is made before anything runs."""
    return LiveView(screen, colours=javascript_colours() if screen.has_colours else None)


def view_for(screen: Screen, *, is_json: bool, is_quiet: bool) -> RunView:
    if is_json:
        return JsonView(screen.printer)
    return QuietView(screen.printer) if is_quiet else live_view(screen)


def typed_lines() -> TypedLines | None:
    """What the person types; None where there is nobody."""
    return TypedLines() if is_person_there() else None


def follower_for(
    system: System, stops: Stops, *, screen: Screen, view: RunView, lines: TypedLines | None
) -> RunFollower:
    return RunFollower(
        screen=screen,
        view=view,
        prompt=ApprovalsPrompt(screen, lines, stops),
        approvals=system.approvals,
        stops=stops,
    )


def status_of(run: AgentRun, stops: Stops) -> ExitStatus:
    """The exit status of a run that has ended."""
    if run.state == "completed":
        return ExitStatus.COMPLETED
    return (stops.status if run.state == "aborted" else None) or ExitStatus.FAILED
