"""Commands `nacre run` and `nacre chat`: run an agent in this process."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Final

import typer

from nacre.cli.options import AgentOption, ConfigOption, ModelOption, SessionOption
from nacre.cli.output import ExitStatus, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nacre.bootstrap import System
    from nacre.cli.runner import StopSignals


# Far more than a model can read; limits the memory that a wrong file takes.
_MAX_PROMPT_BYTES: Final = 4 << 20


def read_prompt(words: Sequence[str]) -> str:
    """Join the words, or read standard input for none or `-`. Raises UsageError."""
    is_explicit = tuple(words) == ("-",)
    text = _read_standard_input(is_explicit=is_explicit) if not words or is_explicit else ""
    text = text or _check_encoding(" ".join(words) if not is_explicit else "")
    if not text.strip():
        raise UsageError("the prompt is empty; nothing was sent")
    return text


def _check_encoding(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        # Python turns bytes that it cannot decode into surrogates.
        raise UsageError(f"the prompt is not UTF-8 (character {error.start + 1})") from None
    return text


def _read_standard_input(*, is_explicit: bool) -> str:
    stream = sys.stdin
    if stream is None or (stream.isatty() and not is_explicit):
        raise UsageError('there is no prompt; write `nacre run "..."`, or pipe one to the command')
    try:
        content = stream.buffer.read(_MAX_PROMPT_BYTES + 1)
        text = content.decode("utf-8-sig")
    except OSError as error:
        raise UsageError(f"cannot read standard input: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise UsageError(f"standard input is not UTF-8 text (line {line})") from None
    if len(content) > _MAX_PROMPT_BYTES:
        raise UsageError(f"standard input is larger than {_MAX_PROMPT_BYTES} bytes")
    return text


def run_command(
    prompt: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PROMPT",
            help="The message to the agent; `-` or none reads standard input.",
            show_default=False,
        ),
    ] = None,
    agent: AgentOption = None,
    model: ModelOption = None,
    session: SessionOption = None,
    config: ConfigOption = None,
    is_json: Annotated[
        bool, typer.Option("--json", help="Print every event as a JSON line.")
    ] = False,
    is_quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print the answer and nothing else.")
    ] = False,
) -> int:
    """Send a message to an agent and show the run.

    The answer goes to standard output; programs, calls and questions go to standard error. Tool
    calls that need approval are asked about at the terminal, and denied without one.

    Exit status: 0 completed, 1 failed, 2 bad usage, 130 aborted by Ctrl-C (a second Ctrl-C exits at
    once), 143 aborted by SIGTERM, 141 the reader of the output is gone.
    """
    if is_json and is_quiet:
        raise UsageError("got both --json and --quiet; give one of them")
    from nacre.cli.system_config import read_run_config

    text = read_prompt(prompt or ())
    system_config, missing_secrets = read_run_config(config)

    # Slow to import, and not needed to report bad usage.
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
    answering_model = resolve_model(system_config, target, missing_secrets=missing_secrets)
    is_verbose = not is_json and not is_quiet
    if is_verbose:
        warn_of_demo_model(answering_model)
    screen = Screen()
    view = view_for(screen, is_json=is_json, is_quiet=is_quiet, config_file=config)

    async def work(system: System, stops: StopSignals) -> ExitStatus:
        request = await request_for(target, system)
        run = await system.agents.start(replace(request, message=text))
        follower = follower_for(system, stops, screen=screen, view=view, lines=typed_lines())
        await follower.follow(run)
        if is_verbose and (session or run.session_id):
            hint = resume_hint(target, session or run.session_id, config_file=config)
            screen.write_note(hint, "dim")
        return screen.printer.problem or status_of(run, stops)

    return run_with_system(system_config, work, screen=screen)


def chat_command(
    agent: AgentOption = None,
    model: ModelOption = None,
    session: SessionOption = None,
    config: ConfigOption = None,
) -> int:
    """Chat with an agent.

    Type /help for the commands. Messages that you send while the agent works reach it during the
    turn. Ctrl-C stops the current turn, or leaves the chat if none runs. If standard input is a
    pipe, each line is a message, and the next one is read after the answer.

    Exit status: 0, or 1 if a turn failed and the input is a pipe, 2 bad usage, 130 left by Ctrl-C,
    143 ended by SIGTERM, 141 the reader of the output is gone.
    """
    from nacre.cli.system_config import read_run_config

    system_config, missing_secrets = read_run_config(config)

    # Slow to import, and not needed to report bad usage.
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
    warn_of_demo_model(resolve_model(system_config, target, missing_secrets=missing_secrets))
    source = ChatInput()
    source.open_history()
    # A status line that is redrawn every second would disturb the typing.
    screen = Screen(is_ticking=not source.is_terminal)
    view = live_view(screen, config_file=config)

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
            screen.write_note("/help lists the commands; /quit leaves", "dim")
        try:
            return await chat.talk()
        finally:
            source.close()
            if chat.session:
                screen.write_note(resume_hint(target, chat.session, config_file=config), "dim")

    try:
        return run_with_system(system_config, work, screen=screen)
    finally:
        source.save_history()


def register(app: typer.Typer) -> None:
    app.command("run")(run_command)
    app.command("chat")(chat_command)
