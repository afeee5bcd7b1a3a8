"""`sessions show`: one session, turn by turn."""

from typing import TYPE_CHECKING, Annotated

import typer

from nacre.cli.options import ConfigOption, JsonOption
from nacre.cli.output import ExitStatus, Printer, warn

if TYPE_CHECKING:
    from nacre.cli.sessions.whole_session import WholeSession
    from nacre.storage import Store


def show_command(
    named: Annotated[
        str, typer.Argument(metavar="ID|KEY", help="The session.", show_default=False)
    ],
    turns: Annotated[
        int, typer.Option("--turns", metavar="N", min=1, max=100_000, help="The last so many.")
    ] = 50,
    config: ConfigOption = None,
    is_json: JsonOption = False,
) -> int:
    """Show what was said in a session, and what was called.

    Calls inside of a program stand below it.
    """
    from nacre.cli.system_config import read_system_config

    _, system = read_system_config(config)

    from nacre.cli.sessions.session_json import whole_session_to_json
    from nacre.cli.sessions.session_text import session_lines
    from nacre.cli.sessions.whole_session import read_whole_session
    from nacre.cli.stored_records import (
        find_session,
        read_stored,
        session_names,
        unknown_name_problem,
    )
    from nacre.errors import StorageError

    async def read(store: "Store") -> "WholeSession":
        session = await find_session(store, named, agent_ids=system.agents.ids)
        if session is None:
            names = await session_names(store)
            where = "`nacre sessions list` shows them"
            raise unknown_name_problem("session", named, names, where=where)
        return await read_whole_session(store, session, limit=turns)

    try:
        whole = read_stored(system, read)
    except StorageError as error:
        warn(str(error))
        return ExitStatus.FAILED
    printer = Printer()
    if is_json:
        printer.write_json(whole_session_to_json(whole), is_indented=printer.is_terminal)
    else:
        for line in session_lines(whole):
            printer.write(f"{line}\n")
    return printer.problem or ExitStatus.COMPLETED
