"""The commands of `nacre sessions`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from nacre.cli.options import ConfigOption, JsonOption
from nacre.cli.output import ExitStatus, Printer, say, warn

if TYPE_CHECKING:
    from nacre.cli.session_view import WholeSession
    from nacre.storage import SessionRecord, Store


_DEFAULT_LIMIT = 20


def list_command(
    agent: Annotated[
        str | None, typer.Option("--agent", metavar="ID", help="Only those of this agent.")
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=1, max=1000, help="At most so many.")
    ] = _DEFAULT_LIMIT,
    config: ConfigOption = None,
    is_json: JsonOption = False,
) -> int:
    """List the sessions, the last used first."""
    from nacre.cli.system_config import read_system_config

    _, system = read_system_config(config)

    from nacre.cli.output import count_text, time_text, write_table
    from nacre.cli.session_view import session_to_json
    from nacre.cli.stored_records import read_stored
    from nacre.errors import StorageError

    async def read(store: Store) -> list[SessionRecord]:
        # One more than is shown tells whether there are more.
        return await store.sessions(agent_id=agent, limit=limit + 1)

    try:
        found = read_stored(system, read)
    except StorageError as error:
        warn(str(error))
        return ExitStatus.FAILED
    printer = Printer()
    shown = found[:limit]
    if is_json:
        printer.write_json(
            {
                "sessions": [session_to_json(session) for session in shown],
                "hasMore": len(found) > limit,
            },
            is_indented=printer.is_terminal,
        )
        return printer.problem or ExitStatus.COMPLETED
    rows = [
        (it.id, it.agent_id, it.key, str(it.turn_count), time_text(it.updated), it.title)
        for it in shown
    ]
    headings = ("session", "agent", "key", "turns", "last used", "title")
    write_table(printer, headings, rows, right=("turns",))
    if len(found) > limit:
        say(f"{count_text(len(shown), 'session')} shown; there are more: --limit N")
    elif not found:
        say('no sessions yet; `nacre run "..."` begins one')
    return printer.problem or ExitStatus.COMPLETED


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

    from nacre.cli.session_view import read_whole_session, session_lines, whole_session_to_json
    from nacre.cli.stored_records import (
        find_session,
        read_stored,
        session_names,
        unknown_name_problem,
    )
    from nacre.errors import StorageError

    async def read(store: Store) -> WholeSession:
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


def register(app: typer.Typer) -> None:
    group = typer.Typer(help="List and read the sessions that are kept.", no_args_is_help=True)
    group.command("list")(list_command)
    group.command("show")(show_command)
    app.add_typer(group, name="sessions")
