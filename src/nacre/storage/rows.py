"""SQL statements and column values of a store; each function runs in the caller's transaction."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import anyio.to_thread
from sqlalchemy import bindparam, delete, insert, select, update

from nacre.errors import SessionError, StorageError
from nacre.json_types import NotJsonError, decode_json, encode_json
from nacre.messages import (
    AssistantMessage,
    MessageFormatError,
    SystemMessage,
    Usage,
    UserMessage,
    message_from_json,
    message_to_json,
)
from nacre.storage.database import now
from nacre.storage.records import (
    BegunTurn,
    MessageRows,
    SessionRecord,
    StoredMessage,
    ThreadRecord,
    TurnRecord,
    TurnState,
)
from nacre.storage.schema import (
    approvals,
    cells,
    compactions,
    events,
    inbox,
    leases,
    messages,
    sessions,
    threads,
    turn_states,
    turns,
    values,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import ColumnElement
    from sqlalchemy.engine import Connection, RowMapping

    from nacre.json_types import JsonObject, JsonValue
    from nacre.messages import Message
    from nacre.storage.database import Database
    from nacre.storage.records import Compaction

_WITHDRAWN: Final = '{"answer":"withdrawn"}'
# The process was killed before it could write why the turn ended.
_INTERRUPTED: Final = "the process ended in the middle of the turn"

# The statements of every turn. Building one takes longer than executing it.
_SESSION_BY_ID: Final = select(sessions).where(sessions.c.id == bindparam("of_id"))
_SESSION_BY_KEY: Final = select(sessions).where(
    sessions.c.agent_id == bindparam("of_agent"), sessions.c.key == bindparam("of_key")
)
_COUNT_TURN: Final = (
    update(sessions)
    .where(sessions.c.id == bindparam("of_id"))
    .values(turn_count=sessions.c.turn_count + 1, updated=bindparam("new_time"))
    .returning(*sessions.columns)
)
_SET_TITLE: Final = (
    update(sessions).where(sessions.c.id == bindparam("of_id")).values(title=bindparam("new_title"))
)
_COUNT_MESSAGES: Final = (
    update(sessions)
    .where(sessions.c.id == bindparam("of_id"))
    .values(
        message_count=sessions.c.message_count + bindparam("new_count"),
        updated=bindparam("new_time"),
    )
    .returning(sessions.c.message_count)
)
_END_COLUMNS: Final = ("status", "input_tokens", "output_tokens", "cached_tokens", "error", "data")
_END_TURN: Final = (
    update(turns)
    .where(turns.c.run_id == bindparam("of_run"), turns.c.ended.is_(None))
    .values({name: bindparam(f"new_{name}") for name in (*_END_COLUMNS, "ended")})
    .returning(turns.c.session_id)
)
_KNOWN_IDENTITIES: Final = select(messages.c.identity).where(
    messages.c.session_id == bindparam("of_session"),
    messages.c.identity.in_(bindparam("identities", expanding=True)),
)
_LAST_RUN: Final = (
    select(messages.c.run_id)
    .where(messages.c.session_id == bindparam("of_session"))
    .order_by(messages.c.sequence.desc())
    .limit(1)
)
_LAST_SUMMARY: Final = (
    select(compactions.c.up_to_sequence, compactions.c.summary)
    .where(compactions.c.session_id == bindparam("of_session"))
    .order_by(compactions.c.up_to_sequence.desc())
    .limit(1)
)
_MESSAGES_AFTER: Final = (
    select(messages.c.sequence, messages.c.run_id, messages.c.content)
    .where(
        messages.c.session_id == bindparam("of_session"),
        messages.c.sequence > bindparam("after_sequence"),
    )
    .order_by(messages.c.sequence)
)
_THREAD: Final = select(threads).where(threads.c.session_id == bindparam("of_session"))
_ADD_MESSAGES: Final = insert(messages)
_DELETE_CELLS: Final = delete(cells).where(cells.c.run_id == bindparam("of_run"))
_DELETE_TURN_STATE: Final = delete(turn_states).where(turn_states.c.run_id == bindparam("of_run"))
_ADD_EVENTS: Final = insert(events)

# Decoding this much JSON takes milliseconds, so it happens in a thread.
_LARGE_CHARACTERS: Final = 200_000
# PostgreSQL indexes at most about 2,700 bytes per row; an agent id and a key share one index.
MAX_ID_BYTES: Final = 512
MAX_KEY_BYTES: Final = 1024

_MAX_SHOWN_CHARACTERS: Final = 60


# Column values.


def dump_json(value: JsonValue, what: str) -> str:
    """Encode a value as JSON; raises StorageError, which rolls the transaction back."""
    try:
        return encode_json(value).decode()
    except NotJsonError as error:
        raise StorageError(f"{what} cannot be stored: {error}") from error


def load_json_object(text: str, row: str) -> JsonObject:
    """Decode a JSON object; `row` is its name for messages, such as "the turn 'run_1'"."""
    value = _decode(text, row)
    if not isinstance(value, dict):
        raise StorageError(f"{row} cannot be read: it is not a JSON object")
    return value


def dump_message(message: Message, what: str) -> str:
    return dump_json(message_to_json(message), what)


def load_message(text: str, row: str) -> Message:
    try:
        return message_from_json(_decode(text, row))
    except MessageFormatError as error:
        raise StorageError(f"{row} cannot be read: it {error}") from error


def _decode(text: str, row: str) -> JsonValue:
    try:
        return decode_json(text.encode())
    except NotJsonError as error:
        raise StorageError(f"{row} cannot be read: {error}") from error


def is_storable(text: str) -> bool:
    """Whether a row can have this id or key; a query with an invalid one may fail."""
    return not _problem_of(text)


def check_id(text: str, what: str) -> str:
    """Return a valid id unchanged; raises SessionError (`invalid`)."""
    if not text:
        raise SessionError(f"{what} is empty", code="invalid")
    return check_key(text, what, max_bytes=MAX_ID_BYTES)


def check_key(text: str, what: str, *, max_bytes: int = MAX_KEY_BYTES) -> str:
    """Return a valid key unchanged; unlike an id, it may be empty."""
    if problem := _problem_of(text):
        raise SessionError(f"{what} {problem}: {text[:_MAX_SHOWN_CHARACTERS]!r}", code="invalid")
    if (length := len(text.encode())) > max_bytes:
        raise SessionError(f"{what} has {length} bytes; the limit is {max_bytes}", code="invalid")
    return text


def clean_text(text: str) -> str:
    """Replace characters that databases do not accept with U+FFFD."""
    halves = text.replace("\0", "\ufffd").encode("utf-16-le", "surrogatepass")
    return halves.decode("utf-16-le", "replace")


def _problem_of(text: str) -> str:
    if "\0" in text:
        return "contains a NUL character"
    if any("\ud800" <= character <= "\udfff" for character in text):
        return "contains an unpaired surrogate"
    return ""


# Sessions.


def find_session(connection: Connection, session_id: str) -> SessionRecord | None:
    row = connection.execute(_SESSION_BY_ID, {"of_id": session_id}).mappings().first()
    return None if row is None else SessionRecord(**row)


def find_session_by_key(connection: Connection, agent_id: str, key: str) -> SessionRecord | None:
    given = {"of_agent": agent_id, "of_key": key}
    row = connection.execute(_SESSION_BY_KEY, given).mappings().first()
    return None if row is None else SessionRecord(**row)


def change_session(
    connection: Connection, session_id: str, values: Mapping[str, str]
) -> SessionRecord:
    """Change columns of a session; returns it as it is then. Locks its row."""
    # A statement without values would not be valid, nor lock the row.
    statement = (
        update(sessions)
        .where(sessions.c.id == session_id)
        .values({"id": session_id, **values})
        .returning(*sessions.columns)
    )
    row = connection.execute(statement).mappings().first()
    if row is None:
        raise session_not_found(session_id)
    return SessionRecord(**row)


def session_not_found(session_id: str) -> SessionError:
    return SessionError(f"there is no session {session_id!r}", code="not_found")


def count_turn(
    connection: Connection, session_id: str, *, title: str = ""
) -> tuple[SessionRecord, str]:
    """Return the session with its new turn, whose number is `turn_count`. Locks the session's row.

    A session without a title gets this one; then it is returned too, otherwise an empty text.
    """
    given = {"of_id": session_id, "new_time": now()}
    row = connection.execute(_COUNT_TURN, given).mappings().first()
    if row is None:
        raise session_not_found(session_id)
    session = SessionRecord(**row)
    if session.title or not title:
        return session, ""
    connection.execute(_SET_TITLE, {"of_id": session_id, "new_title": title})
    return replace(session, title=title), title


def add_turn(database: Database, connection: Connection, row: Mapping[str, object]) -> None:
    """Insert a turn; raises SessionError (`invalid`) if its run id was used before."""
    if not connection.execute(database.insert_or_ignore(turns), row).rowcount:
        raise SessionError(f"there is a run {row['run_id']!r} already", code="invalid")


def has_begun(connection: Connection, run_id: str, row: Mapping[str, object]) -> bool:
    """Whether an earlier attempt to begin this turn was committed."""
    query = select(turns.c.owner, turns.c.started).where(turns.c.run_id == run_id)
    found = connection.execute(query).first()
    return found is not None and (found.owner, found.started) == (row["owner"], row["started"])


def refuse_if_busy(connection: Connection, session_id: str) -> None:
    query = select(turns.c.run_id).where(
        turns.c.session_id == session_id, turns.c.status == "running"
    )
    if (other := connection.execute(query.limit(1)).scalar()) is not None:
        raise SessionError(
            f"the session {session_id!r} is busy: its run {other!r} has not ended", code="busy"
        )


def dump_usage(usage: Usage) -> dict[str, object]:
    """Return the columns of the tokens of a turn."""
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cached_tokens": usage.cached_tokens,
    }


def mark_turn_ended(
    connection: Connection, run_id: str, ending: Mapping[str, object]
) -> str | None:
    """Return the session's id; None if an earlier attempt with the same ending was committed.
    `ending` has all columns of an end.

    An interrupted turn can still end: its process may only have lost the database for a while.
    """
    given = {f"new_{name}": value for name, value in ending.items()}
    session_id = connection.execute(_END_TURN, {"of_run": run_id, **given}).scalar()
    if session_id is not None:
        return session_id
    query = select(turns.c.status, turns.c.ended).where(turns.c.run_id == run_id)
    if (row := connection.execute(query).first()) is None:
        raise run_not_found(run_id)
    if (row.status, row.ended) == (ending["status"], ending["ended"]):
        return None
    raise SessionError(f"the run {run_id!r} has ended already, as `{row.status}`", code="ended")


def interrupt_turns(connection: Connection, *, alive_owners: set[str]) -> int:
    """Mark the running turns of all other owners as interrupted, and withdraw their approvals.

    A turn that can be continued stays as it is.
    """
    statement = (
        update(turns)
        .where(
            turns.c.status == "running",
            turns.c.owner.not_in(alive_owners),
            turns.c.run_id.not_in(select(turn_states.c.run_id)),
            # A gateway takes these sessions over.
            turns.c.session_id.not_in(select(leases.c.session_id)),
        )
        .values(status="interrupted")
    )
    count = connection.execute(statement).rowcount
    interrupted = select(turns.c.run_id).where(turns.c.status == "interrupted")
    connection.execute(delete(cells).where(cells.c.run_id.in_(interrupted)))
    running = select(turns.c.run_id).where(turns.c.status == "running")
    connection.execute(
        update(approvals)
        .where(approvals.c.state == "open", approvals.c.run_id.not_in(running))
        .values(state="given_up", answer=_WITHDRAWN, answered=now())
    )
    return count


def end_items(connection: Connection, numbers: Sequence[int], *, run_id: str = "") -> None:
    """Delete messages from the inbox that a turn has taken, and end the aborts and answers for a
    run that has ended.

    What somebody may still ask about stays for a day, without its content: which turn of another
    message has taken a message, and what became of an answer.
    """
    is_taken = inbox.c.number.in_(numbers)
    is_over = is_taken & (inbox.c.run_id == inbox.c.key)
    is_kept = is_taken & (inbox.c.run_id != inbox.c.key)
    if run_id:
        is_answer = (inbox.c.run_id == run_id) & (inbox.c.kind != "message")
        # The result has the input of a call.
        is_over |= is_answer & (inbox.c.kind == "approval_input")
        is_kept |= is_answer & (inbox.c.kind != "approval_input")
    connection.execute(delete(inbox).where(is_over))
    connection.execute(update(inbox).where(is_kept).values(state="done", payload="{}"))


def delete_cells(connection: Connection, run_id: str) -> None:
    """Delete the suspended cells of a turn that has ended, and what it stored to continue."""
    connection.execute(_DELETE_CELLS, {"of_run": run_id})
    connection.execute(_DELETE_TURN_STATE, {"of_run": run_id})


def withdraw_approvals(connection: Connection, session_id: str, run_id: str) -> None:
    """Withdraw the open approvals of a turn that nobody continues."""
    connection.execute(
        update(approvals)
        .where(
            approvals.c.session_id == session_id,
            approvals.c.run_id == run_id,
            approvals.c.state == "open",
        )
        .values(state="given_up", answer=_WITHDRAWN, answered=now())
    )


def load_damaged(text: str, row: str) -> JsonObject:
    """Decode a JSON object; empty if it is damaged, so that one row does not hold up the others."""
    try:
        return load_json_object(text, row)
    except StorageError:
        return {}


def turn_state_from_row(row: RowMapping) -> TurnState:
    """Without data if it is damaged: the turn is interrupted. `age` is how old the state is."""
    return TurnState(
        run_id=row["run_id"],
        session_id=row["session_id"],
        version=row["version"],
        data=load_damaged(row["data"], f"the turn {row['run_id']!r}"),
        age_seconds=max(0.0, row["age"]),
    )


def turn_from_row(row: RowMapping) -> TurnRecord:
    name = f"the turn {row['run_id']!r}"
    return TurnRecord(
        run_id=row["run_id"],
        session_id=row["session_id"],
        status=row["status"],
        prompt=load_message(row["prompt"], name) if row["prompt"] else None,
        model=row["model"],
        surface=row["surface"],
        usage=Usage(
            input_tokens=row["input_tokens"],
            output_tokens=row["output_tokens"],
            cached_tokens=row["cached_tokens"],
        ),
        error=row["error"] or (_INTERRUPTED if row["status"] == "interrupted" else ""),
        data=load_json_object(row["data"], name),
        started=row["started"],
        ended=row["ended"],
    )


def run_not_found(run_id: str) -> SessionError:
    return SessionError(f"there is no run {run_id!r}", code="not_found")


def describe_begun(
    connection: Connection, session: SessionRecord, *, loads_messages: bool
) -> BegunTurn:
    """Return what a turn of the session starts with."""
    summary, found = None, MessageRows()
    if loads_messages:
        summary, found = find_model_messages(connection, session.id)
    last_run_id = found[-1][1] if found else find_last_run(connection, session.id)
    return BegunTurn(
        session=session,
        thread=find_thread(connection, session.id),
        summary=summary,
        message_rows=found,
        last_run_id=last_run_id,
    )


# Threads.


def find_thread(connection: Connection, session_id: str) -> ThreadRecord | None:
    row = connection.execute(_THREAD, {"of_session": session_id}).mappings().first()
    return None if row is None else thread_from_row(row)


def put_thread(
    database: Database, connection: Connection, record: ThreadRecord, *, machine: str
) -> None:
    """Store the thread of a session, in place of an earlier one. `machine` has its files."""
    row = {
        "session_id": record.session_id,
        "thread_id": clean_text(record.thread_id),
        "data": dump_json(record.data, f"the thread of {record.session_id}"),
        "created": record.created,
        "updated": record.updated,
        "machine": machine,
    }
    connection.execute(database.upsert(threads), row)


def thread_from_row(row: RowMapping) -> ThreadRecord:
    return ThreadRecord(
        session_id=row["session_id"],
        thread_id=row["thread_id"],
        data=load_json_object(row["data"], f"the thread of {row['session_id']!r}"),
        created=row["created"],
        updated=row["updated"],
        machine=row["machine"],
    )


# Messages and compactions.


def add_messages(
    connection: Connection, session_id: str, run_id: str, added: Sequence[Message]
) -> tuple[int, list[Message]]:
    """Append messages; return how many the session has then, and those that are new.

    A message whose identity the session has already is left out. Locks the session's row.
    """
    # First, because it locks the row: nobody else can add the same message in between.
    message_count = _count_added(connection, session_id, len(added))
    identities = [identity for it in added if (identity := _find_identity(it))]
    known: set[str] = set()
    if identities:
        given = {"of_session": session_id, "identities": identities}
        known = set(connection.execute(_KNOWN_IDENTITIES, given).scalars())
    new = [it for it in added if _find_identity(it) not in known] if known else [*added]
    if len(new) < len(added):
        message_count = _count_added(connection, session_id, len(new) - len(added))
    if new:
        connection.execute(
            _ADD_MESSAGES,
            [
                {
                    "session_id": session_id,
                    "sequence": message_count - len(new) + number,
                    "run_id": run_id,
                    "content": dump_message(it, f"message {number} of {run_id}"),
                    "identity": _find_identity(it),
                }
                for number, it in enumerate(new)
            ],
        )
    return message_count, new


def _count_added(connection: Connection, session_id: str, added: int) -> int:
    given = {"of_id": session_id, "new_time": now(), "new_count": added}
    return connection.execute(_COUNT_MESSAGES, given).scalar_one()


def _find_identity(message: Message) -> str:
    identity = message.identity if isinstance(message, UserMessage | AssistantMessage) else ""
    return check_key(identity, "the identity of a message", max_bytes=MAX_ID_BYTES)


def find_interrupted(connection: Connection, run_id: str) -> str | None:
    """Return the session of a turn that was interrupted; None if it was not."""
    query = select(turns.c.session_id).where(
        turns.c.run_id == run_id, turns.c.status == "interrupted"
    )
    return connection.execute(query).scalar()


def count_messages(connection: Connection, session_id: str) -> int:
    query = select(sessions.c.message_count).where(sessions.c.id == session_id)
    message_count = connection.execute(query).scalar()
    if message_count is None:
        raise session_not_found(session_id)
    return message_count


def put_compaction(
    database: Database,
    connection: Connection,
    session_id: str,
    compaction: Compaction,
    *,
    message_count: int,
) -> None:
    """Store the summary of the messages up to a sequence number, instead of an earlier one."""
    if not 0 <= compaction.up_to_sequence < message_count:
        raise SessionError(
            f"the session {session_id!r} cannot be summarized up to message "
            f"{compaction.up_to_sequence}; it has {message_count} messages, counted from 0",
            code="invalid",
        )
    row = {
        "session_id": session_id,
        "up_to_sequence": compaction.up_to_sequence,
        "summary": clean_text(compaction.summary),
        "created": now(),
    }
    connection.execute(database.upsert(compactions), row)


def find_summary(connection: Connection, session_id: str) -> StoredMessage | None:
    """Return the newest summary of a session as a message."""
    row = connection.execute(_LAST_SUMMARY, {"of_session": session_id}).first()
    if row is None:
        return None
    message = SystemMessage(text=row.summary)
    return StoredMessage(sequence=row.up_to_sequence, run_id="", message=message, is_summary=True)


def find_last_run(connection: Connection, session_id: str) -> str:
    """Return the run of the last message of a session; empty if there is none."""
    return connection.execute(_LAST_RUN, {"of_session": session_id}).scalar() or ""


def find_model_messages(
    connection: Connection, session_id: str
) -> tuple[StoredMessage | None, MessageRows]:
    """Return the newest summary of a session, and the messages after it."""
    summary = find_summary(connection, session_id)
    after = -1 if summary is None else summary.sequence
    return summary, find_messages(connection, session_id, after=after)


def find_messages(
    connection: Connection,
    session_id: str,
    *,
    after: int = -1,
    run_ids: Sequence[str] | None = None,
    limit: int | None = None,
) -> MessageRows:
    """Return the messages after a sequence number, of these runs if given, in order."""
    query = _MESSAGES_AFTER if limit is None else _MESSAGES_AFTER.limit(limit)
    if run_ids is not None:
        query = query.where(messages.c.run_id.in_(run_ids))
    found = connection.execute(query, {"of_session": session_id, "after_sequence": after})
    return [(row.sequence, row.run_id, row.content) for row in found]


async def load_messages(session_id: str, found: MessageRows) -> list[StoredMessage]:
    """Decode the messages that `find_messages` has returned."""

    def load() -> list[StoredMessage]:
        return [
            StoredMessage(
                sequence=sequence,
                run_id=run_id,
                message=load_message(content, f"the message {sequence} of session {session_id!r}"),
            )
            for sequence, run_id, content in found
        ]

    if sum(len(content) for _, _, content in found) < _LARGE_CHARACTERS:
        return load()
    return await anyio.to_thread.run_sync(load)


# Events.


def dump_events(run_id: str, events: Sequence[JsonObject]) -> list[str]:
    return [dump_json(event, f"an event of {run_id}") for event in events]


def add_events(
    connection: Connection, run_id: str, session_id: str, contents: Sequence[str]
) -> None:
    rows = [{"run_id": run_id, "session_id": session_id, "event": text} for text in contents]
    if rows:
        connection.execute(_ADD_EVENTS, rows)


# Values that expire.


def find_value(
    connection: Connection, kind: str, key: str, time: ColumnElement[float]
) -> JsonObject | None:
    """Return the value if it has not expired at that time."""
    query = select(values.c.value).where(
        values.c.kind == kind, values.c.key == key, values.c.expires > time
    )
    found = connection.execute(query).scalar()
    return None if found is None else load_json_object(found, f"the value of {kind}")


def value_to_row(
    kind: str, key: str, value: JsonObject, expires: ColumnElement[float]
) -> dict[str, object]:
    return {
        "kind": kind,
        "key": check_key(key, f"the key of {kind}"),
        "value": dump_json(value, f"the value of {kind}"),
        "expires": expires,
    }
