"""The tables and the migrations that create them.

Never edit a released migration step; add a new step at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

from sqlalchemy import BigInteger, Column, Double, Integer, LargeBinary, MetaData, Table, Text
from sqlalchemy.engine import Connection

from nacre.errors import StorageError
from nacre.storage.text_search import CREATE_TABLE, create_index

if TYPE_CHECKING:
    from collections.abc import Sequence


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
    _text("model"),
    _text("queue_mode"),
    _text("service_tier"),
    _text("permission_mode"),
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
    _text("identity"),
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

media: Final = Table(
    "nacre_media",
    metadata,
    _text("id", is_key=True),
    _text("session_id"),
    _text("run_id"),
    _text("name"),
    _text("type"),
    _number("size"),
    _time("created"),
    Column("data", LargeBinary, nullable=False),
)

threads: Final = Table(
    "nacre_threads",
    metadata,
    _text("session_id", is_key=True),
    _text("thread_id"),
    _text("data"),
    _time("created"),
    _time("updated"),
    _text("machine"),
)

# Written and read by `text_search.py`.
search: Final = Table(
    "nacre_search",
    metadata,
    Column("number", BigInteger().with_variant(Integer(), "sqlite"), primary_key=True),
    _text("session_id"),
    _text("run_id"),
    _number("sequence"),
    _text("role"),
    _time("time"),
    _text("text"),
    _text("words"),
)

# Small values that are deleted when they expire.
values: Final = Table(
    "nacre_values",
    metadata,
    _text("kind", is_key=True),
    _text("key", is_key=True),
    _text("value"),
    _time("expires"),
)

uploads: Final = Table(
    "nacre_uploads",
    metadata,
    _text("id", is_key=True),
    _text("name"),
    _text("type"),
    _number("size"),
    _time("created"),
    Column("data", LargeBinary, nullable=False),
)

# Suspended cells of runs in code mode; written and read by `cell_store.py`.
cells: Final = Table(
    "nacre_cells",
    metadata,
    _text("id", is_key=True),
    _text("session_id"),
    _text("run_id"),
    _text("call_id"),
    _text("scope"),
    _text("owner"),
    _number("epoch"),
    _number("number"),
    Column("snapshot", LargeBinary, nullable=False),
    _text("data"),
    _time("created"),
    _time("deadline"),
    _text("image"),
)

# The sandbox images that suspended cells need, compressed; a later version of Nacre has another.
images: Final = Table(
    "nacre_images",
    metadata,
    _text("identity", is_key=True),
    Column("wasm", LargeBinary, nullable=False),
    _time("used"),
)

# Nested calls of suspended cells: under way, or done with a result.
cell_calls: Final = Table(
    "nacre_cell_calls",
    metadata,
    _text("cell_id", is_key=True),
    _number("request_id", is_key=True),
    _text("tool_id"),
    _text("state"),
    _text("result"),
)

# What a turn that waits for people or clients needs to continue in another process.
turn_states: Final = Table(
    "nacre_turn_states",
    metadata,
    _text("run_id", is_key=True),
    _text("session_id"),
    _number("version"),
    _text("data"),
    _time("updated"),
)

# The processes that serve sessions of a database server; written and read by `leases.py`.
gateways: Final = Table(
    "nacre_gateways",
    metadata,
    _text("owner", is_key=True),
    _text("name"),
    _text("address"),
    _text("machine"),
    _text("version"),
    _time("started"),
    _time("renewed"),
)

# Which process serves a session. `epoch` is higher for each next one; every write names it.
leases: Final = Table(
    "nacre_leases",
    metadata,
    _text("session_id", is_key=True),
    _text("owner"),
    _number("epoch"),
    _time("expires"),
)

# Messages and answers for the process that serves a session; written and read by `inbox.py`.
inbox: Final = Table(
    "nacre_inbox",
    metadata,
    Column("number", BigInteger().with_variant(Integer(), "sqlite"), primary_key=True),
    _text("session_id"),
    _text("run_id"),
    _text("kind"),
    _text("key"),
    _text("payload"),
    _text("state"),
    _text("result"),
    _time("created"),
)

# Runs and their events for the readers at other gateways; written and read by `run_feed.py`.
runs: Final = Table(
    "nacre_runs",
    metadata,
    _text("run_id", is_key=True),
    _text("session_id"),
    _text("owner"),
    _text("state"),
    _text("data"),
    _time("updated"),
)

run_events: Final = Table(
    "nacre_run_events",
    metadata,
    _text("run_id", is_key=True),
    # Of the last event in the batch.
    _number("sequence", is_key=True),
    _text("events"),
    _time("created"),
)


Step: TypeAlias = tuple[str | Callable[[Connection], None], ...]
"""The statements that lead from one version to the next, for SQLite and PostgreSQL. A function
runs in the same transaction."""

# The two databases have different syntax for auto-increment columns and for bytes.
_AUTO_INCREMENT: Final = "{auto_increment}"
_BYTES: Final = "{bytes}"
_SYNTAX: Final = {
    "sqlite": {
        _AUTO_INCREMENT: "INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT",
        _BYTES: "BLOB",
    },
    "postgresql": {
        _AUTO_INCREMENT: "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
        _BYTES: "BYTEA",
    },
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

_MEDIA: Final[Step] = (
    f"""
    CREATE TABLE nacre_media (
        id TEXT NOT NULL PRIMARY KEY,
        session_id TEXT NOT NULL REFERENCES nacre_sessions (id) ON DELETE CASCADE,
        run_id TEXT NOT NULL,
        name TEXT NOT NULL,
        type TEXT NOT NULL,
        size BIGINT NOT NULL,
        created DOUBLE PRECISION NOT NULL,
        data {_BYTES} NOT NULL
    )
    """,
    "CREATE INDEX nacre_media_of_session ON nacre_media (session_id)",
    "CREATE INDEX nacre_media_of_run ON nacre_media (run_id)",
)

# Settings of a session that its user has chosen; empty for the configured ones.
_SESSION_SETTINGS: Final[Step] = (
    "ALTER TABLE nacre_sessions ADD COLUMN model TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE nacre_sessions ADD COLUMN queue_mode TEXT NOT NULL DEFAULT ''",
)

# The thread that a session has in another runtime, such as Codex.
_THREADS: Final[Step] = (
    """
    CREATE TABLE nacre_threads (
        session_id TEXT NOT NULL PRIMARY KEY REFERENCES nacre_sessions (id) ON DELETE CASCADE,
        thread_id TEXT NOT NULL,
        data TEXT NOT NULL,
        created DOUBLE PRECISION NOT NULL,
        updated DOUBLE PRECISION NOT NULL
    )
    """,
)

_CODEX_SETTINGS: Final[Step] = (
    "ALTER TABLE nacre_sessions ADD COLUMN service_tier TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE nacre_sessions ADD COLUMN permission_mode TEXT NOT NULL DEFAULT ''",
)

_SEARCH: Final[Step] = (*CREATE_TABLE, create_index)

_VALUES_AND_UPLOADS: Final[Step] = (
    """
    CREATE TABLE nacre_values (
        kind TEXT NOT NULL,
        key TEXT NOT NULL,
        value TEXT NOT NULL,
        expires DOUBLE PRECISION NOT NULL,
        PRIMARY KEY (kind, key)
    )
    """,
    "CREATE INDEX nacre_values_by_expiry ON nacre_values (expires)",
    f"""
    CREATE TABLE nacre_uploads (
        id TEXT NOT NULL PRIMARY KEY,
        name TEXT NOT NULL,
        type TEXT NOT NULL,
        size BIGINT NOT NULL,
        created DOUBLE PRECISION NOT NULL,
        data {_BYTES} NOT NULL
    )
    """,
    "CREATE INDEX nacre_uploads_by_time ON nacre_uploads (created)",
)

# What a message is called in the thread of another runtime; empty for most.
_MESSAGE_IDENTITIES: Final[Step] = (
    "ALTER TABLE nacre_messages ADD COLUMN identity TEXT NOT NULL DEFAULT ''",
    """
    CREATE UNIQUE INDEX nacre_messages_by_identity ON nacre_messages (session_id, identity)
    WHERE identity <> ''
    """,
)

# `epoch` of a cell grows with each change of its owner and each suspension; every write names it.
# `number` is that of the snapshot, which its seal covers.
_DURABLE_CELLS: Final[Step] = (
    f"""
    CREATE TABLE nacre_cells (
        id TEXT NOT NULL PRIMARY KEY,
        session_id TEXT NOT NULL,
        run_id TEXT NOT NULL,
        call_id TEXT NOT NULL,
        scope TEXT NOT NULL,
        owner TEXT NOT NULL,
        epoch BIGINT NOT NULL,
        number BIGINT NOT NULL,
        snapshot {_BYTES} NOT NULL,
        data TEXT NOT NULL,
        created DOUBLE PRECISION NOT NULL,
        deadline DOUBLE PRECISION NOT NULL
    )
    """,
    "CREATE INDEX nacre_cells_of_session ON nacre_cells (session_id)",
    "CREATE INDEX nacre_cells_of_run ON nacre_cells (run_id)",
    "CREATE INDEX nacre_cells_by_deadline ON nacre_cells (deadline)",
    """
    CREATE TABLE nacre_cell_calls (
        cell_id TEXT NOT NULL REFERENCES nacre_cells (id) ON DELETE CASCADE,
        request_id BIGINT NOT NULL,
        tool_id TEXT NOT NULL,
        state TEXT NOT NULL,
        result TEXT NOT NULL,
        PRIMARY KEY (cell_id, request_id)
    )
    """,
    """
    CREATE TABLE nacre_turn_states (
        run_id TEXT NOT NULL PRIMARY KEY REFERENCES nacre_turns (run_id) ON DELETE CASCADE,
        session_id TEXT NOT NULL,
        version BIGINT NOT NULL,
        data TEXT NOT NULL,
        updated DOUBLE PRECISION NOT NULL
    )
    """,
)


def _create_epochs(connection: Connection) -> None:
    """Leases exist only on a server: a file has one process that serves sessions."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql("CREATE SEQUENCE nacre_epochs")


_GATEWAYS: Final[Step] = (
    # The machine that has the files of the thread; empty if it is not known.
    "ALTER TABLE nacre_threads ADD COLUMN machine TEXT NOT NULL DEFAULT ''",
    """
    CREATE TABLE nacre_gateways (
        owner TEXT NOT NULL PRIMARY KEY,
        name TEXT NOT NULL,
        address TEXT NOT NULL,
        machine TEXT NOT NULL,
        version TEXT NOT NULL,
        started DOUBLE PRECISION NOT NULL,
        renewed DOUBLE PRECISION NOT NULL
    )
    """,
    """
    CREATE TABLE nacre_leases (
        session_id TEXT NOT NULL PRIMARY KEY,
        owner TEXT NOT NULL,
        epoch BIGINT NOT NULL,
        expires DOUBLE PRECISION NOT NULL
    )
    """,
    _create_epochs,
    "CREATE INDEX nacre_leases_of_owner ON nacre_leases (owner)",
    f"""
    CREATE TABLE nacre_inbox (
        number {_AUTO_INCREMENT},
        session_id TEXT NOT NULL,
        run_id TEXT NOT NULL,
        kind TEXT NOT NULL,
        key TEXT NOT NULL,
        payload TEXT NOT NULL,
        state TEXT NOT NULL,
        result TEXT NOT NULL,
        created DOUBLE PRECISION NOT NULL
    )
    """,
    "CREATE UNIQUE INDEX nacre_inbox_by_key ON nacre_inbox (key) WHERE key <> ''",
    "CREATE INDEX nacre_inbox_of_session ON nacre_inbox (session_id, number)",
    """
    CREATE TABLE nacre_runs (
        run_id TEXT NOT NULL PRIMARY KEY,
        session_id TEXT NOT NULL,
        owner TEXT NOT NULL,
        state TEXT NOT NULL,
        data TEXT NOT NULL,
        updated DOUBLE PRECISION NOT NULL
    )
    """,
    "CREATE INDEX nacre_runs_of_session ON nacre_runs (session_id)",
    "CREATE INDEX nacre_runs_by_time ON nacre_runs (updated)",
    """
    CREATE TABLE nacre_run_events (
        run_id TEXT NOT NULL REFERENCES nacre_runs (run_id) ON DELETE CASCADE,
        sequence BIGINT NOT NULL,
        events TEXT NOT NULL,
        created DOUBLE PRECISION NOT NULL,
        PRIMARY KEY (run_id, sequence)
    )
    """,
)

_IMAGES: Final[Step] = (
    "ALTER TABLE nacre_cells ADD COLUMN image TEXT NOT NULL DEFAULT ''",
    f"""
    CREATE TABLE nacre_images (
        identity TEXT NOT NULL PRIMARY KEY,
        wasm {_BYTES} NOT NULL,
        used DOUBLE PRECISION NOT NULL
    )
    """,
)

STEPS: Final[tuple[Step, ...]] = (
    _FIRST,
    _MEDIA,
    _SESSION_SETTINGS,
    _THREADS,
    _CODEX_SETTINGS,
    _SEARCH,
    _VALUES_AND_UPLOADS,
    _MESSAGE_IDENTITIES,
    _DURABLE_CELLS,
    _GATEWAYS,
    _IMAGES,
)


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
        if not isinstance(statement, str):
            statement(connection)
            continue
        for mark, words in _SYNTAX[connection.dialect.name].items():
            statement = statement.replace(mark, words)
        execute(statement)
    execute("DELETE FROM nacre_schema")
    execute(f"INSERT INTO nacre_schema (version) VALUES ({len(steps)})")
