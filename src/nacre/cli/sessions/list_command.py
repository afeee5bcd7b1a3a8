"""`sessions list`: the sessions that are kept, the last used first."""

from typing import TYPE_CHECKING, Annotated

import typer

from nacre.cli.options import ConfigOption, JsonOption
from nacre.cli.output import ExitStatus, Printer, say, warn

if TYPE_CHECKING:
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
    from nacre.cli.sessions.session_json import session_to_json
    from nacre.cli.stored_records import read_stored
    from nacre.errors import StorageError

    async def read(store: "Store") -> "list[SessionRecord]":
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
