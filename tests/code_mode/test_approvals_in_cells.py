"""Calls of programs that a person has to agree to: asked, remembered, edited, refused."""

from typing import Any

import anyio
import anyio.lowlevel
import pytest

from nacre import (
    AllowEdited,
    ApprovalQueue,
    ApprovalRequest,
    AskApproval,
    BeforeToolCall,
    CodeModeRun,
    Deny,
    RunContext,
    Runtime,
)
from nacre.json_types import JsonObject
from tests.code_mode.outcomes import events_of, failure_of, value_of, waiting_of
from tests.code_mode.tools import HeldTool, echo_tool
from tests.contract.requirements import requirement

CAUGHT = ".catch(e => ({message: e.message, code: e.code, toolId: e.toolId}))"
NUMBERED: JsonObject = {"type": "object", "properties": {"n": {"type": "integer"}}}


async def ask_for_echo(event: BeforeToolCall) -> object:
    return AskApproval("echoes are loud") if event.tool_name == "echo" else None


HOOKS = [("before_tool_call", ask_for_echo)]


class Person:
    """Answers always the same, and remembers what was asked."""

    def __init__(self, answer: Any) -> None:
        self.asked: list[ApprovalRequest] = []
        self._answer = answer

    async def __call__(self, request: ApprovalRequest) -> Any:
        self.asked.append(request)
        return self._answer


def asking_run(runtime: Runtime, approvals: Any, context: RunContext | None = None) -> CodeModeRun:
    tools = [echo_tool(parameters=NUMBERED)]
    return runtime.run(tools=tools, hooks=HOOKS, approvals=approvals, context=context)


async def next_request(queue: ApprovalQueue) -> ApprovalRequest:
    with anyio.fail_after(10):
        async for request in queue:
            return request
    raise AssertionError("a queue has no end")


@requirement("validation:nested-hooks-and-approvals")
async def test_a_call_that_is_allowed_once_is_asked_for_each_time(runtime: Runtime) -> None:
    person = Person("allow-once")
    run = asking_run(runtime, person)
    assert value_of(await run.exec("return tools.echo({n: 1})", call_id="c1")) == {"n": 1}
    assert value_of(await run.exec("return tools.echo({n: 1})")) == {"n": 1}
    assert len(person.asked) == 2
    first = person.asked[0]
    assert (first.tool_id, first.input, first.reason, first.parent_id, first.context) == (
        "openclaw:core:echo",
        {"n": 1},
        "echoes are loud",
        "c1",
        run.context,
    )


@requirement("validation:nested-hooks-and-approvals")
async def test_a_call_that_is_always_allowed_is_asked_for_once_per_input_and_session(
    runtime: Runtime,
) -> None:
    person = Person("allow-always")
    context = RunContext(session_id="s1")
    run = asking_run(runtime, person, context)
    for _ in range(2):
        value_of(await run.exec("await tools.echo({n: 1}); return tools.echo({n: 1})"))
    # The same session in another run remembers, too.
    value_of(await asking_run(runtime, person, context).exec("return tools.echo({n: 1})"))
    assert len(person.asked) == 1
    value_of(await run.exec("return tools.echo({n: 2})"))
    assert len(person.asked) == 2
    other = asking_run(runtime, person, RunContext(session_id="s2"))
    value_of(await other.exec("return tools.echo({n: 1})"))
    assert len(person.asked) == 3


async def test_a_person_may_edit_what_a_tool_is_called_with(runtime: Runtime) -> None:
    run = asking_run(runtime, Person(AllowEdited({"n": 5})))
    assert value_of(await run.exec("return tools.echo({n: 1})")) == {"n": 5}


async def test_an_edited_input_has_to_fit_as_well(runtime: Runtime) -> None:
    run = asking_run(runtime, Person(AllowEdited({"n": "five"})))
    found = value_of(await run.exec(f"return tools.echo({{n: 1}}){CAUGHT}"))
    assert found["code"] == "invalid_tool_input"
    assert "$.n" in found["message"]


@requirement("validation:nested-hooks-and-approvals")
async def test_a_refusal_and_its_reason_can_be_caught(runtime: Runtime) -> None:
    run = asking_run(runtime, Person(Deny("too late at night")))
    found = value_of(await run.exec(f"return tools.echo({{n: 1}}){CAUGHT}"))
    assert found == {
        "message": "the approval was denied: too late at night",
        "code": "approval_denied",
        "toolId": "openclaw:core:echo",
    }
    answered = events_of(run, "approval.answered")
    assert [event.data["answer"] for event in answered] == ["deny"]


async def test_where_nobody_is_there_the_call_is_not_made(runtime: Runtime) -> None:
    found = value_of(await asking_run(runtime, None).exec(f"return tools.echo({{n: 1}}){CAUGHT}"))
    assert found["code"] == "approval_denied"
    assert "nobody to approve it" in found["message"]


@pytest.mark.parametrize("answer", ["yes", None, True, {"allow": True}])
async def test_an_answer_that_is_none_is_a_no(runtime: Runtime, answer: object) -> None:
    found = value_of(
        await asking_run(runtime, Person(answer)).exec(f"return tools.echo({{n: 1}}){CAUGHT}")
    )
    assert found["code"] == "approval_denied"


async def test_an_input_that_does_not_fit_bothers_nobody(runtime: Runtime) -> None:
    person = Person("allow-once")
    found = value_of(
        await asking_run(runtime, person).exec(f"return tools.echo({{n: 'x'}}){CAUGHT}")
    )
    assert found["code"] == "invalid_tool_input"
    assert person.asked == []


async def test_several_calls_are_asked_about_one_by_one(runtime: Runtime) -> None:
    at_once = 0
    most = 0
    asked: list[object] = []

    async def approve(request: ApprovalRequest) -> Any:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        asked.append(request.input["n"])
        for _ in range(5):
            await anyio.lowlevel.checkpoint()
        at_once -= 1
        return "allow-once"

    run = asking_run(runtime, approve)
    code = "return Promise.all([1, 2, 3].map(n => tools.echo({n})))"
    assert value_of(await run.exec(code)) == [{"n": 1}, {"n": 2}, {"n": 3}]
    assert (most, asked) == (1, [1, 2, 3])


async def test_exec_does_not_hold_the_line_while_a_person_thinks() -> None:
    queue = ApprovalQueue()
    async with Runtime({"timeoutMs": 60_000}, workers=1) as runtime:
        run = asking_run(runtime, queue)
        with anyio.fail_after(20):
            waiting = waiting_of(await run.exec("return tools.echo({n: 1})"))
        assert waiting.reason == "pending_tools"
        (pending,) = waiting.pending
        assert (pending.tool_id, pending.is_awaiting_approval) == ("openclaw:core:echo", True)
        assert pending.to_json()["awaitingApproval"] is True
        (request,) = queue.pending
        assert request.call_id == pending.call_id
        queue.answer(request.id, "allow-once")
        assert value_of(await run.wait(waiting.cell_id)) == {"n": 1}


async def test_only_the_call_that_a_person_is_asked_about_is_marked() -> None:
    queue, held = ApprovalQueue(), HeldTool()
    async with Runtime(workers=1) as runtime:
        run = runtime.run(tools=[echo_tool(), held.tool], hooks=HOOKS, approvals=queue)
        code = "tools.echo({}); tools.held({}); await yield_control(); return 1"
        waiting = waiting_of(await run.exec(code))
        request = await next_request(queue)
        await held.wait_for_calls()
        (cell,) = run.cells()
        assert {call.tool_id: call.is_awaiting_approval for call in cell.pending} == {
            "openclaw:core:echo": True,
            "openclaw:core:held": False,
        }
        queue.answer(request.id, "deny")
        held.answer(None)
        await run.abort_cell(waiting.cell_id)


async def test_an_abort_takes_the_question_back(runtime: Runtime) -> None:
    queue = ApprovalQueue()
    run = asking_run(runtime, queue)
    waiting_of(await run.exec("tools.echo({n: 1}); await yield_control(); return 1"))
    await next_request(queue)
    await run.abort("over")
    with anyio.fail_after(10):
        while queue.pending:
            await queue.wait_for_change()


async def test_the_queue_shows_all_questions_and_each_has_its_own_answer(runtime: Runtime) -> None:
    queue = ApprovalQueue()
    run = asking_run(runtime, queue)
    results: list[Any] = []

    async def program() -> None:
        each = f"n => tools.echo({{n}}){CAUGHT}"
        results.append(await run.exec(f"return Promise.all([1, 2].map({each}))"))

    async def answer() -> None:
        with anyio.fail_after(10):
            while len(queue.pending) < 2:
                await queue.wait_for_change()
        yes, no = queue.pending
        queue.answer(yes.id, "allow-once")
        queue.answer(no.id, Deny("one is enough"))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(program)
        tasks.start_soon(answer)
    allowed, denied = value_of(results[0])
    assert (allowed, denied["code"]) == ({"n": 1}, "approval_denied")


async def test_exec_itself_can_need_a_yes(runtime: Runtime) -> None:
    async def ask_for_exec(event: BeforeToolCall) -> object:
        return AskApproval() if event.tool_kind == "code_mode_exec" else None

    person = Person(Deny("no programs"))
    run = runtime.run(
        tools=[echo_tool()], hooks=[("before_tool_call", ask_for_exec)], approvals=person
    )
    failed = failure_of(await run.exec("return 1"))
    assert (failed.error, failed.reason) == ("the approval was denied: no programs", "call_denied")
    assert person.asked[0].input == {"code": "return 1"}
