"""Full-text search and forks, in memory, in a file and on PostgreSQL."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from nacre.errors import SessionError
from nacre.messages import AssistantMessage, TextPart, ToolMessage, Usage, user_message
from nacre.storage import MediaRecord, Store, open_store
from nacre.storage.database import open_database
from nacre.storage.schema import STEPS, migrate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy.engine import Connection

    from nacre.messages import Message
    from nacre.storage import SearchHit

HOSTILE = (
    '"',
    "'",
    "\\",
    '" OR "',
    "pearl* AND (",
    "NEAR(pearl reef)",
    "words:pearl",
    "^pearl",
    "-pearl",
    "pearl & !reef | <->",
    "'pearl':*A",
    "pearl\0reef",
    "\ud800",
    "%_%",
    "; DROP TABLE nacre_search; --",
    "½ ² \u0301 \u200b \U0001f980",
    "x" * 5_000,
    "pearl " * 2_000,
)


def answer(text: str) -> AssistantMessage:
    return AssistantMessage(parts=(TextPart(text=text),), model="m/m", usage=Usage())


async def add_turn(store: Store, run_id: str, messages: Sequence[Message], title: str = "") -> None:
    await store.begin_turn(
        run_id=run_id, session_id="s", prompt=messages[0], model="m/m", surface="", title=title
    )
    await store.end_turn(run_id, status="completed", messages=messages, usage=Usage())


async def found(store: Store, query: str) -> set[tuple[str, str, int]]:
    hits = await store.search(query, limit=100)
    return {(hit.session_id, hit.role, hit.sequence) for hit in hits}


def show(hit: SearchHit) -> str:
    return "".join(f"[{it.text}]" if it.is_match else it.text for it in hit.snippet)


async def test_messages_and_titles_are_found_by_the_beginnings_of_all_words(store: Store) -> None:
    await store.add_session(id="s", agent_id="main")
    result = ToolMessage(call_id="c", name="read", content="/usr/local/share/reef-map.txt")
    prompt = user_message("Where are the Pearls of the Café?")
    await add_turn(store, "r", [prompt, result, answer("貝殻は珊瑚礁にあります。")], title="Shells")

    assert await found(store, "pearl CAFE") == {("s", "user", 0)}
    assert await found(store, "cafe\u0301") == {("s", "user", 0)}
    assert await found(store, "pearl oyster") == set()
    assert await found(store, "earls") == set()
    assert await found(store, "reef map.txt") == {("s", "tool", 1)}
    assert await found(store, "珊瑚") == {("s", "assistant", 2)}
    assert await found(store, "shell") == {("s", "title", -1)}
    [hit] = await store.search("PEARL")
    assert (show(hit), hit.run_id, hit.title) == (
        "Where are the [Pearls] of the Café?",
        "r",
        "Shells",
    )
    assert await store.search("pearl", agent_id="other") == []


async def test_any_text_is_a_query(store: Store) -> None:
    await store.add_session(id="s", agent_id="main", title="a pearl in the reef")
    await add_turn(store, "r", [user_message("nul\0 and \ud800 half"), answer("\u200b '\"\\ ")])
    for query in HOSTILE:
        assert len(await store.search(query)) <= 2, query
    assert await found(store, "pearl & !reef | <->") == {("s", "title", -1)}
    assert await found(store, "nul half") == {("s", "user", 0)}
    with pytest.raises(SessionError, match="is not a cursor"):
        await store.search("pearl", before="1'~x")


async def test_hits_come_in_pages_and_long_texts_as_snippets(store: Store) -> None:
    await store.add_session(id="s", agent_id="main")
    long = f"{'sand ' * 500}pearl {'water ' * 500}"
    for n in range(3):
        await add_turn(store, f"r{n}", [user_message(f"pearl number {n}"), answer(long)])
    pages: list[list[SearchHit]] = []
    before = None
    while page := await store.search("pearl", limit=4, before=before):
        pages.append(page)
        before = page[-1].cursor
    assert [len(page) for page in pages] == [4, 2]
    hits = [*itertools.chain(*pages)]
    assert sorted(hit.sequence for hit in hits) == [0, 1, 2, 3, 4, 5]
    assert [hit.time for hit in hits] == sorted((hit.time for hit in hits), reverse=True)
    shown = show(next(hit for hit in hits if hit.role == "assistant"))
    assert shown.startswith("…") and shown.endswith("…") and "sand [pearl] water" in shown
    assert len(shown) < 300


async def test_renamed_and_deleted_sessions_are_found_as_they_are_now(store: Store) -> None:
    await store.add_session(id="s", agent_id="main", title="old words")
    await add_turn(store, "r", [user_message("a pearl")])
    await store.change_session("s", title="new words")
    assert await found(store, "old") == set()
    assert await found(store, "new") == {("s", "title", -1)}

    assert await store.delete_session("s")

    assert await found(store, "new") | await found(store, "pearl") == set()


async def test_a_fork_has_the_turns_up_to_one_and_is_on_its_own(store: Store) -> None:
    await store.add_session(id="s", agent_id="main", key="k", title="Shells")
    await store.change_session("s", model="m/big")
    for n in range(3):
        await add_turn(store, f"r{n}", [user_message(f"pearl {n}"), answer(f"answer {n}")])
        await store.add_events(f"r{n}", "s", [{"sequence": 0, "kind": "run.started"}])
    file = MediaRecord(
        id="m", session_id="s", run_id="r1", name="a", type="text/plain", size=1, created=1.0
    )
    await store.media.add(file, b"x")
    await store.add_compaction("s", up_to_sequence=1, summary="short")
    await store.add_compaction("s", up_to_sequence=4, summary="longer")

    new = await store.fork_session("s", new_id="f", last_run_id="r1")

    assert (new.key, new.title, new.model) == ("", "Shells (fork)", "m/big")
    assert await store.session("f") == new
    turns = await store.turns("f")
    assert [turn.status for turn in turns] == ["completed", "completed"]
    run_ids = [turn.run_id for turn in turns]
    assert not {"r0", "r1", "r2"} & set(run_ids)
    messages = await store.messages("f", whole=True)
    assert [it.run_id for it in messages] == [run_ids[0]] * 2 + [run_ids[1]] * 2
    assert [it.sequence for it in messages] == [0, 1, 2, 3]
    assert [it.is_summary for it in await store.messages("f")] == [True, False, False]
    assert len(await store.events(session_id="f")) == 2
    [media] = await store.media.of_runs(run_ids)
    assert media.id != "m" and (await store.media.find(media.id) or ("", b""))[1] == b"x"
    assert ("f", "user", 2) in await found(store, "pearl")
    await store.delete_session("s")
    assert await found(store, "pearl") == {("f", "user", 0), ("f", "user", 2)}


async def test_only_ended_turns_of_the_session_are_forked(store: Store) -> None:
    await store.add_session(id="s", agent_id="main")
    await add_turn(store, "r0", [user_message("one")])
    await store.begin_turn(
        run_id="r1", session_id="s", prompt=user_message("two"), model="m/m", surface=""
    )
    with pytest.raises(SessionError, match="has not ended"):
        await store.fork_session("s", new_id="f", last_run_id="r1")
    with pytest.raises(SessionError, match="has no run 'nope'"):
        await store.fork_session("s", new_id="f", last_run_id="nope")
    with pytest.raises(SessionError, match="there is no session"):
        await store.fork_session("none", new_id="f")
    assert await store.session("f") is None
    assert (await store.fork_session("s", new_id="f")).turn_count == 1


async def test_what_an_older_version_stored_is_found_after_the_migration(shared_url: str) -> None:
    def repeat_migration(connection: Connection) -> None:
        if connection.dialect.name == "sqlite":
            connection.exec_driver_sql("DROP TABLE nacre_search_words")
        connection.exec_driver_sql("DROP TABLE nacre_search")
        connection.exec_driver_sql("UPDATE nacre_schema SET version = 5")
        damaged = "UPDATE nacre_messages SET content = '{' WHERE sequence = 3"
        connection.exec_driver_sql(damaged)
        # The step alone: the tables and columns of later ones are there.
        migrate(connection, "the database", STEPS[:6])
        connection.exec_driver_sql(f"UPDATE nacre_schema SET version = {len(STEPS)}")

    async with open_store(shared_url) as store:
        await store.add_session(id="s", agent_id="main", title="Shells")
        for n in range(3):
            await add_turn(store, f"r{n}", [user_message(f"pearl {n}"), answer("yes")])
        expected = await found(store, "pearl") | await found(store, "shells")
    async with open_database(shared_url, lock_seconds=5) as database:
        await database.write(repeat_migration)

    async with open_store(shared_url) as store:
        assert await found(store, "pearl") | await found(store, "shells") == expected
        assert await found(store, "yes") == {("s", "assistant", 1), ("s", "assistant", 5)}


async def test_watchers_hear_of_every_change_of_a_session(store: Store) -> None:
    heard: list[tuple[str, str]] = []
    stop = store.watch_sessions(lambda session_id, change: heard.append((session_id, change)))
    await store.add_session(id="s", agent_id="main")
    await store.add_session(id="s", agent_id="main")
    await add_turn(store, "r", [user_message("one")])
    await store.change_session("s", title="new")
    await store.fork_session("s", new_id="f")
    await store.delete_session("s")
    await store.delete_session("s")
    stop()
    await store.delete_session("f")
    updates = [("s", "updated")] * 3
    assert heard == [("s", "created"), *updates, ("f", "created"), ("s", "deleted")]
