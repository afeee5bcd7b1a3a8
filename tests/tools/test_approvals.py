"""Approvals: asking, the queue of open requests, and remembered decisions."""

import asyncio
import threading
import time
from dataclasses import replace

import anyio
import anyio.lowlevel
import pytest

from nacre.errors import ApprovalError, ConfigError, ToolInputError
from nacre.json_types import JsonObject, NotJsonError
from nacre.run_context import RunContext
from nacre.tools.approvals import (
    AllowAlways,
    AllowEdited,
    AllowOnce,
    ApprovalInfo,
    ApprovalMemory,
    ApprovalQueue,
    ApprovalRequest,
    Approvals,
    Approver,
    Deny,
    Granted,
    Refused,
)

CONTEXT = RunContext(session_id="s")


class HeldApprover:
    """Keeps every question until the test answers it."""

    def __init__(self) -> None:
        self.requests: list[ApprovalRequest] = []
        self.at_once = 0
        self.most_at_once = 0
        self._answers: dict[str, ApprovalInfo] = {}
        self._answered: dict[str, anyio.Event] = {}
        self._asked = anyio.Event()

    async def __call__(self, request: ApprovalRequest, /) -> ApprovalInfo:
        self.requests.append(request)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        self._answered[request.call_id] = anyio.Event()
        asked, self._asked = self._asked, anyio.Event()
        asked.set()
        try:
            await self._answered[request.call_id].wait()
            return self._answers[request.call_id]
        finally:
            self.at_once -= 1

    async def asked_about(self, call_id: str) -> None:
        with anyio.fail_after(30):
            while call_id not in self._answered:
                await self._asked.wait()

    def answer(self, call_id: str, answer: ApprovalInfo) -> None:
        self._answers[call_id] = answer
        self._answered[call_id].set()


class Asker:
    """Asks in tasks and keeps what came of it, by call id."""

    def __init__(self, approvals: Approvals) -> None:
        self._approvals = approvals
        self.outcomes: dict[str, Granted | Refused] = {}

    async def ask(self, call_id: str) -> None:
        self.outcomes[call_id] = await ask(self._approvals, call_id=call_id)

    async def ask_with_own_input(self, call_id: str) -> None:
        input: JsonObject = {"call": call_id}
        self.outcomes[call_id] = await ask(self._approvals, call_id=call_id, input=input)


async def ask(
    approvals: Approvals, *, call_id: str = "c1", input: JsonObject | None = None
) -> Granted | Refused:
    with anyio.fail_after(30):
        return await approvals.request(
            tool_id="openclaw:core:send",
            tool_name="send",
            input={"to": "a"} if input is None else input,
            reason="it writes",
            context=CONTEXT,
            call_id=call_id,
            parent_id="p",
        )


def always_answering(answer: object) -> Approver:
    async def approver(request: ApprovalRequest, /) -> ApprovalInfo:
        return answer  # pyright: ignore[reportReturnType]

    return approver


def stand_still_until(moment: float) -> None:
    """Let time pass in which the event loop does nothing."""
    while time.time() < moment:
        pass


async def outcome_of(answer: object) -> Granted | Refused:
    return await ask(Approvals(always_answering(answer)))


async def test_a_synchronous_approver_is_called_in_a_thread() -> None:
    loop_thread, threads = threading.get_ident(), list[int]()

    def approver(request: ApprovalRequest, /) -> ApprovalInfo:
        threads.append(threading.get_ident())
        return "allow-once"

    assert await ask(Approvals(approver)) == Granted(input={"to": "a"})
    assert threads != [loop_thread]
    # A function that returns a coroutine is not a coroutine function.
    later = always_answering("allow-once")
    assert await ask(Approvals(lambda request: later(request))) == Granted(input={"to": "a"})


def test_an_approver_that_cannot_be_called_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="`approvals` is a bool; allowed: a function"):
        Approvals(True)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("answer", ["allow-once", "allow-always", AllowOnce(), AllowAlways()])
async def test_a_yes_grants_the_input_that_was_asked_about(answer: object) -> None:
    assert await outcome_of(answer) == Granted(input={"to": "a"})


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("deny", "the approval was denied"),
        (Deny(), "the approval was denied"),
        (Deny("not today"), "the approval was denied: not today"),
    ],
)
async def test_a_no_refuses_with_its_reason(answer: object, reason: str) -> None:
    assert await outcome_of(answer) == Refused(code="approval_denied", reason=reason)


async def test_an_edited_input_replaces_the_one_that_was_asked_about() -> None:
    edited: JsonObject = {"to": "b"}
    outcome = await outcome_of(AllowEdited(edited))
    edited["to"] = "changed later"
    assert outcome == Granted(input={"to": "b"}, is_edited=True)


@pytest.mark.parametrize(
    "answer",
    [
        None,
        True,
        "yes",
        "ALLOW-ONCE",
        {"allow": True},
        AllowOnce,
        AllowEdited("text"),  # pyright: ignore[reportArgumentType]
        AllowEdited({"x": object()}),  # pyright: ignore[reportArgumentType]
        Deny(3),  # pyright: ignore[reportArgumentType]
    ],
)
async def test_what_is_no_answer_is_a_no_and_logged(
    answer: object, caplog: pytest.LogCaptureFixture
) -> None:
    refused = Refused(code="approval_denied", reason="the approval was denied: the approver failed")
    assert await outcome_of(answer) == refused
    assert "the approver failed for a call of openclaw:core:send" in caplog.text


async def test_an_approver_that_raises_is_a_no_and_its_words_stay_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def broken(request: ApprovalRequest, /) -> ApprovalInfo:
        raise RuntimeError("secret place")

    outcome = await ask(Approvals(broken))
    assert isinstance(outcome, Refused)
    assert outcome.code == "approval_denied"
    assert "secret" not in outcome.reason
    assert "secret place" in caplog.text


async def test_an_approver_that_is_cancelled_from_elsewhere_is_a_no() -> None:
    async def cancelled(request: ApprovalRequest, /) -> ApprovalInfo:
        raise asyncio.CancelledError

    outcome = await ask(Approvals(cancelled))
    assert isinstance(outcome, Refused)
    assert outcome.code == "approval_denied"


async def test_where_nobody_is_there_the_answer_is_no_at_once() -> None:
    outcome = await ask(Approvals(None))
    assert isinstance(outcome, Refused)
    assert outcome.code == "approval_denied"
    assert "nobody to approve it" in outcome.reason


async def test_the_request_says_what_who_and_until_when() -> None:
    held = HeldApprover()
    approvals = Approvals(held, ttl_seconds=60)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Asker(approvals).ask, "c1")
        await held.asked_about("c1")
        held.answer("c1", "deny")
    (request,) = held.requests
    assert request.id.startswith("approval_")
    assert (request.tool_id, request.tool_name) == ("openclaw:core:send", "send")
    assert (request.input, request.reason) == ({"to": "a"}, "it writes")
    assert (request.call_id, request.parent_id) == ("c1", "p")
    assert request.context is CONTEXT
    assert request.expires == request.created + 60


async def test_what_is_agreed_to_is_what_is_granted_whoever_changes_the_dict_meanwhile() -> None:
    given: JsonObject = {"to": ["a"]}

    async def meddling(request: ApprovalRequest, /) -> ApprovalInfo:
        request.input["to"] = "the approver's own"
        given["to"] = "the caller's own"
        return "allow-once"

    assert await ask(Approvals(meddling), input=given) == Granted(input={"to": ["a"]})


async def test_an_input_that_is_not_json_is_the_callers_fault() -> None:
    with pytest.raises(NotJsonError):
        await ask(Approvals(None), input={"x": object()})  # pyright: ignore[reportArgumentType]


async def test_an_approver_is_asked_one_question_at_a_time_in_order() -> None:
    held = HeldApprover()
    asker = Asker(Approvals(held))
    async with anyio.create_task_group() as tasks:
        for call_id in ("c1", "c2", "c3"):
            tasks.start_soon(asker.ask_with_own_input, call_id)
            await anyio.wait_all_tasks_blocked()
        assert [request.call_id for request in held.requests] == ["c1"]
        for call_id in ("c1", "c2", "c3"):
            await held.asked_about(call_id)
            held.answer(call_id, "allow-once")
    assert [request.call_id for request in held.requests] == ["c1", "c2", "c3"]
    assert held.most_at_once == 1
    assert asker.outcomes == {
        call_id: Granted(input={"call": call_id}) for call_id in ("c1", "c2", "c3")
    }


async def test_a_question_that_always_answers_is_not_asked_again_even_if_it_stood_in_line() -> None:
    held = HeldApprover()
    memory = ApprovalMemory()
    asker = Asker(Approvals(held, memory=memory))
    async with anyio.create_task_group() as tasks:
        for call_id in ("c1", "c2"):
            tasks.start_soon(asker.ask, call_id)
            await anyio.wait_all_tasks_blocked()
        held.answer("c1", "allow-always")
    assert len(held.requests) == 1
    assert asker.outcomes == {
        "c1": Granted(input={"to": "a"}),
        "c2": Granted(input={"to": "a"}, is_remembered=True),
    }
    elsewhere = await ask(Approvals(None, memory=memory))
    assert elsewhere == Granted(input={"to": "a"}, is_remembered=True)


async def test_always_is_for_this_input_only() -> None:
    approvals = Approvals(always_answering("allow-always"))
    await ask(approvals)
    outcome = await ask(approvals, input={"to": "b"})
    assert outcome == Granted(input={"to": "b"}, is_remembered=False)


async def test_a_yes_for_once_is_not_remembered() -> None:
    held = HeldApprover()
    asker = Asker(Approvals(held))
    async with anyio.create_task_group() as tasks:
        for call_id in ("c1", "c2"):
            tasks.start_soon(asker.ask, call_id)
            await held.asked_about(call_id)
            held.answer(call_id, "allow-once")
    assert len(held.requests) == 2


async def test_an_edited_input_is_not_remembered() -> None:
    approvals = Approvals(always_answering(AllowEdited({"to": "b"})))
    await ask(approvals)
    outcome = await ask(approvals, input={"to": "b"})
    assert isinstance(outcome, Granted)
    assert not outcome.is_remembered


async def test_a_question_that_nobody_answers_expires() -> None:
    held = HeldApprover()
    outcome = await ask(Approvals(held, ttl_seconds=0.01))
    assert outcome == Refused(
        code="approval_expired",
        reason="nobody answered within 0.01 seconds; the call was not made",
    )
    assert held.at_once == 0


async def test_the_time_of_a_question_in_line_starts_when_it_is_asked() -> None:
    ttl_seconds = 0.2

    async def slow_to_give_up(request: ApprovalRequest, /) -> ApprovalInfo:
        if request.call_id == "c2":
            return "allow-once"
        try:
            await anyio.sleep_forever()
        finally:
            # Until the second's time would be over as well, had it run since it stood in line.
            stand_still_until(request.expires + 2 * ttl_seconds)
        return "deny"

    asker = Asker(Approvals(slow_to_give_up, ttl_seconds=ttl_seconds))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(asker.ask_with_own_input, "c1")
        tasks.start_soon(asker.ask_with_own_input, "c2")
    assert asker.outcomes["c2"] == Granted(input={"call": "c2"})
    first = asker.outcomes["c1"]
    assert isinstance(first, Refused)
    assert first.code == "approval_expired"


@pytest.mark.parametrize("cancelled", ["c1", "c2"])
async def test_cancelling_an_ask_that_is_open_or_in_line_does_not_hold_up_the_next(
    cancelled: str,
) -> None:
    held = HeldApprover()
    asker = Asker(Approvals(held))
    scopes = {call_id: anyio.CancelScope() for call_id in ("c1", "c2", "c3")}
    others = sorted(scopes.keys() - {cancelled})

    async def run(call_id: str) -> None:
        with scopes[call_id]:
            await asker.ask_with_own_input(call_id)

    async with anyio.create_task_group() as tasks:
        for call_id in scopes:
            tasks.start_soon(run, call_id)
            await anyio.wait_all_tasks_blocked()
        scopes[cancelled].cancel()
        for call_id in others:
            await held.asked_about(call_id)
            held.answer(call_id, "allow-once")
    assert sorted(asker.outcomes) == others


async def test_a_queue_shows_all_questions_at_once_and_each_is_answered_by_its_id() -> None:
    queue = ApprovalQueue()
    asker = Asker(Approvals(queue))
    async with anyio.create_task_group() as tasks:
        for call_id in ("c1", "c2", "c3"):
            tasks.start_soon(asker.ask_with_own_input, call_id)
        await anyio.wait_all_tasks_blocked()
        by_call = {request.call_id: request for request in queue.pending}
        assert list(by_call) == ["c1", "c2", "c3"]
        queue.answer(by_call["c2"].id, "allow-once")
        queue.answer(by_call["c3"].id, Deny("no"))
        await anyio.wait_all_tasks_blocked()
        assert sorted(asker.outcomes) == ["c2", "c3"]
        queue.answer(by_call["c1"].id, AllowEdited({"call": "edited"}))
    assert asker.outcomes == {
        "c1": Granted(input={"call": "edited"}, is_edited=True),
        "c2": Granted(input={"call": "c2"}),
        "c3": Refused(code="approval_denied", reason="the approval was denied: no"),
    }


async def test_a_question_in_a_queue_expires_and_is_gone() -> None:
    queue = ApprovalQueue()
    outcome = await ask(Approvals(queue, ttl_seconds=0.01))
    assert isinstance(outcome, Refused)
    assert outcome.code == "approval_expired"
    assert queue.pending == ()


async def test_a_cancelled_ask_takes_its_question_out_of_the_queue() -> None:
    queue = ApprovalQueue()
    requests: list[ApprovalRequest] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(Asker(Approvals(queue)).ask, "c1")
        await anyio.wait_all_tasks_blocked()
        requests.extend(queue.pending)
        tasks.cancel_scope.cancel()
    assert queue.pending == ()
    with pytest.raises(match="its call was cancelled"):
        queue.answer(requests[0].id, "allow-once")


async def test_an_answer_that_was_taken_counts_when_time_runs_out_in_the_same_moment() -> None:
    queue = ApprovalQueue()
    asker = Asker(Approvals(queue, ttl_seconds=1))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(asker.ask, "c1")
        await anyio.wait_all_tasks_blocked()
        (request,) = queue.pending
        # The loop stands still until the time is over; in its next turn both happen, the answer
        # first.
        stand_still_until(request.expires + 0.01)
        await anyio.lowlevel.checkpoint()
        queue.answer(request.id, "allow-once")
    assert asker.outcomes["c1"] == Granted(input={"to": "a"})


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

    with queue.open_request(request("a")), queue.open_request(request("b")):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            await anyio.wait_all_tasks_blocked()
            assert seen == ["a", "b"]
            with queue.open_request(request("c")):
                await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
    assert seen == ["a", "b", "c"]


async def test_every_loop_sees_every_question() -> None:
    queue = ApprovalQueue()
    readers = [aiter(queue), aiter(queue)]
    with queue.open_request(request("a")), anyio.fail_after(5):
        assert [(await anext(reader)).id for reader in readers] == ["a", "a"]


async def test_a_loop_leaves_out_what_was_answered_before_it_came_by() -> None:
    queue = ApprovalQueue()
    reader = aiter(queue)
    with queue.open_request(request("a")), queue.open_request(request("b")), anyio.fail_after(5):
        queue.answer("a", "deny")
        assert (await anext(reader)).id == "b"


async def test_an_answer_reaches_the_one_who_asked_and_takes_the_question_away() -> None:
    queue = ApprovalQueue()
    with queue.open_request(request("a")) as asked:
        queue.answer("a", "allow-once")
        assert asked.has_decision.is_set()
        assert asked.decision == AllowOnce()
        assert queue.pending == ()


async def test_a_question_is_answered_once() -> None:
    queue = ApprovalQueue()
    with queue.open_request(request("a")) as asked:
        queue.answer("a", "allow-once")
        with pytest.raises(match="'a' was answered already"):
            queue.answer("a", "deny")
        assert asked.decision == AllowOnce()


async def test_a_late_answer_is_told_that_the_question_is_closed() -> None:
    queue = ApprovalQueue()
    with queue.open_request(request("a")):
        pass
    with pytest.raises(match="'a' has expired, or its call was cancelled"):
        queue.answer("a", "allow-once")


async def test_an_answer_to_no_question_is_refused() -> None:
    with pytest.raises(match="does not exist"):
        ApprovalQueue().answer("x" * 10_000, "allow-once")


async def test_what_is_no_answer_leaves_the_question_open() -> None:
    queue = ApprovalQueue()
    with queue.open_request(request("a")) as asked:
        with pytest.raises(match="allowed: "):
            queue.answer("a", "maybe")  # pyright: ignore[reportArgumentType]
        assert asked.decision is None
        assert [it.id for it in queue.pending] == ["a"]


async def test_a_change_wakes_who_waits_for_it() -> None:
    queue = ApprovalQueue()
    changes: list[int] = []

    async def watch() -> None:
        while True:
            await queue.wait_for_change()
            changes.append(len(queue.pending))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch)
        await anyio.wait_all_tasks_blocked()
        with queue.open_request(request("a")):
            await anyio.wait_all_tasks_blocked()
            queue.answer("a", "deny")
            await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    assert changes == [1, 0]


async def test_a_listener_is_told_at_once_of_every_question_and_its_end() -> None:
    queue = ApprovalQueue()
    told: list[tuple[str, object, bool]] = []
    stop = queue.listen(lambda asked, decided, is_open: told.append((asked.id, decided, is_open)))
    with queue.open_request(request("a")):
        queue.answer("a", "allow-once")
    with queue.open_request(request("b")):
        pass
    stop()
    with queue.open_request(request("c")):
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
    with queue.open_request(request("a")) as question:
        queue.answer("a", "allow-once")
    assert question.decision == AllowOnce()


async def test_an_edited_input_that_does_not_fit_leaves_the_question_open() -> None:
    def check(given: JsonObject) -> None:
        if "to" not in given:
            raise ToolInputError("`to` is missing", tool_id="send")

    queue = ApprovalQueue()
    with queue.open_request(replace(request("a"), check=check)) as asked:
        with pytest.raises(ApprovalError, match="`to` is missing"):
            queue.answer("a", AllowEdited({"too": 1}))
        assert not asked.has_decision.is_set()
        queue.answer("a", AllowEdited({"to": "Ada"}))
        assert asked.decision == AllowEdited({"to": "Ada"})


MEMORY_CONTEXT = RunContext(agent_id="main", session_id="s1", session_key="k1")
INPUT: JsonObject = {"to": "a", "options": {"b": 1, "c": [True, None]}}


def memory_of_one() -> ApprovalMemory:
    memory = ApprovalMemory()
    memory.remember(tool_id="t", input=INPUT, context=MEMORY_CONTEXT)
    return memory


def test_another_run_of_the_session_finds_it_whatever_the_order_of_keys() -> None:
    again: JsonObject = {"options": {"c": [True, None], "b": 1}, "to": "a"}
    context = replace(MEMORY_CONTEXT, run_id="another", sender="somebody")
    assert memory_of_one().contains(tool_id="t", input=again, context=context)


@pytest.mark.parametrize(
    "context",
    [
        replace(MEMORY_CONTEXT, session_id="s2"),
        replace(MEMORY_CONTEXT, session_key="k2"),
        replace(MEMORY_CONTEXT, agent_id="other"),
    ],
)
def test_another_session_or_agent_does_not_find_it(context: RunContext) -> None:
    assert not memory_of_one().contains(tool_id="t", input=INPUT, context=context)


@pytest.mark.parametrize(
    "input",
    [
        {},
        {**INPUT, "to": "A"},
        {**INPUT, "more": None},
        {**INPUT, "options": {"b": 1.0, "c": [True, None]}},
        {**INPUT, "options": {"b": True, "c": [True, None]}},
        {**INPUT, "options": {"b": 1, "c": [None, True]}},
    ],
)
def test_another_input_is_not_held_however_alike(input: JsonObject) -> None:
    assert not memory_of_one().contains(tool_id="t", input=input, context=MEMORY_CONTEXT)


def test_another_tool_is_not_held() -> None:
    assert not memory_of_one().contains(tool_id="u", input=INPUT, context=MEMORY_CONTEXT)


def test_beyond_the_limit_the_one_used_longest_ago_is_forgotten() -> None:
    memory = ApprovalMemory(max_remembered=2)
    for tool_id in ("a", "b"):
        memory.remember(tool_id=tool_id, input={}, context=MEMORY_CONTEXT)
    assert memory.contains(tool_id="a", input={}, context=MEMORY_CONTEXT)
    memory.remember(tool_id="c", input={}, context=MEMORY_CONTEXT)
    held = [it for it in "abc" if memory.contains(tool_id=it, input={}, context=MEMORY_CONTEXT)]
    assert held == ["a", "c"]
