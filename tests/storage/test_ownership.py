"""Turns of dead processes are interrupted, and turns of living processes are not."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from nacre.errors import SessionError
from nacre.messages import Usage, user_message
from nacre.storage import ApprovalRecord, Store, open_store

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


async def begin(store: Store, run_id: str) -> None:
    await store.add_session(id="s", agent_id="main")
    await store.begin_turn(
        run_id=run_id, session_id="s", prompt=user_message("hi"), model="", surface=""
    )


def approval(id: str, run_id: str) -> ApprovalRecord:
    return ApprovalRecord(
        id=id,
        session_id="s",
        run_id=run_id,
        tool_id="openclaw:core:send",
        tool_name="send",
        input={},
        created=1.0,
        expires=2.0,
    )


async def statuses(store: Store) -> dict[str, str]:
    return {turn.run_id: turn.status for turn in await store.turns("s")}


@asynccontextmanager
async def two_stores(url: str) -> AsyncGenerator[tuple[Store, Store]]:
    async with open_store(url) as one, open_store(url) as other:
        yield one, other


async def test_the_turns_of_a_store_that_is_gone_are_interrupted(shared_url: str) -> None:
    async with open_store(shared_url) as store:
        await begin(store, "r1")
    async with open_store(shared_url) as store:
        await begin(store, "r2")

        assert await store.interrupt_open_turns() == 1

        assert await statuses(store) == {"r1": "interrupted", "r2": "running"}
        turn = await store.turn("r1")
        assert turn is not None
        assert (turn.prompt, turn.ended) == (user_message("hi"), None)
        assert await store.messages("s") == []
        assert await store.interrupt_open_turns() == 0


async def test_the_open_approvals_of_interrupted_turns_are_given_up(shared_url: str) -> None:
    async with open_store(shared_url) as store:
        await begin(store, "r1")
        await store.approvals.put(approval("gone", "r1"))
    async with open_store(shared_url) as store:
        await begin(store, "r2")
        await store.approvals.put(approval("here", "r2"))

        await store.interrupt_open_turns()

        kept = {it.id: it for it in await store.approvals.find_all()}
        assert (kept["gone"].state, kept["here"].state) == ("given_up", "open")
        assert kept["gone"].answer == {"answer": "withdrawn"}
        assert kept["gone"].answered is not None
        assert [it.id for it in await store.approvals.find_all(is_closed=True)] == ["gone"]
        assert {it.agent_id for it in kept.values()} == {"main"}


async def test_the_turns_of_another_store_that_is_open_go_on(shared_url: str) -> None:
    async with two_stores(shared_url) as (one, other):
        await begin(one, "r1")
        await begin(other, "r2")

        assert await one.interrupt_open_turns() == await other.interrupt_open_turns() == 0

        assert await statuses(one) == {"r1": "running", "r2": "running"}
        await one.end_turn("r1", status="completed", messages=[], usage=Usage())


async def test_an_interrupted_turn_that_ends_after_all_is_kept(shared_url: str) -> None:
    async with open_store(shared_url) as store:
        await begin(store, "r")
    async with open_store(shared_url) as store:
        await store.interrupt_open_turns()

        await store.end_turn("r", status="completed", messages=[user_message("hi")], usage=Usage())

        assert await statuses(store) == {"r": "completed"}
        assert len(await store.messages("s")) == 1
        with pytest.raises(SessionError, match="has ended already"):
            await store.end_turn("r", status="completed", messages=[], usage=Usage())


async def test_a_turn_that_was_ended_as_interrupted_is_over(shared_url: str) -> None:
    async with open_store(shared_url) as store:
        await begin(store, "r")
        said = [user_message("hi")]
        await store.end_turn("r", status="interrupted", messages=said, usage=Usage())

        with pytest.raises(SessionError, match="ended already, as `interrupted`"):
            await store.end_turn("r", status="completed", messages=said, usage=Usage())


async def test_in_memory_all_turns_are_its_own() -> None:
    async with open_store("sqlite:///:memory:") as store:
        await begin(store, "r")
        assert await store.interrupt_open_turns() == 0
