"""`nacre run` and `nacre chat`: the commands that run an agent in this process."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Final

import typer

from nacre.cli.options import AgentOption, ConfigOption, ModelOption, SessionOption
from nacre.cli.output import ExitStatus, UsageProblem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nacre.bootstrap import System
    from nacre.cli.runner import StopSignals


# Far above what a model can read; keeps a wrong file from filling the memory.
_MAX_PROMPT_BYTES: Final = 4 << 20


def read_prompt(words: Sequence[str]) -> str:
    """The words, or standard input for none or `-`; raises UsageProblem."""
    is_asked_for = tuple(words) == ("-",)
    text = _read_standard_input(is_asked_for=is_asked_for) if not words or is_asked_for else ""
    text = text or _check_encoding(" ".join(words) if not is_asked_for else "")
    if not text.strip():
        raise UsageProblem("the prompt is empty; nothing was asked")
    return text


def _check_encoding(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        # Python keeps bytes of an argument that it cannot decode as halves of surrogate pairs.
        raise UsageProblem(f"the prompt is not UTF-8 (character {error.start + 1})") from None
    return text


def _read_standard_input(*, is_asked_for: bool) -> str:
    stream = sys.stdin
    if stream is None or (stream.isatty() and not is_asked_for):
        raise UsageProblem('there is no prompt; write `nacre run "..."`, or pipe one to it')
    try:
        content = stream.buffer.read(_MAX_PROMPT_BYTES + 1)
        text = content.decode("utf-8-sig")
    except OSError as error:
        raise UsageProblem(f"cannot read standard input: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise UsageProblem(f"standard input is not UTF-8 text (line {line})") from None
    if len(content) > _MAX_PROMPT_BYTES:
        raise UsageProblem(f"standard input is larger than {_MAX_PROMPT_BYTES} bytes")
    return text


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
    from nacre.cli.system_config import read_run_config

    text = read_prompt(prompt or ())
    system_config, lacking = read_run_config(config)

    # Slow to import, and no help to somebody who mistyped an option.
    from dataclasses import replace

    from nacre.cli.agent_runner import (
        Target,
        follower_for,
        request_for,
        resolve_model,
        resume_hint,
        run_with_system,
        status_of,
        typed_lines,
        view_for,
        warn_of_demo_model,
    )
    from nacre.cli.agent_screen import Screen

    target = Target(agent=agent, model=model, session=session)
    answering_model = resolve_model(system_config, target, lacking=lacking)
    is_told = not is_json and not is_quiet
    if is_told:
        warn_of_demo_model(answering_model)
    screen = Screen()
    view = view_for(screen, is_json=is_json, is_quiet=is_quiet)

    async def work(system: System, stops: StopSignals) -> ExitStatus:
        request = await request_for(target, system)
        run = await system.agents.start(replace(request, message=text))
        follower = follower_for(system, stops, screen=screen, view=view, lines=typed_lines())
        await follower.follow(run)
        if is_told:
            on = resume_hint(target, session or run.session_id, config_file=config)
            screen.note(on, "dim")
        return screen.printer.problem or status_of(run, stops)

    return run_with_system(system_config, work, screen=screen)


def chat_command(
    agent: AgentOption = None,
    model: ModelOption = None,
    session: SessionOption = None,
    config: ConfigOption = None,
) -> int:
    """Talk to an agent.

    /help says which commands there are. What you type while the agent works reaches it on its way;
    Ctrl-C ends the turn that runs, and leaves where none does. From a pipe, every line is a
    message, and each is answered before the next one is read.

    Exit status: 0, or 1 if a turn failed and the lines came from a pipe, 2 bad usage, 130 left by
    Ctrl-C, 143 ended by SIGTERM, 141 nobody reads the output any more.
    """
    from nacre.cli.system_config import read_run_config

    system_config, lacking = read_run_config(config)

    # Slow to import, and no help to somebody who mistyped an option.
    from nacre.cli.agent_chat import Chat, ChatInput
    from nacre.cli.agent_runner import (
        Target,
        follower_for,
        live_view,
        request_for,
        resolve_model,
        resume_hint,
        run_with_system,
        typed_lines,
        warn_of_demo_model,
    )
    from nacre.cli.agent_screen import Screen

    target = Target(agent=agent, model=model, session=session)
    warn_of_demo_model(resolve_model(system_config, target, lacking=lacking))
    source = ChatInput()
    source.open_history()
    # A line that is rewritten every second would be no place to type.
    screen = Screen(is_ticking=not source.is_terminal)
    view = live_view(screen)

    async def work(system: System, stops: StopSignals) -> ExitStatus:
        lines = typed_lines()
        chat = Chat(
            system,
            stops,
            request=await request_for(target, system),
            screen=screen,
            follower=follower_for(system, stops, screen=screen, view=view, lines=lines),
            source=source,
            lines=lines,
        )
        if source.is_terminal:
            screen.note("/help says what there is besides talking; /quit leaves", "dim")
        try:
            return await chat.talk()
        finally:
            source.close()
            if chat.session:
                screen.note(resume_hint(target, chat.session, config_file=config), "dim")

    try:
        return run_with_system(system_config, work, screen=screen)
    finally:
        source.save_history()


def register(app: typer.Typer) -> None:
    app.command("run")(run_command)
    app.command("chat")(chat_command)
