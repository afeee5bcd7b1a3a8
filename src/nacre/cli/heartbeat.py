"""Commands `nacre heartbeat run` and `nacre heartbeat status`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from nacre.cli.options import AgentOption, ConfigOption, JsonOption
from nacre.cli.output import ExitStatus, Printer, duration_text, say

if TYPE_CHECKING:
    from nacre.bootstrap import System
    from nacre.cli.runner import StopSignals
    from nacre.json_types import JsonObject


def run_command(
    agent: AgentOption = None,
    config: ConfigOption = None,
    is_quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print the notification and nothing else.")
    ] = False,
) -> int:
    """Wake an agent once, in this process, and show the run.

    It runs also outside of the active hours, and if HEARTBEAT.md has no tasks. A notification goes
    to standard output; a quiet heartbeat prints nothing there.

    Exit status: 0 quiet or notified, 1 failed or skipped, 2 bad usage, 130 aborted by Ctrl-C.
    """
    from nacre.cli.system_config import read_run_config

    system_config, missing_secrets = read_run_config(config)

    # Slow to import, and not needed to report bad usage.
    from nacre.agent import Heartbeats
    from nacre.cli.agent_runner import (
        Target,
        follower_for,
        resolve_model,
        run_with_system,
        status_of,
        typed_lines,
        view_for,
    )
    from nacre.cli.agent_screen import Screen

    target = Target(agent=agent)
    resolve_model(system_config, target, missing_secrets=missing_secrets)
    screen = Screen()
    view = view_for(screen, is_json=False, is_quiet=is_quiet, config_file=config)

    async def work(system: System, stops: StopSignals) -> ExitStatus:
        agent_id = agent or system.config.agents.default_id
        report = await Heartbeats(system.agents, system.store).wake(agent_id)
        run, turn = report.run, report.turn
        if run is None or turn is None:
            screen.write_note(f"not woken: {report.skipped or report.error}", "warning")
            return ExitStatus.FAILED
        follower = follower_for(system, stops, screen=screen, view=view, lines=typed_lines())
        await follower.follow(run)
        if turn.text and turn.text not in run.events.sent:
            # There is no target: it was only recorded.
            screen.write_answer(f"{turn.text}\n")
        if not is_quiet:
            screen.write_note(f"heartbeat of {agent_id}: {report.status}", "dim")
        return screen.printer.problem or status_of(run, stops)

    return run_with_system(system_config, work, screen=screen)


def status_command(config: ConfigOption = None, is_json: JsonOption = False) -> int:
    """List the agents that a gateway wakes, with their last heartbeat in the database."""
    from nacre.cli.runner import run_async
    from nacre.cli.system_config import read_run_config

    system_config, _ = read_run_config(config)

    # Slow to import, and not needed to report bad usage.
    from nacre.agent import find_last_heartbeat
    from nacre.storage import open_store

    async def read() -> list[JsonObject]:
        found: list[JsonObject] = []
        async with open_store(system_config.storage.url) as store:
            for agent in system_config.agents.by_id.values():
                if agent.heartbeat is None:
                    continue
                entry: JsonObject = {
                    "agentId": agent.id,
                    "everySeconds": agent.heartbeat.every_seconds,
                }
                last = await find_last_heartbeat(store, agent.id, agent.heartbeat)
                if last is not None:
                    beat = last.data.get("heartbeat")
                    details = beat if isinstance(beat, dict) else {}
                    entry["last"] = {"time": last.started, "runId": last.run_id, **details}
                found.append(entry)
        return found

    entries = run_async(read)
    printer = Printer()
    if is_json:
        printer.write_json({"heartbeats": [*entries]}, is_indented=True)
    elif not entries:
        say("no agent is woken; see `agents.defaults.heartbeat`")
    else:
        printer.write("".join(f"{_format_entry(entry)}\n" for entry in entries))
    return printer.problem or ExitStatus.COMPLETED


def _format_entry(entry: JsonObject) -> str:
    every = entry["everySeconds"]
    assert isinstance(every, float)
    text = f"{entry['agentId']}: every {duration_text(every * 1000)}"
    match entry.get("last"):
        case {"time": float(started), "status": str(status)} as last:
            moment = datetime.fromtimestamp(started, UTC).astimezone()
            summary = last.get("text") or last.get("summary") or ""
            said = f": {summary}" if summary else ""
            return f"{text}, last {moment:%Y-%m-%d %H:%M} ({status}){said}"
        case _:
            return f"{text}, not woken yet"


def register(app: typer.Typer) -> None:
    group = typer.Typer(
        help="Wake an agent without a message, and list heartbeats.", no_args_is_help=True
    )
    group.command("run")(run_command)
    group.command("status")(status_command)
    app.add_typer(group, name="heartbeat")
