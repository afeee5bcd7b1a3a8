"""`chat`: a conversation with an agent, in this process and live."""

from typing import TYPE_CHECKING

from nacre.cli.options import AgentOption, ConfigOption, ModelOption, SessionOption

if TYPE_CHECKING:
    from nacre.bootstrap import System
    from nacre.cli.output import ExitStatus
    from nacre.cli.runner import Stops


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
    from nacre.cli.agent.chat import Chat
    from nacre.cli.agent.chat_input import ChatInput
    from nacre.cli.agent.opening import run_with_system
    from nacre.cli.agent.requests import (
        Target,
        request_for,
        resolve_model,
        resume_hint,
        warn_of_demo_model,
    )
    from nacre.cli.agent.screen import Screen
    from nacre.cli.agent.turns import follower_for, live_view, typed_lines

    target = Target(agent=agent, model=model, session=session)
    warn_of_demo_model(resolve_model(system_config, target, lacking=lacking))
    source = ChatInput()
    source.open_history()
    # A line that is rewritten every second would be no place to type.
    screen = Screen(is_ticking=not source.is_terminal)
    view = live_view(screen)

    async def work(system: "System", stops: "Stops") -> "ExitStatus":
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
