"""The tables and the migrations that create them.

Never edit a released migration step; add a new step at the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from sqlalchemy import BigInteger, Column, Double, Integer, MetaData, Table, Text

from nacre.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy.engine import Connection


metadata: Final = MetaData()


def _text(name: str, *, is_key: bool = False) -> Column[str]:
    return Column(name, Text, primary_key=is_key, nullable=False)


def _number(name: str, *, is_key: bool = False) -> Column[int]:
    return Column(name, BigInteger, primary_key=is_key, nullable=False, autoincrement=False)


def _time(name: str, *, is_optional: bool = False) -> Column[float]:
    return Column(name, Double, nullable=is_optional)


# The prefix keeps our tables apart from other tables in the same database.
sessions: Final = Table(
    "nacre_sessions",
    metadata,
    _text("id", is_key=True),
    _text("agent_id"),
    _text("key"),
    _text("channel"),
    _text("sender"),
    _text("title"),
    _time("created"),
    _time("updated"),
    _number("turn_count"),
    _number("message_count"),
)

turns: Final = Table(
    "nacre_turns",
    metadata,
    _text("run_id", is_key=True),
    _text("session_id"),
    _number("number"),
    _text("status"),
    _text("owner"),
    _text("prompt"),
    _text("model"),
    _text("surface"),
    _number("input_tokens"),
    _number("output_tokens"),
    _number("cached_tokens"),
    _text("error"),
    _text("data"),
    _time("started"),
    _time("ended", is_optional=True),
)

messages: Final = Table(
    "nacre_messages",
    metadata,
    _text("session_id", is_key=True),
    _number("sequence", is_key=True),
    _text("run_id"),
    _text("content"),
)

compactions: Final = Table(
    "nacre_compactions",
    metadata,
    _text("session_id", is_key=True),
    _number("up_to_sequence", is_key=True),
    _text("summary"),
    _time("created"),
)

events: Final = Table(
    "nacre_events",
    metadata,
    # SQLite auto-increments only columns of exactly this type.
    Column("number", BigInteger().with_variant(Integer(), "sqlite"), primary_key=True),
    _text("run_id"),
    _text("session_id"),
    _text("event"),
)

approvals: Final = Table(
    "nacre_approvals",
    metadata,
    _text("id", is_key=True),
    _text("session_id"),
    _text("run_id"),
    _text("tool_id"),
    _text("tool_name"),
    _text("input"),
    _text("reason"),
    _text("call_id"),
    _text("parent_id"),
    _time("created"),
    _time("expires"),
    _text("state"),
    _text("answer"),
    _text("answered_by"),
    _time("answered", is_optional=True),
)


Step: TypeAlias = tuple[str, ...]
"""The statements that lead from one version to the next, for SQLite and PostgreSQL."""

# The two databases have different syntax for auto-increment columns.
_AUTO_INCREMENT: Final = "{auto_increment}"
_AUTO_INCREMENT_IN: Final = {
    "sqlite": "INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT",
    "postgresql": "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
}

_FIRST: Final[Step] = (
    """
    CREATE TABLE nacre_sessions (
        id TEXT NOT NULL PRIMARY KEY,
        agent_id TEXT NOT NULL,
        key TEXT NOT NULL,
        channel TEXT NOT NULL,
        sender TEXT NOT NULL,
        title TEXT NOT NULL,
        created DOUBLE PRECISION NOT NULL,
        updated DOUBLE PRECISION NOT NULL,
        turn_count BIGINT NOT NULL,
        message_count BIGINT NOT NULL
    )
    """,
    "CREATE UNIQUE INDEX nacre_sessions_by_key ON nacre_sessions (agent_id, key) WHERE key <> ''",
    "CREATE INDEX nacre_sessions_by_use ON nacre_sessions (updated, id)",
    "CREATE INDEX nacre_sessions_of_agent ON nacre_sessions (agent_id, updated, id)",
    """
    CREATE TABLE nacre_turns (
        run_id TEXT NOT NULL PRIMARY KEY,
        session_id TEXT NOT NULL REFERENCES nacre_sessions (id) ON DELETE CASCADE,
        number BIGINT NOT NULL,
        status TEXT NOT NULL,
        owner TEXT NOT NULL,
        prompt TEXT NOT NULL,
        model TEXT NOT NULL,
        surface TEXT NOT NULL,
        input_tokens BIGINT NOT NULL,
        output_tokens BIGINT NOT NULL,
        cached_tokens BIGINT NOT NULL,
        error TEXT NOT NULL,
        data TEXT NOT NULL,
        started DOUBLE PRECISION NOT NULL,
        ended DOUBLE PRECISION,
        UNIQUE (session_id, number)
    )
    """,
    "CREATE INDEX nacre_turns_running ON nacre_turns (session_id) WHERE status = 'running'",
    """
    CREATE TABLE nacre_messages (
        session_id TEXT NOT NULL REFERENCES nacre_sessions (id) ON DELETE CASCADE,
        sequence BIGINT NOT NULL,
        run_id TEXT NOT NULL REFERENCES nacre_turns (run_id) ON DELETE CASCADE,
        content TEXT NOT NULL,
        PRIMARY KEY (session_id, sequence)
    )
    """,
    "CREATE INDEX nacre_messages_of_turn ON nacre_messages (run_id)",
    """
    CREATE TABLE nacre_compactions (
        session_id TEXT NOT NULL REFERENCES nacre_sessions (id) ON DELETE CASCADE,
        up_to_sequence BIGINT NOT NULL,
        summary TEXT NOT NULL,
        created DOUBLE PRECISION NOT NULL,
        PRIMARY KEY (session_id, up_to_sequence)
    )
    """,
    f"""
    CREATE TABLE nacre_events (
        number {_AUTO_INCREMENT},
        run_id TEXT NOT NULL,
        session_id TEXT NOT NULL,
        event TEXT NOT NULL
    )
    """,
    "CREATE INDEX nacre_events_of_run ON nacre_events (run_id, number)",
    "CREATE INDEX nacre_events_of_session ON nacre_events (session_id, number)",
    """
    CREATE TABLE nacre_approvals (
        id TEXT NOT NULL PRIMARY KEY,
        session_id TEXT NOT NULL,
        run_id TEXT NOT NULL,
        tool_id TEXT NOT NULL,
        tool_name TEXT NOT NULL,
        input TEXT NOT NULL,
        reason TEXT NOT NULL,
        call_id TEXT NOT NULL,
        parent_id TEXT NOT NULL,
        created DOUBLE PRECISION NOT NULL,
        expires DOUBLE PRECISION NOT NULL,
        state TEXT NOT NULL,
        answer TEXT NOT NULL,
        answered_by TEXT NOT NULL,
        answered DOUBLE PRECISION
    )
    """,
    "CREATE INDEX nacre_approvals_by_time ON nacre_approvals (created, id)",
    "CREATE INDEX nacre_approvals_of_session ON nacre_approvals (session_id, created, id)",
)

STEPS: Final[tuple[Step, ...]] = (_FIRST,)


def migrate(connection: Connection, label: str, steps: Sequence[Step] = STEPS) -> None:
    """Migrate the schema to the newest version, within the caller's transaction.

    The caller holds a lock, so that only one process migrates. Raises StorageError for a database
    of a newer version of Nacre.
    """
    execute = connection.exec_driver_sql
    execute("CREATE TABLE IF NOT EXISTS nacre_schema (version INTEGER NOT NULL)")
    version = (execute("SELECT max(version) FROM nacre_schema")).scalar() or 0
    if version > len(steps):
        raise StorageError(
            f"{label} has schema version {version}, but this version of Nacre supports only "
            f"versions up to {len(steps)}; use a newer Nacre or another `storage.url`"
        )
    if version == len(steps):
        return
    for statement in (statement for step in steps[version:] for statement in step):
        execute(statement.replace(_AUTO_INCREMENT, _AUTO_INCREMENT_IN[connection.dialect.name]))
    execute("DELETE FROM nacre_schema")
    execute(f"INSERT INTO nacre_schema (version) VALUES ({len(steps)})")
