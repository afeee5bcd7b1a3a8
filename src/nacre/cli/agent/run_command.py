"""`run`: one turn of an agent, in this process and live."""

from typing import TYPE_CHECKING, Annotated

import typer

from nacre.cli.options import AgentOption, ConfigOption, ModelOption, SessionOption
from nacre.cli.output import ExitStatus, UsageProblem

if TYPE_CHECKING:
    from nacre.bootstrap import System
    from nacre.cli.runner import Stops


def run_command(
    prompt: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PROMPT",
            help="What to ask; `-` or none for standard input.",
            show_default=False,
        ),
    ] = None,
    agent: AgentOption = None,
    model: ModelOption = None,
    session: SessionOption = None,
    config: ConfigOption = None,
    is_json: Annotated[
        bool, typer.Option("--json", help="Print every event as a line of JSON.")
    ] = False,
    is_quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print the answer and nothing else.")
    ] = False,
) -> int:
    """Ask an agent, and watch it work.

    The answer goes to standard output; programs, calls, questions and the rest to standard error.
    A call that needs an approval is asked about at the terminal, and denied where there is none.

    Exit status: 0 completed, 1 failed, 2 bad usage, 130 aborted by Ctrl-C (a second one ends it at
    once), 143 aborted by SIGTERM, 141 nobody reads the output any more.
    """
    if is_json and is_quiet:
        raise UsageProblem("got both --json and --quiet; give one of them")
    from nacre.cli.agent.prompt_text import read_prompt
    from nacre.cli.system_config import read_run_config

    text = read_prompt(prompt or ())
    system_config, lacking = read_run_config(config)

    # Slow to import, and no help to somebody who mistyped an option.
    from dataclasses import replace

    from nacre.cli.agent.opening import run_with_system
    from nacre.cli.agent.requests import (
        Target,
        request_for,
        resolve_model,
        resume_hint,
        warn_of_demo_model,
    )
    from nacre.cli.agent.screen import Screen
    from nacre.cli.agent.turns import follower_for, status_of, typed_lines, view_for

    target = Target(agent=agent, model=model, session=session)
    answering_model = resolve_model(system_config, target, lacking=lacking)
    is_told = not is_json and not is_quiet
    if is_told:
        warn_of_demo_model(answering_model)
    screen = Screen()
    view = view_for(screen, is_json=is_json, is_quiet=is_quiet)

    async def work(system: "System", stops: "Stops") -> ExitStatus:
        request = await request_for(target, system)
        run = await system.agents.start(replace(request, message=text))
        follower = follower_for(system, stops, screen=screen, view=view, lines=typed_lines())
        await follower.follow(run)
        if is_told:
            on = resume_hint(target, session or run.session_id, config_file=config)
            screen.note(on, "dim")
        return screen.printer.problem or status_of(run, stops)

    return run_with_system(system_config, work, screen=screen)
