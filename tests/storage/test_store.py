"""What every store promises, whichever database it is on."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel
import pytest

from nacre.errors import SessionError, StorageError
from nacre.messages import (
    AssistantMessage,
    Message,
    SystemMessage,
    TextPart,
    ToolCallPart,
    ToolMessage,
    Usage,
    user_message,
)
from nacre.storage import Compaction, StoredMessage, ThreadRecord, rows

if TYPE_CHECKING:
    from nacre.json_types import JsonObject
    from nacre.storage import Store

NO_USAGE = Usage()


def answer(text: str) -> AssistantMessage:
    return AssistantMessage(parts=(TextPart(text=text),), model="demo/demo")


async def add_turn(store: Store, run_id: str, *messages: Message, session_id: str = "s") -> None:
    await store.begin_turn(
        run_id=run_id, session_id=session_id, prompt=None, model="demo/demo", surface="direct"
    )
    await store.end_turn(run_id, status="completed", messages=messages, usage=NO_USAGE)


def texts(messages: list[StoredMessage]) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    for stored in messages:
        assert not isinstance(stored.message, ToolMessage)
        found.append((stored.sequence, stored.message.text))
    return found


async def test_a_renewed_session_takes_the_key_and_the_old_one_stays(store: Store) -> None:
    old = await store.add_session(id="s", agent_id="main", key="chat:1", sender="Ada")
    await add_turn(store, "r1", user_message("hi"), answer("hello"))
    await store.change_session("s", model="demo/other", queue_mode="collect")

    kept = await store.renew_session("s", new_id="t", keeps_settings=True)
    fresh = await store.renew_session("t", new_id="u", keeps_settings=False)

    assert await store.session_by_key("main", "chat:1") == fresh
    assert (kept.model, kept.queue_mode) == ("demo/other", "collect")
    assert (fresh.model, fresh.queue_mode, fresh.sender) == ("", "", "Ada")
    assert fresh.turn_count == 0
    assert {it.id: it.key for it in await store.sessions()} == {"s": "", "t": "", "u": old.key}
    assert texts(await store.messages("s")) == [(0, "hi"), (1, "hello")]
    with pytest.raises(SessionError, match="there is no session 'nobody'"):
        await store.renew_session("nobody", new_id="v", keeps_settings=True)
    with pytest.raises(SessionError, match="there is a session 's' already"):
        await store.renew_session("u", new_id="s", keeps_settings=True)
    assert await store.session_by_key("main", "chat:1") == fresh


async def test_a_session_without_a_title_gets_the_one_of_its_first_turn(store: Store) -> None:
    await store.add_session(id="s", agent_id="main")
    for run_id in ("one", "two"):
        await store.begin_turn(
            run_id=run_id, session_id="s", prompt=None, model="", surface="", title=run_id
        )
    session = await store.session("s")
    assert session is not None
    assert session.title == "one"


async def test_the_tokens_of_a_session_are_those_of_its_turns(store: Store) -> None:
    for session_id in ("s", "t"):
        await store.add_session(id=session_id, agent_id="main")
    assert await store.session_usage("s") == NO_USAGE
    used = Usage(input_tokens=5, output_tokens=3, cached_tokens=1)
    for run_id, session_id in (("r1", "s"), ("r2", "s"), ("r3", "t")):
        await store.begin_turn(
            run_id=run_id, session_id=session_id, prompt=None, model="", surface=""
        )
        await store.end_turn(run_id, status="completed", messages=[], usage=used)
    assert await store.session_usage("s") == used + used


async def test_a_session_is_found_by_its_id_and_by_its_key(store: Store) -> None:
    added = await store.add_session(
        id="s", agent_id="main", key="chat:1", channel="web", sender="Ada", title="Pearls"
    )

    assert await store.session("s") == added
    assert await store.session_by_key("main", "chat:1") == added
    assert (added.channel, added.sender, added.title) == ("web", "Ada", "Pearls")
    assert added.turn_count == added.message_count == 0
    assert await store.session("other") is None
    assert await store.session_by_key("other", "chat:1") is None


async def test_a_session_with_a_key_that_is_there_is_given_back_as_it_is(store: Store) -> None:
    first = await store.add_session(id="s1", agent_id="main", key="chat:1", title="first")

    assert await store.add_session(id="s2", agent_id="main", key="chat:1") == first
    assert await store.session("s2") is None
    assert (await store.add_session(id="s3", agent_id="other", key="chat:1")).id == "s3"


async def test_many_at_once_with_one_key_get_one_session(store: Store) -> None:
    ids: list[str] = []

    async def add(number: int) -> None:
        session = await store.add_session(id=f"s{number}", agent_id="main", key="chat:1")
        ids.append(session.id)

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            for number in range(12):
                tasks.start_soon(add, number)

    assert len(ids) == 12
    assert len(set(ids)) == 1


async def test_sessions_without_a_key_are_each_their_own(store: Store) -> None:
    await store.add_session(id="s1", agent_id="main")
    await store.add_session(id="s2", agent_id="main")

    assert {session.id for session in await store.sessions()} == {"s1", "s2"}
    assert await store.session_by_key("main", "") is None


async def test_an_id_of_another_agent_is_refused(store: Store) -> None:
    await store.add_session(id="s", agent_id="main")

    with pytest.raises(SessionError, match="'s' belongs to another agent") as caught:
        await store.add_session(id="s", agent_id="other")

    assert caught.value.code == "invalid"


@pytest.mark.parametrize(
    ("id", "key", "problem"),
    [
        ("", "", "the session id is empty"),
        ("a\0b", "", "the session id contains a NUL"),
        ("s", "\ud800", "the session key contains an unpaired surrogate"),
        ("s", "k" * 2000, "the session key has 2000 bytes; the limit is 1024"),
        ("é" * 300, "", "the session id has 600 bytes; the limit is 512"),
    ],
)
async def test_names_that_no_database_keeps_exactly_are_refused(
    store: Store, id: str, key: str, problem: str
) -> None:
    with pytest.raises(SessionError, match=problem) as caught:
        await store.add_session(id=id, agent_id="main", key=key)

    assert caught.value.code == "invalid"


@pytest.mark.parametrize("name", ["\0", "\ud800", "a" * 5000, "'; DROP TABLE nacre_turns; --"])
async def test_odd_names_are_just_not_found(store: Store, name: str) -> None:
    assert await store.session(name) is None
    assert await store.session_by_key(name, name) is None
    assert await store.sessions(agent_id=name) == []
    assert await store.messages(name) == []
    assert await store.turn(name) is None
    assert await store.turns(name) == []
    assert await store.events(run_id=name) == await store.events(session_id=name) == []
    assert await store.approvals.find_all(session_id=name) == []
    with pytest.raises(SessionError, match="there is no run"):
        await store.end_turn(name, status="failed", messages=[], usage=NO_USAGE)
    with pytest.raises(SessionError, match="there is no session"):
        await store.add_compaction(name, up_to_sequence=0, summary="")
    with pytest.raises(SessionError, match="there is no session"):
        await store.begin_turn(run_id="r", session_id=name, prompt=None, model="", surface="")


async def test_sessions_are_listed_by_their_last_use_page_by_page(store: Store) -> None:
    for number in range(5):
        await store.add_session(id=f"s{number}", agent_id=f"agent{number % 2}")
    await add_turn(store, "r", user_message("hi"), session_id="s0")

    first = await store.sessions(limit=2)
    second = await store.sessions(limit=2, before=first[-1].cursor)
    third = await store.sessions(limit=2, before=second[-1].cursor)

    assert [it.id for it in first + second + third] == ["s0", "s4", "s3", "s2", "s1"]
    assert [it.id for it in await store.sessions(agent_id="agent1")] == ["s3", "s1"]
    assert (first[0].turn_count, first[0].message_count) == (1, 1)


@pytest.mark.parametrize("cursor", ["", "yesterday s1", "1.0 a\0b", "{}"])
async def test_a_cursor_that_is_none_is_refused(store: Store, cursor: str) -> None:
    with pytest.raises(SessionError, match="is not a cursor"):
        await store.sessions(before=cursor)


async def test_a_turn_is_running_until_it_ends_with_all_its_messages(store: Store) -> None:
    await store.add_session(id="s", agent_id="main")
    prompt = user_message("How deep is the sea?")
    call = ToolCallPart(call_id="c1", name="exec", arguments='{"code": "return 1"}')
    messages = [
        prompt,
        AssistantMessage(parts=(call,), finish_reason="tool_calls"),
        ToolMessage(call_id="c1", name="exec", content="1"),
        answer("Very."),
    ]

    await store.begin_turn(
        run_id="r", session_id="s", prompt=prompt, model="demo/demo", surface="code_mode"
    )
    running = await store.turn("r")
    assert running is not None
    assert (running.status, running.prompt, running.ended) == ("running", prompt, None)
    assert await store.messages("s") == []

    usage = Usage(input_tokens=3, output_tokens=2, cached_tokens=1)
    await store.end_turn("r", status="completed", messages=messages, usage=usage, data={"steps": 2})

    turn = await store.turn("r")
    assert turn is not None
    assert turn.ended is not None
    assert turn == replace(
        running, status="completed", usage=usage, data={"steps": 2}, ended=turn.ended
    )
    stored = await store.messages("s")
    assert [it.message for it in stored] == messages
    assert [(it.sequence, it.run_id) for it in stored] == [(i, "r") for i in range(4)]


async def test_a_turn_begins_with_its_session_and_ends_with_its_thread(store: Store) -> None:
    await store.add_session(id="s", agent_id="main")
    await store.change_session("s", service_tier="priority")
    thread = ThreadRecord(session_id="s", thread_id="t", created=1.0, updated=2.0)

    begun = await store.begin_turn(
        run_id="r1", session_id="s", prompt=None, model="m", surface="codex", loads_messages=True
    )
    assert (begun.session.service_tier, begun.session.turn_count) == ("priority", 1)
    assert (begun.thread, begun.last_run_id) == (None, "")
    assert await store.decode_messages(begun) == []

    await store.end_turn(
        "r1", status="completed", messages=[user_message("hi")], usage=NO_USAGE, thread=thread
    )
    await add_turn(store, "r2", answer("hello"))
    await store.add_compaction("s", up_to_sequence=0, summary="They met.")
    for loads_messages in (False, True):
        begun = await store.begin_turn(
            run_id=f"r3-{loads_messages}",
            session_id="s",
            prompt=None,
            model="m",
            surface="codex",
            loads_messages=loads_messages,
        )
        assert (begun.thread, begun.last_run_id) == (thread, "r2")
        expected = await store.messages("s") if loads_messages else []
        assert await store.decode_messages(begun) == expected
    assert texts(expected) == [(0, "They met."), (1, "hello")]


async def test_a_failed_turn_keeps_its_error_and_what_was_said(store: Store) -> None:
    await store.add_session(id="s", agent_id="main")
    await store.begin_turn(run_id="r", session_id="s", prompt=None, model="m", surface="direct")

    await store.end_turn(
        "r", status="failed", messages=[user_message("hi")], usage=NO_USAGE, error="no\0 answer"
    )

    turn = await store.turn("r")
    assert turn is not None
    assert (turn.status, turn.error) == ("failed", "no\ufffd answer")
    assert len(await store.messages("s")) == 1


async def test_a_turn_is_ended_once(store: Store) -> None:
    await store.add_session(id="s", agent_id="main")
    await add_turn(store, "r", user_message("hi"))

    with pytest.raises(SessionError, match="'r' has ended already, as `completed`") as caught:
        await store.end_turn("r", status="aborted", messages=[answer("no")], usage=NO_USAGE)

    assert caught.value.code == "ended"
    assert texts(await store.messages("s")) == [(0, "hi")]


async def test_the_last_events_are_kept_with_the_turn_or_neither_is(store: Store) -> None:
    await store.add_session(id="s", agent_id="main")
    await store.begin_turn(run_id="r", session_id="s", prompt=None, model="m", surface="direct")
    event: JsonObject = {"kind": "turn.ended"}

    async def end() -> None:
        await store.end_turn(
            "r", status="completed", messages=[], usage=NO_USAGE, events=[event, event]
        )

    await end()
    with pytest.raises(SessionError):
        await end()
    stored = await store.events(run_id="r")
    assert [(it.session_id, it.event) for it in stored] == [("s", event)] * 2


async def test_a_turn_that_was_never_begun_cannot_end(store: Store) -> None:
    with pytest.raises(SessionError, match="there is no run 'r'") as caught:
        await store.end_turn("r", status="completed", messages=[], usage=NO_USAGE)

    assert caught.value.code == "not_found"


async def test_a_turn_cannot_end_as_running(store: Store) -> None:
    with pytest.raises(SessionError, match="cannot end as `running`"):
        await store.end_turn("r", status="running", messages=[], usage=NO_USAGE)


async def test_a_run_id_is_used_once(store: Store) -> None:
    await store.add_session(id="s", agent_id="main")
    await add_turn(store, "r")

    with pytest.raises(SessionError, match="there is a run 'r' already") as caught:
        await add_turn(store, "r")

    assert caught.value.code == "invalid"
    session = await store.session("s")
    assert session is not None
    assert session.turn_count == 1


async def test_a_turn_of_a_session_that_is_not_there_is_refused(store: Store) -> None:
    with pytest.raises(SessionError, match="there is no session 's'") as caught:
        await add_turn(store, "r")

    assert caught.value.code == "not_found"


async def test_only_an_exclusive_turn_minds_another_that_runs(store: Store) -> None:
    await store.add_session(id="s", agent_id="main")

    async def begin(run_id: str, *, is_exclusive: bool) -> None:
        await store.begin_turn(
            run_id=run_id,
            session_id="s",
            prompt=None,
            model="m",
            surface="direct",
            is_exclusive=is_exclusive,
        )

    await begin("r1", is_exclusive=True)
    await begin("r2", is_exclusive=False)
    with pytest.raises(SessionError, match=r"is busy: its run 'r[12]' has not ended") as caught:
        await begin("r3", is_exclusive=True)
    assert caught.value.code == "busy"
    for run_id in ("r1", "r2"):
        await store.end_turn(run_id, status="completed", messages=[], usage=NO_USAGE)

    await begin("r4", is_exclusive=True)

    assert [it.run_id for it in await store.turns("s")] == ["r1", "r2", "r4"]


async def test_turns_are_listed_oldest_first_and_the_last_ones_are_kept(store: Store) -> None:
    await store.add_session(id="s", agent_id="main")
    for number in range(4):
        await add_turn(store, f"r{number}")

    assert [it.run_id for it in await store.turns("s", limit=2)] == ["r2", "r3"]


async def test_what_is_not_json_fails_the_end_and_leaves_the_turn_open(store: Store) -> None:
    await store.add_session(id="s", agent_id="main")
    await store.begin_turn(run_id="r", session_id="s", prompt=None, model="m", surface="direct")
    odd: JsonObject = {"share": float("nan")}
    part = TextPart(text="hi", details=odd)

    with pytest.raises(StorageError, match=r"message 1 of r cannot be stored: .*nan"):
        await store.end_turn(
            "r",
            status="completed",
            messages=[user_message("hi"), AssistantMessage(parts=(part,))],
            usage=NO_USAGE,
        )

    assert await store.messages("s") == []
    await store.end_turn("r", status="completed", messages=[user_message("hi")], usage=NO_USAGE)
    assert len(await store.messages("s")) == 1


async def test_turns_that_end_at_once_number_their_messages_without_gaps(store: Store) -> None:
    await store.add_session(id="s", agent_id="main")

    async def turn(number: int) -> None:
        said = [user_message(f"{number}.{i}") for i in range(3)]
        await add_turn(store, f"r{number}", *said)

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            for number in range(20):
                tasks.start_soon(turn, number)

    stored = await store.messages("s")
    assert [it.sequence for it in stored] == list(range(60))
    # Those of one turn stand together and in order.
    whole = [text for _, text in texts(stored)]
    groups = [whole[i : i + 3] for i in range(0, 60, 3)]
    assert all(group == [f"{group[0][:-2]}.{i}" for i in range(3)] for group in groups)


async def test_a_summary_stands_for_all_messages_up_to_one(store: Store) -> None:
    await store.add_session(id="s", agent_id="main")
    for number in range(3):
        await add_turn(store, f"r{number}", user_message(f"q{number}"), answer(f"a{number}"))

    await store.add_compaction("s", up_to_sequence=1, summary="first")
    await store.add_compaction("s", up_to_sequence=3, summary="both")

    found = await store.messages("s")
    assert found[0] == StoredMessage(
        sequence=3, run_id="", message=SystemMessage(text="both"), is_summary=True
    )
    assert texts(found[1:]) == [(4, "q2"), (5, "a2")]
    assert len(await store.messages("s", whole=True)) == 6


async def test_the_messages_of_some_turns_are_read_without_the_others(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for session_id in ("s", "other"):
        await store.add_session(id=session_id, agent_id="main")
    for number in range(4):
        await add_turn(store, f"r{number}", user_message(f"q{number}"), answer(f"a{number}"))
    await store.add_compaction("s", up_to_sequence=3, summary="both")
    loaded: list[str] = []
    load = rows.load_message

    def count(content: str, name: str) -> Message:
        loaded.append(content)
        return load(content, name)

    monkeypatch.setattr(rows, "load_message", count)
    found = await store.messages_of_turns("s", ["r2", "r1", "gone", "\ud800"])
    assert texts(found) == [(2, "q1"), (3, "a1"), (4, "q2"), (5, "a2")]
    assert len(loaded) == 4
    assert await store.messages_of_turns("other", ["r1"]) == []
    assert await store.messages_of_turns("s", []) == []


async def test_a_summary_that_comes_with_the_end_of_a_turn_may_cover_it(store: Store) -> None:
    await store.add_session(id="s", agent_id="main")
    await add_turn(store, "r0", user_message("q0"))
    await store.begin_turn(run_id="r1", session_id="s", prompt=None, model="m", surface="direct")

    await store.end_turn(
        "r1",
        status="completed",
        messages=[user_message("q1"), answer("a1")],
        usage=NO_USAGE,
        compaction=Compaction(up_to_sequence=1, summary="q0 and q1"),
    )

    assert texts(await store.messages("s")) == [(1, "q0 and q1"), (2, "a1")]


async def test_a_summary_made_again_replaces_the_one_before(store: Store) -> None:
    await store.add_session(id="s", agent_id="main")
    await add_turn(store, "r0", user_message("q0"))

    for summary in ("bad", "good"):
        await store.add_compaction("s", up_to_sequence=0, summary=summary)

    assert texts(await store.messages("s")) == [(0, "good")]


@pytest.mark.parametrize("sequence", [-1, 1, 10**12])
async def test_a_summary_of_messages_that_are_not_there_is_refused(
    store: Store, sequence: int
) -> None:
    await store.add_session(id="s", agent_id="main")
    await add_turn(store, "r0", user_message("q0"))

    with pytest.raises(
        SessionError, match=f"cannot be summarized up to message {sequence}"
    ) as caught:
        await store.add_compaction("s", up_to_sequence=sequence, summary="")

    assert caught.value.code == "invalid"


async def test_a_refused_summary_takes_back_the_end_of_the_turn(store: Store) -> None:
    await store.add_session(id="s", agent_id="main")
    await store.begin_turn(run_id="r", session_id="s", prompt=None, model="m", surface="direct")

    with pytest.raises(SessionError, match="up to message 7;"):
        await store.end_turn(
            "r",
            status="completed",
            messages=[user_message("hi")],
            usage=NO_USAGE,
            compaction=Compaction(up_to_sequence=7, summary=""),
        )

    turn = await store.turn("r")
    assert turn is not None
    assert turn.status == "running"
    assert await store.messages("s") == []


async def test_texts_of_every_kind_come_back(store: Store) -> None:
    await store.add_session(id="s", agent_id="main")
    text = "\0 \x1b[31m é 𝄞 \u202e ' \" \\ %s :name \n\r\n" + "x" * 300_000

    await add_turn(store, "r", user_message(text), user_message("half \ud83d"))

    assert texts(await store.messages("s")) == [(0, text), (1, "half \ufffd")]


async def test_a_number_that_no_column_holds_fails_the_end_and_leaves_the_turn_open(
    store: Store,
) -> None:
    await store.add_session(id="s", agent_id="main")
    await store.begin_turn(run_id="r", session_id="s", prompt=None, model="m", surface="direct")

    with pytest.raises(StorageError):
        usage = Usage(input_tokens=10**30)
        await store.end_turn("r", status="completed", messages=[user_message("a")], usage=usage)

    turn = await store.turn("r")
    assert turn is not None and turn.status == "running"
    assert await store.messages("s") == []


async def test_events_come_back_in_order_and_from_where_somebody_left_off(store: Store) -> None:
    one: list[JsonObject] = [{"sequence": i, "kind": "call.started"} for i in range(3)]
    await store.add_events("r1", "s", one)
    await store.add_events("r2", "s", [{"sequence": 0, "kind": "call.started", "data": {"a": 1}}])
    await store.add_events("r1", "s", [{"sequence": 3, "kind": "call.ended"}])
    await store.add_events("r1", "s", [])

    found = await store.events(run_id="r1")
    assert [it.event["sequence"] for it in found] == [0, 1, 2, 3]
    assert await store.events(run_id="r1", after=found[1].number) == found[2:]
    assert await store.events(run_id="r1", limit=1) == found[:1]
    of_session = await store.events(session_id="s")
    assert [it.run_id for it in of_session] == ["r1", "r1", "r1", "r2", "r1"]
    assert await store.events(session_id="s", run_id="r2") == [of_session[3]]


async def test_a_cancelled_caller_does_not_cut_a_turn_in_half(store: Store) -> None:
    await store.add_session(id="s", agent_id="main")
    await store.begin_turn(run_id="r", session_id="s", prompt=None, model="m", surface="direct")

    async with anyio.create_task_group() as tasks:

        async def end() -> None:
            await store.end_turn(
                "r", status="completed", messages=[user_message("hi")], usage=NO_USAGE
            )

        tasks.start_soon(end)
        await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()

    turn = await store.turn("r")
    assert turn is not None
    assert (turn.status, len(await store.messages("s"))) in [("completed", 1), ("running", 0)]
    await add_turn(store, "r2", user_message("and on"))


async def test_a_session_has_one_thread_which_goes_with_it(store: Store) -> None:
    for session_id in ("a", "b"):
        await store.add_session(id=session_id, agent_id="main")
    first = ThreadRecord(
        session_id="a", thread_id="t1", data={"model": "gpt-5.5"}, created=1.0, updated=2.0
    )
    await store.put_thread(first)
    second = replace(first, thread_id="t2", data={}, updated=3.0)
    await store.put_thread(second)
    other = replace(first, session_id="b", updated=2.5)
    await store.put_thread(other)

    assert await store.thread("a") == second
    assert await store.threads() == [second, other]
    assert await store.threads(limit=1) == [second]
    assert await store.delete_thread("a")
    assert not await store.delete_thread("a")
    assert await store.delete_session("b")
    assert await store.threads() == []
    assert await store.thread("\0") is None


async def test_a_value_is_added_once_until_it_expires(store: Store) -> None:
    assert await store.add_value("a", "k", {"n": 1}, seconds=3600) is None
    assert await store.add_value("a", "k", {"n": 2}, seconds=3600) == {"n": 1}
    assert await store.add_value("b", "k", {"n": 3}, seconds=3600) is None
    await store.put_value("a", "k", {"n": 4}, seconds=3600)
    assert await store.value("a", "k") == {"n": 4}

    await store.put_value("a", "k", {"n": 5}, seconds=-1)
    assert await store.value("a", "k") is None
    assert await store.add_value("a", "k", {"n": 6}, seconds=3600) is None
    await store.delete_value("a", "k")
    assert await store.value("a", "k") is None
    assert await store.value("b", "k") == {"n": 3}
    assert await store.value("b", "\0") is None


async def test_a_message_of_another_runtime_is_in_a_session_once(store: Store) -> None:
    await store.add_session(id="s", agent_id="main")
    await store.add_session(id="other", agent_id="main")
    prompt = replace(user_message("hi"), identity="codex:t:1:prompt")
    said = replace(answer("hello"), identity="codex:t:1:assistant")

    async def turn(number: int) -> None:
        # Redaction may have changed the text: the identity counts.
        again = replace(answer(f"hello {number}"), identity=said.identity)
        await add_turn(store, f"r{number}", prompt, again, user_message(f"own {number}"))

    await add_turn(store, "first", prompt, said)
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            for number in range(5):
                tasks.start_soon(turn, number)

    stored = texts(await store.messages("s"))
    assert stored[:2] == [(0, "hi"), (1, "hello")]
    assert sorted(text for _, text in stored[2:]) == [f"own {number}" for number in range(5)]
    assert [sequence for sequence, _ in stored] == list(range(7))
    # A turn that was stored is not changed any more, and other sessions are not concerned.
    await store.add_to_interrupted("first", [replace(answer("late"), identity="codex:t:2")])
    assert texts(await store.messages("s")) == stored
    await store.begin_turn(run_id="o", session_id="other", prompt=None, model="", surface="")
    await store.end_turn("o", status="completed", messages=[prompt], usage=NO_USAGE)
    assert texts(await store.messages("other")) == [(0, "hi")]


async def test_one_message_is_found_by_its_place(store: Store) -> None:
    await store.add_session(id="s", agent_id="main")
    await add_turn(store, "r1", user_message("hi"), answer("hello"))

    found = await store.message("s", 1)

    assert found is not None
    assert (found.sequence, found.run_id, found.message) == (1, "r1", answer("hello"))
    assert await store.message("s", 2) is None
    assert await store.message("s", -1) is None
    assert await store.message("other", 0) is None
    assert await store.message("\0", 0) is None
