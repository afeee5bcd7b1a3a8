"""Running hooks: order, changes, blocks, approvals, failures, timeouts, and the hooks of a turn."""

import asyncio
import logging
import threading
from collections.abc import Awaitable
from dataclasses import replace
from types import MappingProxyType

import anyio
import pytest

from nacre.errors import HookError
from nacre.hooks import (
    AddToPrompt,
    AfterCompaction,
    AfterToolCall,
    AgentEnd,
    AskApproval,
    BeforeAgentFinalize,
    BeforeCompaction,
    BeforePromptBuild,
    BeforeToolCall,
    Block,
    ChangeContent,
    ChangeInput,
    ChangeResult,
    Decision,
    HookRunner,
    Hooks,
    LlmInput,
    LlmOutput,
    Revise,
    ToolResultPersist,
)
from nacre.hooks.runner import BeforeAnswer, before_answer_from, changed_result_from
from nacre.json_types import JsonObject, JsonValue
from nacre.run_context import RunContext
from tests.hooks.tool_calls import before, completed


def returning(answer: object) -> tuple[str, object]:
    async def answers(event: BeforeToolCall) -> object:
        return answer

    return ("before_tool_call", answers)


def changing(answer: object) -> tuple[str, object]:
    async def changes(event: AfterToolCall) -> object:
        return answer

    return ("after_tool_call", changes)


async def decision_of(*hooks: object, timeout_seconds: float = 5) -> Decision:
    runner = HookRunner(Hooks(hooks), timeout_seconds=timeout_seconds)
    with anyio.fail_after(30):
        return await runner.before_tool_call(before())


async def result_of(result: JsonValue, *hooks: object, timeout_seconds: float = 5) -> JsonValue:
    runner = HookRunner(Hooks(hooks), timeout_seconds=timeout_seconds)
    with anyio.fail_after(30):
        return await runner.after_tool_call(completed(result))


async def test_without_hooks_input_and_result_are_the_given_objects() -> None:
    runner = HookRunner(Hooks())
    event, ended = before(), completed({"a": 1})
    decision = await runner.before_tool_call(event)
    assert decision == Decision(input=event.input)
    assert decision.input is event.input
    assert await runner.after_tool_call(ended) is ended.result
    assert not runner.has_hooks("before_tool_call")


async def test_a_hook_that_only_looks_changes_nothing() -> None:
    assert await decision_of(returning(None)) == Decision(input={"path": "a"})


async def test_each_hook_sees_the_input_that_the_one_before_left() -> None:
    seen: list[JsonObject] = []

    async def before_tool_call(event: BeforeToolCall) -> ChangeInput:
        seen.append(event.input)
        return ChangeInput({**event.input, f"step_{len(seen)}": True})

    decision = await decision_of(before_tool_call, before_tool_call)
    assert seen == [{"path": "a"}, {"path": "a", "step_1": True}]
    assert decision.input == {"path": "a", "step_1": True, "step_2": True}
    assert decision.is_changed


async def test_writing_to_the_event_does_not_change_what_is_executed_or_what_others_see() -> None:
    seen: list[JsonObject] = []

    async def before_tool_call(event: BeforeToolCall) -> None:
        seen.append({**event.input})
        event.input["path"] = "/etc/shadow"
        nested = event.input["nested"]
        assert isinstance(nested, list)
        nested.append("more")

    runner = HookRunner(Hooks([before_tool_call, before_tool_call]))
    decision = await runner.before_tool_call(before({"path": "a", "nested": [1]}))
    assert decision.input == {"path": "a", "nested": [1]}
    assert not decision.is_changed
    assert [item["path"] for item in seen] == ["a", "a"]


async def test_the_first_block_wins_and_nobody_else_is_asked() -> None:
    asked: list[str] = []

    async def before_tool_call(event: BeforeToolCall) -> None:
        asked.append("second")

    decision = await decision_of(returning(Block("not on Fridays")), before_tool_call)
    assert decision.block == "not on Fridays"
    assert decision.blocked_by == "returning.<locals>.answers"
    assert asked == []


async def test_the_reasons_for_an_approval_add_up() -> None:
    hooks = (returning(AskApproval("costs money")), returning(AskApproval()))
    decision = await decision_of(*hooks, returning({"approval": "leaves the house"}))
    assert (decision.approval, decision.block) == ("costs money; leaves the house", None)


async def test_an_approval_without_a_reason_is_still_one() -> None:
    assert (await decision_of(returning(AskApproval()))).approval == ""


async def test_a_hook_that_raises_blocks_and_is_logged_with_its_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def before_tool_call(event: BeforeToolCall) -> None:
        raise ValueError("no route to postgres://me:hunter2@db")

    hooks = Hooks()
    hooks.add(before_tool_call, owner="guard")
    decision = await HookRunner(hooks).before_tool_call(before())
    assert decision.block is not None
    assert decision.block.startswith("the hook test_a_hook_that_raises_blocks")
    assert (
        "of guard failed: ValueError: no route to postgres://me:[redacted]@db; " in decision.block
    )
    assert decision.block.endswith("; the call was not made")
    assert [record.exc_info is not None for record in caplog.records] == [True]


async def test_a_hook_that_returns_nonsense_blocks() -> None:
    decision = await decision_of(returning("sure"))
    assert decision.block is not None
    assert "failed: it returned 'sure'; allowed: None, ChangeInput" in decision.block


async def test_a_hook_that_takes_too_long_blocks() -> None:
    async def before_tool_call(event: BeforeToolCall) -> None:
        await anyio.sleep_forever()

    decision = await decision_of(before_tool_call, timeout_seconds=0.01)
    assert decision.block is not None
    assert "failed: it took longer than 0.01 seconds; the call was not made" in decision.block


async def test_a_timeout_of_the_hooks_own_is_told_as_its_error() -> None:
    async def before_tool_call(event: BeforeToolCall) -> None:
        raise TimeoutError("the policy server did not answer")

    decision = await decision_of(before_tool_call)
    assert decision.block is not None
    assert "TimeoutError: the policy server did not answer" in decision.block


async def test_a_blocking_hook_that_takes_too_long_is_left_behind() -> None:
    release = threading.Event()

    def before_tool_call(event: BeforeToolCall) -> None:
        release.wait(60)

    try:
        decision = await decision_of(before_tool_call, timeout_seconds=0.01)
    finally:
        release.set()
    assert decision.block is not None
    assert "took longer than" in decision.block


async def test_a_blocking_hook_runs_in_a_thread_and_its_answer_counts() -> None:
    threads: list[int] = []

    def before_tool_call(event: BeforeToolCall) -> Block:
        threads.append(threading.get_ident())
        return Block("no")

    assert (await decision_of(before_tool_call)).block == "no"
    assert threads != [threading.get_ident()]


async def test_a_plain_function_around_an_async_one_is_awaited() -> None:
    async def answer() -> Block:
        return Block("no")

    def before_tool_call(event: BeforeToolCall) -> Awaitable[Block]:
        return answer()

    assert (await decision_of(before_tool_call)).block == "no"


async def test_a_hook_whose_own_task_was_cancelled_blocks_and_does_not_cancel_the_run() -> None:
    async def before_tool_call(event: BeforeToolCall) -> None:
        future = asyncio.get_running_loop().create_future()
        future.cancel()
        await future

    decision = await decision_of(before_tool_call)
    assert decision.block is not None
    assert "failed: CancelledError: it was cancelled" in decision.block


async def test_a_cancelled_run_cancels_the_hook_and_decides_nothing() -> None:
    started = anyio.Event()
    decisions: list[Decision] = []
    ended: list[str] = []

    async def before_tool_call(event: BeforeToolCall) -> None:
        try:
            started.set()
            await anyio.sleep_forever()
        finally:
            ended.append("hook")

    async def run() -> None:
        decisions.append(await decision_of(before_tool_call))

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await started.wait()
            tasks.cancel_scope.cancel()
    assert (ended, decisions) == (["hook"], [])


async def test_an_input_too_deep_to_copy_blocks() -> None:
    deep: JsonValue = []
    for _ in range(100_000):
        deep = [deep]
    runner = HookRunner(Hooks([returning(None)]))
    decision = await runner.before_tool_call(before({"deep": deep}))
    assert decision.block is not None
    assert "RecursionError" in decision.block


async def test_the_result_passes_through_the_hooks_in_order() -> None:
    async def after_tool_call(event: AfterToolCall) -> ChangeResult:
        assert isinstance(event.result, list)
        return ChangeResult([*event.result, len(event.result)])

    assert await result_of(["a"], after_tool_call, after_tool_call) == ["a", 1, 2]


async def test_an_observer_cannot_write_to_the_result() -> None:
    async def after_tool_call(event: AfterToolCall) -> None:
        assert isinstance(event.result, list)
        event.result.clear()

    assert await result_of(["a"], after_tool_call) == ["a"]


async def test_a_result_can_be_changed_to_null() -> None:
    assert await result_of(["a"], changing({"result": None})) is None


async def test_a_hook_that_fails_keeps_the_last_result_and_the_next_is_asked(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def after_tool_call(event: AfterToolCall) -> None:
        raise ValueError("disk full")

    bad = (after_tool_call, changing({"result": object()}), changing("nonsense"))
    assert await result_of("a", changing({"result": "b"}), *bad) == "b"
    assert await result_of("a", *bad, changing({"result": "c"})) == "c"
    assert len(caplog.records) == 6


async def test_an_observer_that_takes_too_long_does_not_hold_the_result() -> None:
    async def after_tool_call(event: AfterToolCall) -> None:
        await anyio.sleep_forever()

    assert await result_of("a", after_tool_call, timeout_seconds=0.01) == "a"


async def test_a_failed_call_is_observed_and_stays_failed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen: list[tuple[str, str]] = []

    async def after_tool_call(event: AfterToolCall) -> ChangeResult:
        seen.append((event.outcome, event.error_code))
        return ChangeResult("all is well")

    event = replace(completed(None), outcome="failed", error="no", error_code="tool_failed")
    with caplog.at_level(logging.WARNING):
        assert await HookRunner(Hooks([after_tool_call])).after_tool_call(event) is None
    assert seen == [("failed", "tool_failed")]
    assert "changed the result of a failed call" in caplog.text


async def test_a_hook_added_while_others_are_asked_is_asked_the_next_time() -> None:
    hooks = Hooks()
    asked: list[str] = []

    async def late(event: BeforeToolCall) -> None:
        asked.append("late")

    async def early(event: BeforeToolCall) -> None:
        hooks.add(late, event="before_tool_call")

    hooks.add(early, event="before_tool_call")
    runner = HookRunner(hooks)
    await runner.before_tool_call(before())
    assert asked == []
    await runner.before_tool_call(before())
    assert asked == ["late"]


CONTEXT = RunContext(agent_id="main", session_id="session_1", session_key="key", run_id="run_1")
IDENTITY = {"agentId": "main", "sessionId": "session_1", "sessionKey": "key", "runId": "run_1"}

REQUEST = LlmInput(
    context=CONTEXT,
    model="openai/gpt",
    instructions="Be brief.",
    messages=[{"role": "user", "text": "hi"}],
    tool_names=("exec", "wait"),
)
RESULT = ToolResultPersist(context=CONTEXT, tool_name="read", call_id="call_1", content="secret")
ANSWER = BeforeAgentFinalize(context=CONTEXT, text="done")


async def kept(*hooks: object) -> str:
    with anyio.fail_after(10):
        return await HookRunner(Hooks(hooks)).tool_result_persist(RESULT)


async def revision(*hooks: object) -> str | None:
    with anyio.fail_after(10):
        return await HookRunner(Hooks(hooks)).before_agent_finalize(ANSWER)


def keeping(answer: object) -> tuple[str, object]:
    async def keeps(event: ToolResultPersist) -> object:
        return answer

    return ("tool_result_persist", keeps)


def finalizing(answer: object) -> tuple[str, object]:
    async def finalizes(event: BeforeAgentFinalize) -> object:
        return answer

    return ("before_agent_finalize", finalizes)


def failing(event: object) -> None:
    raise RuntimeError("broken")


async def test_every_observer_is_told_its_event() -> None:
    told: list[object] = []
    events: dict[str, object] = {
        "llm_input": REQUEST,
        "llm_output": LlmOutput(context=CONTEXT, model="m", text="t"),
        "agent_end": AgentEnd(context=CONTEXT, status="completed"),
        "before_compaction": BeforeCompaction(context=CONTEXT, message_count=3, estimated_tokens=9),
        "after_compaction": AfterCompaction(context=CONTEXT, message_count=3, summary="s"),
    }
    runner = HookRunner(Hooks([(name, told.append) for name in events]))
    for name, event in events.items():
        await getattr(runner, name)(event)
    assert told == list(events.values())


async def test_what_one_observer_writes_the_next_does_not_read() -> None:
    seen: list[object] = []

    async def scribbles(event: LlmInput) -> None:
        event.messages.append({"role": "user", "text": "injected"})

    async def reads(event: LlmInput) -> None:
        seen.extend(event.messages)

    await HookRunner(Hooks([("llm_input", scribbles), ("llm_input", reads)])).llm_input(REQUEST)
    assert seen == [{"role": "user", "text": "hi"}]


async def test_an_observer_that_fails_is_logged_and_the_next_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    told: list[object] = []
    runner = HookRunner(Hooks([("llm_input", failing), ("llm_input", told.append)]))
    with caplog.at_level(logging.ERROR):
        await runner.llm_input(REQUEST)
    assert told == [REQUEST]
    assert "failing" in caplog.text


@pytest.mark.parametrize("answer", [ChangeContent("less"), {"content": "less"}])
async def test_a_hook_changes_what_is_kept_of_a_result(answer: object) -> None:
    assert await kept(keeping(answer)) == "less"


async def test_the_next_hook_sees_what_the_one_before_left() -> None:
    seen: list[str] = []

    async def reads(event: ToolResultPersist) -> None:
        seen.append(event.content)

    assert await kept(keeping(ChangeContent("less")), ("tool_result_persist", reads)) == "less"
    assert seen == ["less"]


@pytest.mark.parametrize("answer", [None, {}])
async def test_without_an_answer_the_result_is_kept(answer: object) -> None:
    assert await kept(keeping(answer)) == "secret"


@pytest.mark.parametrize("answer", [7, {"text": "x"}, {"content": 1}, ChangeContent(1)])  # pyright: ignore[reportArgumentType]
async def test_a_hook_without_a_usable_answer_has_the_result_withheld(answer: object) -> None:
    text = await kept(keeping(answer))
    assert text.startswith("[the result is withheld: the hook keeping.<locals>.keeps failed: it ")


async def test_a_hook_that_raises_has_the_result_withheld() -> None:
    text = await kept(("tool_result_persist", failing))
    assert text == "[the result is withheld: the hook failing failed: RuntimeError: broken]"


def adding(answer: object) -> tuple[str, object]:
    async def adds(event: BeforePromptBuild) -> object:
        return answer

    return ("before_prompt_build", adds)


async def additions(*hooks: object) -> AddToPrompt:
    event = BeforePromptBuild(context=CONTEXT, model="m", prompt="hi", message_count=2)
    with anyio.fail_after(10):
        return await HookRunner(Hooks(hooks)).before_prompt_build(event)


async def test_the_texts_of_all_hooks_are_added_to_the_prompt() -> None:
    added = await additions(
        adding(AddToPrompt(prepend_context=" one ", append_system_context="rule")),
        adding(None),
        adding({"prependContext": "two", "appendContext": "last", "prependSystemContext": None}),
    )
    assert added == AddToPrompt(
        prepend_context="one\n\ntwo", append_context="last", append_system_context="rule"
    )


@pytest.mark.parametrize(
    "answer",
    ["text", {"prepend": "x"}, {"appendContext": 3}, AddToPrompt(append_context=3)],  # pyright: ignore[reportArgumentType]
)
async def test_a_hook_that_returns_nonsense_adds_nothing(answer: object) -> None:
    assert await additions(adding(answer), ("before_prompt_build", failing)) == AddToPrompt()


@pytest.mark.parametrize("answer", [Revise("no tests"), {"action": "revise", "reason": "no tests"}])
async def test_a_hook_sends_the_model_back_to_work(answer: object) -> None:
    assert await revision(finalizing(answer), finalizing(Revise("later"))) == "no tests"


@pytest.mark.parametrize("answer", [None, {}, {"action": "finalize"}])
async def test_an_answer_that_no_hook_minds_stands(answer: object) -> None:
    assert await revision(finalizing(answer)) is None


@pytest.mark.parametrize("answer", ["again", {"action": "retry"}, {"why": "x"}, Revise(3)])  # pyright: ignore[reportArgumentType]
async def test_an_answer_stands_where_a_hook_returns_nonsense(answer: object) -> None:
    assert await revision(finalizing(answer)) is None


async def test_a_revision_without_a_reason_says_so() -> None:
    assert await revision(finalizing({"action": "revise"})) == "no reason given"


def test_events_are_json_for_hooks_elsewhere() -> None:
    assert REQUEST.to_json() == {
        **IDENTITY,
        "harness": "openclaw",
        "model": "openai/gpt",
        "instructions": "Be brief.",
        "messages": [{"role": "user", "text": "hi"}],
        "toolNames": ["exec", "wait"],
    }
    assert RESULT.to_json() == {
        **IDENTITY,
        "toolName": "read",
        "toolCallId": "call_1",
        "content": "secret",
        "isError": False,
    }
    assert ANSWER.to_json() == {**IDENTITY, "text": "done", "passCount": 0}
    assert AgentEnd(context=CONTEXT, status="failed", error="e").to_json() == {
        **IDENTITY,
        "status": "failed",
        "text": "",
        "error": "e",
        "usage": {},
        "messages": [],
        "durationMs": 0.0,
    }


@pytest.mark.parametrize(
    ("returned", "answer"),
    [
        (None, BeforeAnswer()),
        ({}, BeforeAnswer()),
        ({"block": False, "reason": "fine"}, BeforeAnswer()),
        ({"requireApproval": False, "input": None}, BeforeAnswer()),
        (Block("no"), BeforeAnswer(block="no")),
        (Block(""), BeforeAnswer(block="no reason given")),
        ({"block": True}, BeforeAnswer(block="no reason given")),
        ({"block": True, "reason": "no"}, BeforeAnswer(block="no")),
        ({"block": True, "blockReason": "no"}, BeforeAnswer(block="no")),
        (ChangeInput({"a": 1}), BeforeAnswer(input={"a": 1})),
        ({"input": {"a": 1}}, BeforeAnswer(input={"a": 1})),
        ({"params": MappingProxyType({"a": (1, 2)})}, BeforeAnswer(input={"a": [1, 2]})),
        ({"input": {}, "params": {}}, BeforeAnswer(input={})),
        (AskApproval(), BeforeAnswer(approval="")),
        (AskApproval("why"), BeforeAnswer(approval="why")),
        ({"approval": "why"}, BeforeAnswer(approval="why")),
        ({"requireApproval": True}, BeforeAnswer(approval="")),
        ({"requireApproval": {}}, BeforeAnswer(approval="")),
        ({"requireApproval": True, "approval": "why"}, BeforeAnswer(approval="why")),
        ({"requireApproval": {"title": "t", "description": "d"}}, BeforeAnswer(approval="d")),
        ({"requireApproval": {"title": "t", "severity": "high"}}, BeforeAnswer(approval="t")),
        (
            {"input": {"a": 1}, "approval": "why"},
            BeforeAnswer(input={"a": 1}, approval="why"),
        ),
    ],
)
def test_an_answer_before_a_call_is_read(returned: object, answer: BeforeAnswer) -> None:
    assert before_answer_from(returned) == answer


@pytest.mark.parametrize(
    ("returned", "problem"),
    [
        (True, "it returned True; allowed: None, ChangeInput, Block, AskApproval"),
        ("no", "it returned 'no'; allowed"),
        ([Block("no")], "it returned a list; allowed"),
        (Block, "it returned a type; allowed"),
        ({"blocked": True}, "unknown key 'blocked'; known: input, params, block"),
        ({1: 2}, "unknown key 1"),
        ({"block": "yes"}, "`block` as 'yes'; allowed: true and false"),
        ({"block": 1}, "`block` as 1; allowed: true and false"),
        ({"reason": "no"}, "a reason without `block`"),
        ({"block": True, "reason": 3}, "`reason` as 3, which is not text"),
        ({"input": [1]}, "`input` as a list, which is not an object"),
        ({"input": {"a": {1, 2}}}, "`input`, which is not JSON: $.a is of type set"),
        ({"input": {"a": 1}, "params": {"a": True}}, "`input` and `params` that differ"),
        ({"approval": True}, "`approval` as True, which is not text"),
        ({"requireApproval": "yes"}, "`requireApproval` as 'yes'; allowed: true, false"),
        ({"requireApproval": 1}, "`requireApproval` as 1; allowed: true, false"),
        ({"requireApproval": {"reason": 1}}, "`requireApproval.reason` as 1"),
        (ChangeResult(1), "it returned a ChangeResult; allowed"),
    ],
)
def test_what_is_no_answer_before_a_call_is_an_error(returned: object, problem: str) -> None:
    with pytest.raises(HookError) as caught:
        before_answer_from(returned)
    assert problem in str(caught.value)


def test_a_changed_input_is_a_copy_that_the_hook_cannot_reach() -> None:
    returned = ChangeInput({"path": ["a"]})
    answer = before_answer_from(returned)
    returned.input["path"] = ["b"]
    assert answer.input == {"path": ["a"]}


@pytest.mark.parametrize(
    ("returned", "change"),
    [
        (None, None),
        ({}, None),
        (ChangeResult({"a": 1}), ChangeResult({"a": 1})),
        (ChangeResult(None), ChangeResult(None)),
        ({"result": None}, ChangeResult(None)),
        ({"result": (1, 2)}, ChangeResult([1, 2])),
    ],
)
def test_an_answer_after_a_call_is_read(returned: object, change: ChangeResult | None) -> None:
    assert changed_result_from(returned) == change


@pytest.mark.parametrize("returned", ["text", Block("no"), {"value": 1}, {"result": object()}])
def test_what_is_no_answer_after_a_call_is_an_error(returned: object) -> None:
    with pytest.raises(HookError):
        changed_result_from(returned)


def test_a_huge_answer_is_not_repeated_in_the_error() -> None:
    with pytest.raises(HookError) as caught:
        before_answer_from({"x" * 1_000_000: ""})
    assert len(str(caught.value)) < 300
