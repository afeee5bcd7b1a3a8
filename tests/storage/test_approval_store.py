"""Approvals and their answers, on every kind of database."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from nacre.errors import SessionError
from nacre.storage import ApprovalRecord

if TYPE_CHECKING:
    from nacre.storage import Store


def approval(id: str, *, session_id: str = "s", created: float = 1.0) -> ApprovalRecord:
    return ApprovalRecord(
        id=id,
        session_id=session_id,
        run_id="r",
        tool_id="openclaw:core:pay",
        tool_name="pay",
        input={"to": "Ada"},
        reason="a large amount",
        call_id="c1",
        parent_id="c0",
        created=created,
        expires=created + 3600,
    )


async def test_an_approval_is_asked_and_then_answered(store: Store) -> None:
    asked = approval("a1")
    await store.approvals.put(asked)
    assert await store.approvals.find_all() == [asked]

    answered = replace(
        asked, state="denied", answer={"answer": "deny"}, answered_by="Grace", answered=2.0
    )
    await store.approvals.put(answered)

    assert await store.approvals.find_all() == [answered]


async def test_several_approvals_are_stored_together_or_not_at_all(store: Store) -> None:
    await store.approvals.put(approval("a1"), approval("a2"))
    with pytest.raises(SessionError):
        await store.approvals.put(approval("a3"), approval("bad\0"))

    assert {it.id for it in await store.approvals.find_all()} == {"a1", "a2"}


async def test_approvals_are_listed_by_session_and_the_last_first(store: Store) -> None:
    for number in range(3):
        await store.approvals.put(approval(f"a{number}", created=float(number)))
    await store.approvals.put(approval("b", session_id="other"))

    assert [it.id for it in await store.approvals.find_all(session_id="s")] == ["a2", "a1", "a0"]
    assert [it.id for it in await store.approvals.find_all(limit=2)] == ["a2", "b"]


async def test_secrets_in_an_approval_are_not_kept(store: Store) -> None:
    await store.approvals.put(replace(approval("a"), input={"to": "Ada", "password": "hunter2"}))

    (kept,) = await store.approvals.find_all()
    assert "hunter2" not in str(kept)
    assert kept.input["to"] == "Ada"
