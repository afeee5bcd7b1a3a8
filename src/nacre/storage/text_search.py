"""Full-text search over the messages and titles of sessions.

Texts are split into words here, so that SQLite (FTS5) and PostgreSQL (tsvector) find the same. A
query is never parsed by the database: it is a list of words, and all of them must occur, each at
least as the beginning of a word.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from sqlalchemy import text as sql

from nacre.errors import SessionError
from nacre.json_types import NotJsonError, decode_json
from nacre.messages import (
    AssistantMessage,
    MessageFormatError,
    ToolMessage,
    UserMessage,
    message_from_json,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sqlalchemy.engine import Connection

    from nacre.messages import Message
    from nacre.storage.records import SessionRecord

SearchRole = Literal["title", "user", "assistant", "tool"]

# Of each message, this many characters are indexed. Results of tools are long and seldom searched.
_MAX_CHARACTERS: Final = 16_384
_MAX_TOOL_CHARACTERS: Final = 4_096
_MAX_WORD: Final = 64
_MAX_QUERY_WORDS: Final = 16
_BACKFILL_ROWS: Final = 500
_TITLE_SEQUENCE: Final = -1

# Chinese and Japanese have no spaces, so each of their characters is a word.
_IDEOGRAPHS: Final = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_WORD: Final = re.compile(rf"[{_IDEOGRAPHS}]|(?:(?![{_IDEOGRAPHS}_])[\w\u0300-\u036f])+")
_SNIPPET_BEFORE: Final = 60
_SNIPPET_CHARACTERS: Final = 240


@dataclass(frozen=True, kw_only=True, slots=True)
class SnippetPart:
    """A part of the text around a match."""

    text: str
    is_match: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchHit:
    """A message or a title that has all words of the query."""

    session_id: str
    title: str
    run_id: str
    """Empty for a title."""
    sequence: int
    """The position of the message in its session; -1 for a title."""
    role: SearchRole
    time: float
    snippet: tuple[SnippetPart, ...]
    cursor: str
    """The cursor for `Store.search(before=...)`, to get the hits after this one."""


# Words, queries and snippets.


def split_words(text: str) -> list[str]:
    """The words of a text without case and accents, in order."""
    return [word for _, _, word in _iterate_words(text)]


def _iterate_words(text: str) -> Iterator[tuple[int, int, str]]:
    for match in _WORD.finditer(text):
        if word := _normalize(match.group()[:_MAX_WORD]):
            yield match.start(), match.end(), word


def _normalize(word: str) -> str:
    if word.isascii():
        return word.lower()
    parts = unicodedata.normalize("NFKD", word.casefold())
    return "".join(part for part in parts if part.isalnum())


def make_snippet(text: str, words: Sequence[str]) -> tuple[SnippetPart, ...]:
    """The text around the first match, in parts, with each match marked."""
    starts = tuple(words)
    first: int | None = None
    matches: list[tuple[int, int]] = []
    for start, end, word in _iterate_words(text):
        if first is not None and start > first + _SNIPPET_CHARACTERS:
            break
        if word.startswith(starts):
            first = start if first is None else first
            matches.append((start, end))
    begin = max(0, (first or 0) - _SNIPPET_BEFORE)
    end = min(len(text), begin + _SNIPPET_CHARACTERS)
    parts: list[SnippetPart] = []
    position = begin
    for start, stop in matches:
        if start >= end:
            break
        if position < start:
            parts.append(SnippetPart(text=text[position:start], is_match=False))
        parts.append(SnippetPart(text=text[start : min(stop, end)], is_match=True))
        position = min(stop, end)
    if position < end:
        parts.append(SnippetPart(text=text[position:end], is_match=False))
    if begin > 0:
        parts.insert(0, SnippetPart(text="…", is_match=False))
    if end < len(text):
        parts.append(SnippetPart(text="…", is_match=False))
    return tuple(parts)


def searchable_text(message: Message) -> tuple[SearchRole, str] | None:
    """The text of a message for the index; None for system messages."""
    match message:
        case UserMessage():
            return "user", message.text[:_MAX_CHARACTERS]
        case AssistantMessage():
            return "assistant", message.text[:_MAX_CHARACTERS]
        case ToolMessage():
            return "tool", message.content[:_MAX_TOOL_CHARACTERS]
        case _:
            return None


# The index. Each function runs in the caller's transaction.

_INSERT: Final = sql(
    "INSERT INTO nacre_search (session_id, run_id, sequence, role, time, text, words) "
    "VALUES (:session_id, :run_id, :sequence, :role, :time, :text, :words)"
)
_TABLE: Final = """
    CREATE TABLE nacre_search (
        number {auto_increment},
        session_id TEXT NOT NULL REFERENCES nacre_sessions (id) ON DELETE CASCADE,
        run_id TEXT NOT NULL,
        sequence BIGINT NOT NULL,
        role TEXT NOT NULL,
        time DOUBLE PRECISION NOT NULL,
        text TEXT NOT NULL,
        words TEXT NOT NULL
    )
    """
_INDEX: Final = {
    # Every non-ASCII character belongs to a word; `nacre_search.words` has no other characters.
    "sqlite": (
        "CREATE VIRTUAL TABLE nacre_search_words USING fts5(words, content='nacre_search', "
        "content_rowid='number', tokenize='ascii', detail='none', columnsize=0)",
        "CREATE TRIGGER nacre_search_added AFTER INSERT ON nacre_search BEGIN "
        "INSERT INTO nacre_search_words (rowid, words) VALUES (new.number, new.words); END",
        "CREATE TRIGGER nacre_search_deleted AFTER DELETE ON nacre_search BEGIN "
        "INSERT INTO nacre_search_words (nacre_search_words, rowid, words) "
        "VALUES ('delete', old.number, old.words); END",
    ),
    # The words are lexemes as they are: the parsers of PostgreSQL would join paths and hosts.
    "postgresql": (
        "CREATE INDEX nacre_search_words ON nacre_search "
        "USING gin (array_to_tsvector(string_to_array(words, ' ')))",
    ),
}
_MATCH: Final = {
    "sqlite": "entry.number IN "
    "(SELECT rowid FROM nacre_search_words WHERE nacre_search_words MATCH :query)",
    "postgresql": "array_to_tsvector(string_to_array(entry.words, ' ')) "
    "@@ CAST(CAST(:query AS TEXT) AS tsquery)",
}

CREATE_TABLE: Final = (
    _TABLE,
    "CREATE INDEX nacre_search_of_session ON nacre_search (session_id, sequence)",
)


def create_index(connection: Connection) -> None:
    """Create the full-text index, and add the titles and messages that are stored already."""
    for statement in _INDEX[connection.dialect.name]:
        connection.exec_driver_sql(statement)
    titles = sql("SELECT id, title, updated FROM nacre_sessions WHERE title <> ''")
    for row in connection.execute(titles).all():
        put_title(connection, row.id, row.title, row.updated)
    page = sql(
        "SELECT message.session_id, message.sequence, message.run_id, message.content, "
        "coalesce(turn.ended, turn.started) AS time FROM nacre_messages AS message "
        "JOIN nacre_turns AS turn ON turn.run_id = message.run_id "
        "WHERE (message.session_id, message.sequence) > "
        "(CAST(:session_id AS TEXT), CAST(:sequence AS BIGINT)) "
        "ORDER BY message.session_id, message.sequence LIMIT :limit"
    )
    after = {"session_id": "", "sequence": -1, "limit": _BACKFILL_ROWS}
    while found := connection.execute(page, after).all():
        for row in found:
            message = _load_message(row.content)
            if message is not None:
                add_messages(
                    connection, row.session_id, row.run_id, [message], row.sequence, row.time
                )
        after |= {"session_id": found[-1].session_id, "sequence": found[-1].sequence}


def _load_message(content: str) -> Message | None:
    try:
        return message_from_json(decode_json(content.encode()))
    except (NotJsonError, MessageFormatError):
        # A damaged message: reading its session reports it.
        return None


def add_messages(
    connection: Connection,
    session_id: str,
    run_id: str,
    messages: Sequence[Message],
    first_sequence: int,
    time: float,
) -> None:
    """Index messages of a session, the first of which has this sequence number."""
    entries: list[dict[str, object]] = []
    for sequence, message in enumerate(messages, start=first_sequence):
        role, text = searchable_text(message) or ("user", "")
        if words := split_words(text):
            entries.append(
                {
                    "session_id": session_id,
                    "run_id": run_id,
                    "sequence": sequence,
                    "role": role,
                    "time": time,
                    "text": _clean(text),
                    "words": " ".join(words),
                }
            )
    if entries:
        connection.execute(_INSERT, entries)


def put_title(connection: Connection, session_id: str, title: str, time: float) -> None:
    """Index the title of a session, in place of an earlier one."""
    is_title = {"session_id": session_id, "sequence": _TITLE_SEQUENCE}
    connection.execute(
        sql("DELETE FROM nacre_search WHERE session_id = :session_id AND sequence = :sequence"),
        is_title,
    )
    if words := split_words(title):
        entry = {**is_title, "run_id": "", "role": "title", "time": time, "text": title}
        connection.execute(_INSERT, {**entry, "words": " ".join(words)})


def index_session(connection: Connection, session: SessionRecord) -> None:
    """Index a session whose messages are all stored already."""
    put_title(connection, session.id, session.title, session.updated)
    found = sql("SELECT sequence, run_id, content FROM nacre_messages WHERE session_id = :id")
    for row in connection.execute(found, {"id": session.id}).all():
        if (message := _load_message(row.content)) is not None:
            add_messages(
                connection, session.id, row.run_id, [message], row.sequence, session.updated
            )


def _clean(text: str) -> str:
    # PostgreSQL takes no NUL, and no database takes one half of a surrogate pair.
    return text.replace("\0", "\ufffd").encode(errors="replace").decode()


def find_hits(
    connection: Connection,
    query: str,
    *,
    agent_id: str | None = None,
    before: str | None = None,
    limit: int,
) -> list[SearchHit]:
    """The hits, newest first. A query without words has none."""
    words = list(dict.fromkeys(split_words(query)))[:_MAX_QUERY_WORDS]
    if not words:
        return []
    dialect = connection.dialect.name
    conditions = [_MATCH[dialect]]
    values: dict[str, object] = {"query": _query_text(words, dialect), "limit": limit}
    if agent_id is not None:
        conditions.append("session.agent_id = :agent_id")
        values["agent_id"] = agent_id
    if before is not None:
        conditions.append(
            "(entry.time, entry.number) < "
            "(CAST(:time AS DOUBLE PRECISION), CAST(:number AS BIGINT))"
        )
        values["time"], values["number"] = _parse_cursor(before)
    statement = sql(
        "SELECT entry.*, session.title FROM nacre_search AS entry "
        "JOIN nacre_sessions AS session ON session.id = entry.session_id "
        f"WHERE {' AND '.join(conditions)} "
        "ORDER BY entry.time DESC, entry.number DESC LIMIT :limit"
    )
    return [
        SearchHit(
            session_id=row.session_id,
            title=row.title,
            run_id=row.run_id,
            sequence=row.sequence,
            role=row.role,
            time=row.time,
            snippet=make_snippet(row.text, words),
            cursor=f"{row.time!r}~{row.number}",
        )
        for row in connection.execute(statement, values)
    ]


def _query_text(words: Sequence[str], dialect: str) -> str:
    # Words have only letters and digits, so nothing in them ends the quotes.
    if dialect == "sqlite":
        return " AND ".join(f'"{word}"*' for word in words)
    return " & ".join(f"'{word}':*" for word in words)


def _parse_cursor(text: str) -> tuple[float, int]:
    time, _, number = text.partition("~")
    try:
        return float(time), min(int(number), 2**62)
    except ValueError:
        problem = f"{text[:80]!r} is not a cursor; give the `cursor` of a hit"
        raise SessionError(problem, code="invalid") from None
