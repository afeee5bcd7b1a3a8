"""The tables as queries see them; `migrations.py` makes them, and a test compares the two."""

from __future__ import annotations

from typing import Final

from sqlalchemy import BigInteger, Column, Double, Integer, MetaData, Table, Text

metadata: Final = MetaData()


def _text(name: str, *, is_key: bool = False) -> Column[str]:
    return Column(name, Text, primary_key=is_key, nullable=False)


def _number(name: str, *, is_key: bool = False) -> Column[int]:
    return Column(name, BigInteger, primary_key=is_key, nullable=False, autoincrement=False)


def _time(name: str, *, is_optional: bool = False) -> Column[float]:
    return Column(name, Double, nullable=is_optional)


# A database may hold tables of others as well, so ours have a name of their own.
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
    # Only a column of just this type counts up by itself in SQLite.
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
