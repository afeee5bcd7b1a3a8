"""SQL statements and column values of a store; each function runs in the caller's transaction."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import and_, insert, select, update

from nacre.errors import SessionError, StorageError
from nacre.json_types import NotJsonError, decode_json, encode_json
from nacre.messages import (
    MessageFormatError,
    SystemMessage,
    Usage,
    message_from_json,
    message_to_json,
)
from nacre.storage.database import now
from nacre.storage.records import ApprovalRecord, SessionRecord, StoredMessage, TurnRecord
from nacre.storage.schema import approvals, compactions, events, messages, sessions, turns
from nacre.telemetry import Redaction

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import ColumnElement
    from sqlalchemy.engine import Connection, RowMapping

    from nacre.json_types import JsonObject, JsonValue
    from nacre.messages import Message
    from nacre.storage.database import Database
    from nacre.storage.records import Compaction

MessageRows = list[tuple[int, str, str]]
"""Sequence, run id and content of messages."""

_REDACTION: Final = Redaction()
_APPROVAL_JSON_COLUMNS: Final = ("input", "answer")
_WITHDRAWN: Final = '{"answer":"withdrawn"}'
# The process was killed before it could write why the turn ended.
_INTERRUPTED: Final = "the process ended in the middle of the turn"

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


def has_key(agent_id: str, key: str) -> ColumnElement[bool]:
    return and_(sessions.c.agent_id == agent_id, sessions.c.key == key)


def find_session(connection: Connection, condition: ColumnElement[bool]) -> SessionRecord | None:
    row = connection.execute(select(sessions).where(condition)).mappings().first()
    return None if row is None else SessionRecord(**row)


def parse_cursor(text: str) -> tuple[float, str]:
    """Parse a `SessionRecord.cursor`; raises SessionError (`invalid`)."""
    updated, _, session_id = text.partition("~")
    try:
        if not is_storable(session_id):
            raise ValueError
        return float(updated), session_id
    except ValueError:
        problem = f"{text[:80]!r} is not a cursor; give the `cursor` of a listed session"
        raise SessionError(problem, code="invalid") from None


def session_not_found(session_id: str) -> SessionError:
    return SessionError(f"there is no session {session_id!r}", code="not_found")


# Turns.


def count_turn(connection: Connection, session_id: str) -> int:
    """Return the number of the session's next turn, from 1. Locks the session's row."""
    statement = (
        update(sessions)
        .where(sessions.c.id == session_id)
        .values(turn_count=sessions.c.turn_count + 1, updated=now())
        .returning(sessions.c.turn_count)
    )
    number = connection.execute(statement).scalar()
    if number is None:
        raise session_not_found(session_id)
    return number


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


def mark_turn_ended(
    connection: Connection, run_id: str, ending: Mapping[str, object]
) -> str | None:
    """Return the session's id; None if an earlier attempt with the same ending was committed.

    An interrupted turn can still end: its process may only have lost the database for a while.
    """
    statement = (
        update(turns)
        .where(turns.c.run_id == run_id, turns.c.ended.is_(None))
        .values(ending)
        .returning(turns.c.session_id)
    )
    if (session_id := connection.execute(statement).scalar()) is not None:
        return session_id
    query = select(turns.c.status, turns.c.ended).where(turns.c.run_id == run_id)
    if (row := connection.execute(query).first()) is None:
        raise run_not_found(run_id)
    if (row.status, row.ended) == (ending["status"], ending["ended"]):
        return None
    raise SessionError(f"the run {run_id!r} has ended already, as `{row.status}`", code="ended")


def interrupt_turns(connection: Connection, *, alive_owners: set[str]) -> int:
    """Mark the running turns of all other owners as interrupted, and withdraw their approvals."""
    statement = (
        update(turns)
        .where(turns.c.status == "running", turns.c.owner.not_in(alive_owners))
        .values(status="interrupted")
    )
    count = connection.execute(statement).rowcount
    running = select(turns.c.run_id).where(turns.c.status == "running")
    connection.execute(
        update(approvals)
        .where(approvals.c.state == "open", approvals.c.run_id.not_in(running))
        .values(state="given_up", answer=_WITHDRAWN, answered=now())
    )
    return count


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


# Messages and compactions.


def add_messages(
    connection: Connection, session_id: str, run_id: str, contents: Sequence[str]
) -> int:
    """Append messages; return how many the session has then. Locks the session's row."""
    statement = (
        update(sessions)
        .where(sessions.c.id == session_id)
        .values(message_count=sessions.c.message_count + len(contents), updated=now())
        .returning(sessions.c.message_count)
    )
    message_count: int = connection.execute(statement).scalar_one()
    first = message_count - len(contents)
    if contents:
        connection.execute(
            insert(messages),
            [
                {"session_id": session_id, "sequence": first + i, "run_id": run_id, "content": it}
                for i, it in enumerate(contents)
            ],
        )
    return message_count


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
    statement = database.insert(compactions).values(row)
    connection.execute(
        statement.on_conflict_do_update(
            index_elements=["session_id", "up_to_sequence"],
            set_={"summary": row["summary"], "created": row["created"]},
        )
    )


def find_summary(connection: Connection, session_id: str) -> StoredMessage | None:
    """Return the newest summary of a session as a message."""
    query = (
        select(compactions.c.up_to_sequence, compactions.c.summary)
        .where(compactions.c.session_id == session_id)
        .order_by(compactions.c.up_to_sequence.desc())
        .limit(1)
    )
    row = connection.execute(query).first()
    if row is None:
        return None
    message = SystemMessage(text=row.summary)
    return StoredMessage(sequence=row.up_to_sequence, run_id="", message=message, is_summary=True)


def find_messages(
    connection: Connection,
    session_id: str,
    *,
    after: int = -1,
    run_ids: Sequence[str] | None = None,
) -> MessageRows:
    """Return the messages after a sequence number, of these runs if given, in order."""
    query = (
        select(messages.c.sequence, messages.c.run_id, messages.c.content)
        .where(messages.c.session_id == session_id, messages.c.sequence > after)
        .order_by(messages.c.sequence)
    )
    if run_ids is not None:
        query = query.where(messages.c.run_id.in_(run_ids))
    return [(row.sequence, row.run_id, row.content) for row in connection.execute(query)]


# Events and approvals.


def add_events(
    connection: Connection, run_id: str, session_id: str, contents: Sequence[str]
) -> None:
    rows = [{"run_id": run_id, "session_id": session_id, "event": text} for text in contents]
    if rows:
        connection.execute(insert(events), rows)


def approval_to_row(record: ApprovalRecord) -> dict[str, object]:
    """Return the columns of an approval, with secrets redacted."""
    row: dict[str, object] = {}
    for column in fields(record):
        # Read from the session.
        if column.name == "agent_id":
            continue
        value: object = getattr(record, column.name)
        if column.name in _APPROVAL_JSON_COLUMNS:
            value = dump_json(_REDACTION.value(value), f"the approval {record.id}")
        row[column.name] = clean_text(value) if isinstance(value, str) else value
    return row


def approval_from_row(row: RowMapping) -> ApprovalRecord:
    name = f"the approval {row['id']!r}"
    columns: dict[str, Any] = dict(row)
    for column in _APPROVAL_JSON_COLUMNS:
        columns[column] = load_json_object(columns[column], name)
    return ApprovalRecord(**columns)
