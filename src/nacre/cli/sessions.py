"""Commands `nacre sessions`: list, show and delete stored sessions."""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final

import typer

from nacre.cli.call_view import call_branches, input_text, program_of
from nacre.cli.options import ConfigOption, JsonOption
from nacre.cli.output import (
    ExitStatus,
    Printer,
    UsageError,
    count_text,
    duration_text,
    say,
    shorten,
    size_text,
    time_text,
    tree_lines,
    warn,
)
from nacre.cli.stored_records import events_of_run
from nacre.json_types import NotJsonError, decode_json
from nacre.messages import (
    AssistantMessage,
    ImagePart,
    SystemMessage,
    TextPart,
    ThinkingPart,
    ToolMessage,
    UserMessage,
    message_to_json,
)
from nacre.trajectory import project

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from nacre.config import SystemConfig
    from nacre.json_types import JsonObject
    from nacre.messages import AssistantPart, Message, ToolCallPart
    from nacre.storage import MediaRecord, SessionRecord, Store, TurnRecord
    from nacre.trajectory import CallNode


_DEFAULT_LIMIT = 20
_PAGE: Final = 500
_SECONDS_PER_DAY: Final = 86_400


def list_command(
    agent: Annotated[
        str | None, typer.Option("--agent", metavar="ID", help="Only sessions of this agent.")
    ] = None,
    limit: Annotated[
        int,
        typer.Option(
            "--limit", metavar="N", min=1, max=1000, help="The number of sessions to list."
        ),
    ] = _DEFAULT_LIMIT,
    config: ConfigOption = None,
    is_json: JsonOption = False,
) -> int:
    """List the sessions, the most recent first."""
    from nacre.cli.system_config import read_system_config

    _, system = read_system_config(config)

    from nacre.cli.output import count_text, time_text, write_table
    from nacre.cli.stored_records import read_stored
    from nacre.errors import StorageError

    async def read(store: Store) -> list[SessionRecord]:
        # One more, to know whether there are more.
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
        say(f"{count_text(len(shown), 'session')} shown; there are more, see --limit")
    elif not found:
        say('no sessions yet; start one with `nacre run "..."`')
    return printer.problem or ExitStatus.COMPLETED


def show_command(
    named: Annotated[
        str, typer.Argument(metavar="ID|KEY", help="The session.", show_default=False)
    ],
    turns: Annotated[
        int,
        typer.Option(
            "--turns", metavar="N", min=1, max=100_000, help="The number of last turns to show."
        ),
    ] = 50,
    config: ConfigOption = None,
    is_json: JsonOption = False,
) -> int:
    """Show the messages and tool calls of a session.

    Nested calls of a program are shown below it.
    """
    from nacre.cli.system_config import read_system_config

    _, system = read_system_config(config)

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
            where = "list them with `nacre sessions list`"
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


def delete_command(
    named: Annotated[
        list[str], typer.Argument(metavar="ID|KEY...", help="The sessions.", show_default=False)
    ],
    config: ConfigOption = None,
) -> int:
    """Delete sessions with their messages, events and approvals.

    Exit status: 0, or 1 if a session was not deleted because a turn of it runs.
    """
    from nacre.cli.system_config import read_system_config

    _, system = read_system_config(config)

    from nacre.cli.stored_records import find_session, session_names, unknown_name_problem

    async def find(store: Store) -> list[SessionRecord]:
        found: list[SessionRecord] = []
        for name in named:
            session = await find_session(store, name, agent_ids=system.agents.ids)
            if session is None:
                where = "nothing was deleted; list them with `nacre sessions list`"
                names = await session_names(store)
                raise unknown_name_problem("session", name, names, where=where)
            found.append(session)
        return found

    return _delete_sessions(system, find)


def prune_command(
    days: Annotated[
        int | None,
        typer.Option(
            "--older-than",
            metavar="DAYS",
            min=1,
            max=36_500,
            help="Delete sessions that were last used this many days ago, or longer. "
            "[default: storage.retentionDays]",
            show_default=False,
        ),
    ] = None,
    is_dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only list the sessions that would be deleted.")
    ] = False,
    config: ConfigOption = None,
) -> int:
    """Delete the sessions that were not used for a long time.

    Exit status: 0, or 1 if a session was not deleted because a turn of it runs.
    """
    from nacre.cli.system_config import read_system_config

    _, system = read_system_config(config)
    kept_days = days if days is not None else system.storage.retention_days
    if kept_days is None:
        raise UsageError(
            "there is no limit; give --older-than DAYS, or set one with "
            "`nacre config set storage.retentionDays 90`"
        )
    cutoff = time.time() - kept_days * _SECONDS_PER_DAY

    async def find(store: Store) -> list[SessionRecord]:
        found: list[SessionRecord] = []
        while page := await store.sessions(
            limit=_PAGE, unused_since=cutoff, before=found[-1].cursor if found else None
        ):
            found += page
        return found

    return _delete_sessions(system, find, is_dry_run=is_dry_run)


def _delete_sessions(
    system: SystemConfig,
    find: Callable[[Store], Awaitable[list[SessionRecord]]],
    *,
    is_dry_run: bool = False,
) -> int:
    """Delete the sessions that `find` returns, and print their ids."""
    from nacre.cli.stored_records import read_stored
    from nacre.errors import SessionError, StorageError

    printer, kept = Printer(), list[str]()

    async def work(store: Store) -> int:
        # Turns of killed processes do not run any more.
        await store.interrupt_open_turns()
        found = await find(store)
        for session in found:
            try:
                if not is_dry_run:
                    await store.delete_session(session.id)
                printer.write(f"{session.id}\n")
            except SessionError as error:
                kept.append(str(error))
        return len(found)

    try:
        count = read_stored(system, work)
    except StorageError as error:
        warn(str(error))
        return ExitStatus.FAILED
    for problem in kept:
        warn(problem)
    how = "would be deleted" if is_dry_run else "deleted"
    say(f"{count_text(count - len(kept), 'session')} {how}")
    return printer.problem or (ExitStatus.FAILED if kept else ExitStatus.COMPLETED)


def register(app: typer.Typer) -> None:
    group = typer.Typer(help="List, show and delete stored sessions.", no_args_is_help=True)
    group.command("list")(list_command)
    group.command("show")(show_command)
    group.command("delete")(delete_command)
    group.command("prune")(prune_command)
    app.add_typer(group, name="sessions")


@dataclass(frozen=True, kw_only=True, slots=True)
class WholeTurn:
    """A turn with its messages and calls."""

    record: TurnRecord
    messages: list[Message]
    """Only the prompt while the turn has not ended."""
    media: list[MediaRecord]
    calls: list[CallNode]


@dataclass(frozen=True, kw_only=True, slots=True)
class WholeSession:
    """A session and its last turns, oldest first."""

    session: SessionRecord
    turns: list[WholeTurn]
    earlier_turns: int
    """The number of turns that are left out."""


async def read_whole_session(store: Store, session: SessionRecord, *, limit: int) -> WholeSession:
    """Read the session with its last `limit` turns."""
    records = await store.turns(session.id, limit)
    messages: defaultdict[str, list[Message]] = defaultdict(list)
    run_ids = [record.run_id for record in records]
    for stored in await store.messages_of_turns(session.id, run_ids):
        messages[stored.run_id].append(stored.message)
    media = await store.media.of_runs(run_ids)
    turns: list[WholeTurn] = []
    for record in records:
        # A heartbeat has a prompt that nobody wrote.
        is_asked = record.prompt is not None and "heartbeat" not in record.data
        prompt = [record.prompt] if is_asked and record.prompt else []
        turns.append(
            WholeTurn(
                record=record,
                messages=messages[record.run_id] or prompt,
                media=[it for it in media if it.run_id == record.run_id],
                calls=project(await events_of_run(store, record.run_id)),
            )
        )
    earlier = max(0, session.turn_count - len(records))
    return WholeSession(session=session, turns=turns, earlier_turns=earlier)


def session_to_json(session: SessionRecord) -> JsonObject:
    return {
        "id": session.id,
        "agentId": session.agent_id,
        "key": session.key,
        "channel": session.channel,
        "sender": session.sender,
        "title": session.title,
        "createdAt": session.created,
        "updatedAt": session.updated,
        "turnCount": session.turn_count,
        "messageCount": session.message_count,
        "model": session.model,
        "queueMode": session.queue_mode,
    }


def whole_session_to_json(whole: WholeSession) -> JsonObject:
    return {
        **session_to_json(whole.session),
        "earlierTurns": whole.earlier_turns,
        "turns": [_turn_to_json(turn) for turn in whole.turns],
    }


def _turn_to_json(turn: WholeTurn) -> JsonObject:
    record = turn.record
    return {
        "runId": record.run_id,
        "status": record.status,
        "model": record.model,
        "surface": record.surface,
        "usage": record.usage.to_json(),
        "error": record.error,
        "startedAt": record.started,
        "endedAt": record.ended,
        "data": record.data,
        "messages": [message_to_json(message) for message in turn.messages],
        "media": [record.to_json() for record in turn.media],
        "calls": [call.to_json() for call in turn.calls],
    }


_MAX_RESULT_CHARACTERS: Final = 200
_INDENT: Final = "           "


def session_lines(whole: WholeSession) -> Iterator[str]:
    """The session as lines of text."""
    session = whole.session
    key = f", key {shorten(session.key)}" if session.key else ""
    turns = count_text(session.turn_count, "turn")
    used = time_text(session.updated)
    yield f"{session.id}: agent {shorten(session.agent_id)}{key}, {turns}, last used {used}"
    if session.title:
        yield shorten(session.title)
    if whole.earlier_turns:
        yield f"({count_text(whole.earlier_turns, 'earlier turn')} left out; see --turns)"
    for turn in whole.turns:
        yield ""
        yield from _turn_lines(turn)


def _turn_lines(turn: WholeTurn) -> Iterator[str]:
    record = turn.record
    tokens = count_text(record.usage.total_tokens, "token")
    took = "" if record.ended is None else duration_text((record.ended - record.started) * 1000)
    facts = [record.status, took, tokens, shorten(record.model), time_text(record.started)]
    yield f"{record.run_id}: {', '.join(filter(None, facts))}"
    calls = _CallsById(turn.calls)
    for message in turn.messages:
        yield from _message_lines(message, calls)
    for file in turn.media:
        about = f"{file.type}, {size_text(file.size)}"
        yield _speaker_text("file", f"{shorten(file.name)} ({about}), {file.id}")
    match record.data.get("heartbeat"):
        case {"status": str(status)} as beat:
            summary = beat.get("summary")
            said = f": {shorten(summary)}" if isinstance(summary, str) else ""
            yield _speaker_text("nacre", f"heartbeat, {status}{said}")
        case _:
            pass
    if isinstance(reply := record.data.get("reply"), str):
        # A chat command has no messages but its prompt.
        yield _speaker_text("nacre", reply)
    if isinstance(note := record.data.get("note"), str):
        yield _speaker_text("nacre", note)
    if record.error:
        yield _speaker_text("error", shorten(record.error))


class _CallsById:
    """The calls of a turn. Providers may use one id for several calls, one after the other."""

    def __init__(self, calls: list[CallNode]) -> None:
        self._calls = list(calls)

    def take(self, call_id: str) -> CallNode | None:
        for call in self._calls:
            if call.call_id == call_id:
                self._calls.remove(call)
                return call
        return None


def _message_lines(message: Message, calls: _CallsById) -> Iterator[str]:
    match message:
        case UserMessage():
            images = sum(isinstance(part, ImagePart) for part in message.parts)
            text = message.text + (f"\n({count_text(images, 'image')})" if images else "")
            yield _speaker_text("you", text)
        case SystemMessage():
            yield _speaker_text("system", message.text)
        case ToolMessage():
            size = size_text(len(message.content.encode(errors="replace")))
            text = shorten(message.content, max_characters=_MAX_RESULT_CHARACTERS)
            images = f", {count_text(len(message.images), 'image')}" if message.images else ""
            shown = f"{text} ({size}{images})"
            yield _speaker_text("failed" if message.is_error else "result", shown)
        case AssistantMessage():
            for part in message.parts:
                yield from _part_lines(part, calls)


def _part_lines(part: AssistantPart, calls: _CallsById) -> Iterator[str]:
    match part:
        case TextPart():
            if part.text.strip():
                yield _speaker_text("agent", part.text)
        case ThinkingPart():
            if part.text.strip():
                yield _speaker_text("thought", shorten(part.text))
        case _:
            yield from _call_lines(part, calls.take(part.call_id))


def _call_lines(call: ToolCallPart, node: CallNode | None) -> Iterator[str]:
    try:
        given = decode_json(call.arguments.encode(errors="replace"))
    except NotJsonError:
        given = call.arguments
    shown = program_of(given) or input_text(given)
    yield _speaker_text("calls", f"{shorten(call.name)} {shown}".rstrip())
    if node is not None:
        for line in tree_lines(call_branches(node)):
            yield f"{_INDENT}{line}"


def _speaker_text(who: str, text: str) -> str:
    """The text behind its speaker, with further lines indented."""
    return f"  {who:<8} {text.strip().replace(chr(10), chr(10) + _INDENT)}"
