"""Open questions: shown to every reader, answered once, and a clear word for a late answer."""

from dataclasses import replace

import anyio
import pytest

from nacre.errors import ApprovalError, ToolInputError
from nacre.json_types import JsonObject
from nacre.run_context import RunContext
from nacre.tools.approvals import AllowEdited, AllowOnce, ApprovalQueue, ApprovalRequest


def request(name: str) -> ApprovalRequest:
    return ApprovalRequest(
        id=name,
        tool_id="openclaw:core:send",
        tool_name="send",
        input={},
        reason="",
        context=RunContext(),
        call_id="c",
        parent_id="",
        created=0.0,
        expires=1.0,
    )


async def test_a_loop_gives_open_questions_first_and_then_each_as_it_comes() -> None:
    queue = ApprovalQueue()
    seen: list[str] = []

    async def read() -> None:
        async for found in queue:
            see(found)

    def see(found: ApprovalRequest) -> None:
        seen.append(found.id)

    with queue.asking(request("a")), queue.asking(request("b")):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            await anyio.wait_all_tasks_blocked()
            assert seen == ["a", "b"]
            with queue.asking(request("c")):
                await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
    assert seen == ["a", "b", "c"]


async def test_every_loop_sees_every_question() -> None:
    queue = ApprovalQueue()
    readers = [aiter(queue), aiter(queue)]
    with queue.asking(request("a")), anyio.fail_after(5):
        assert [(await anext(reader)).id for reader in readers] == ["a", "a"]


async def test_a_loop_leaves_out_what_was_answered_before_it_came_by() -> None:
    queue = ApprovalQueue()
    reader = aiter(queue)
    with queue.asking(request("a")), queue.asking(request("b")), anyio.fail_after(5):
        queue.answer("a", "deny")
        assert (await anext(reader)).id == "b"


async def test_an_answer_reaches_the_one_who_asked_and_takes_the_question_away() -> None:
    queue = ApprovalQueue()
    with queue.asking(request("a")) as asked:
        queue.answer("a", "allow-once")
        assert asked.is_answered.is_set()
        assert asked.decided == AllowOnce()
        assert queue.pending == ()


async def test_a_question_is_answered_once() -> None:
    queue = ApprovalQueue()
    with queue.asking(request("a")) as asked:
        queue.answer("a", "allow-once")
        with pytest.raises(match="'a' was answered already"):
            queue.answer("a", "deny")
        assert asked.decided == AllowOnce()


async def test_a_late_answer_is_told_that_the_question_is_closed() -> None:
    queue = ApprovalQueue()
    with queue.asking(request("a")):
        pass
    with pytest.raises(match="'a' has expired, or its call was given up"):
        queue.answer("a", "allow-once")


async def test_an_answer_to_no_question_is_refused() -> None:
    with pytest.raises(match="was never asked"):
        ApprovalQueue().answer("x" * 10_000, "allow-once")


async def test_what_is_no_answer_leaves_the_question_open() -> None:
    queue = ApprovalQueue()
    with queue.asking(request("a")) as asked:
        with pytest.raises(match="allowed: "):
            queue.answer("a", "maybe")  # pyright: ignore[reportArgumentType]
        assert asked.decided is None
        assert [it.id for it in queue.pending] == ["a"]


async def test_a_change_wakes_who_waits_for_it() -> None:
    queue = ApprovalQueue()
    changes: list[int] = []

    async def watch() -> None:
        while True:
            await queue.changed()
            changes.append(len(queue.pending))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch)
        await anyio.wait_all_tasks_blocked()
        with queue.asking(request("a")):
            await anyio.wait_all_tasks_blocked()
            queue.answer("a", "deny")
            await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    assert changes == [1, 0]


async def test_a_listener_is_told_at_once_of_every_question_and_its_end() -> None:
    queue = ApprovalQueue()
    told: list[tuple[str, object, bool]] = []
    stop = queue.listen(lambda asked, decided, is_open: told.append((asked.id, decided, is_open)))
    with queue.asking(request("a")):
        queue.answer("a", "allow-once")
    with queue.asking(request("b")):
        pass
    stop()
    with queue.asking(request("c")):
        pass
    assert told == [
        ("a", None, True),
        ("a", AllowOnce(), False),
        ("b", None, True),
        ("b", None, False),
    ]


async def test_a_listener_that_fails_holds_up_nobody() -> None:
    queue = ApprovalQueue()

    def fail(*_told: object) -> None:
        raise ValueError("a bug")

    queue.listen(fail)
    with queue.asking(request("a")) as question:
        queue.answer("a", "allow-once")
    assert question.decided == AllowOnce()


async def test_an_edited_input_that_does_not_fit_leaves_the_question_open() -> None:
    def check(given: JsonObject) -> None:
        if "to" not in given:
            raise ToolInputError("`to` is missing", tool_id="send")

    queue = ApprovalQueue()
    with queue.asking(replace(request("a"), check=check)) as asked:
        with pytest.raises(ApprovalError, match="`to` is missing"):
            queue.answer("a", AllowEdited({"too": 1}))
        assert not asked.is_answered.is_set()
        queue.answer("a", AllowEdited({"to": "Ada"}))
        assert asked.decided == AllowEdited({"to": "Ada"})
