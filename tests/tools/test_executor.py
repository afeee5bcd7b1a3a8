"""The one call path: who is asked in which order, what is not done then, what is recorded."""

from typing import Any

import anyio
import pytest

from nacre.config.tools import ToolRules
from nacre.errors import (
    ToolAbortedError,
    ToolDeniedError,
    ToolError,
    ToolFailedError,
    ToolInputError,
)
from nacre.hooks import (
    AfterToolCall,
    AskApproval,
    BeforeToolCall,
    Block,
    ChangeInput,
    ChangeResult,
    HookRunner,
    Hooks,
)
from nacre.json_types import JsonObject, JsonValue
from nacre.run_context import AbortController, RunContext
from nacre.tools import (
    AllowEdited,
    ApprovalRequest,
    Approvals,
    CallSite,
    CallSubject,
    InputValidators,
    Tool,
    ToolCall,
    ToolExecutor,
)
from nacre.tools.policy import ToolPolicy
from nacre.trajectory import CallNode, TrajectoryRecorder, project

NUMBERED: JsonObject = {
    "type": "object",
    "properties": {"n": {"type": "integer"}},
    "required": ["n"],
}
SITE = CallSite(call_id="call_1", parent_id="exec_1")


class Work:
    """An executor with a tool that echoes, and everything that was asked on the way to it."""

    def __init__(
        self,
        *,
        deny: tuple[str, ...] = (),
        before: object = None,
        after: object = None,
        answer: Any = "allow-once",
        ttl_seconds: float = 3600,
        execute: Any = None,
        **fields: Any,
    ) -> None:
        self.asked: list[str] = []
        self.given: list[dict[str, Any]] = []
        self.calls: list[ToolCall] = []
        self._before, self._after, self._answer = before, after, answer
        context = RunContext(session_id="s1")
        self.recorder = TrajectoryRecorder(context)
        rules = ToolRules(allow=None, deny=deny, also_allow=())
        self.executor = ToolExecutor(
            context=context,
            policy=ToolPolicy([("tools", rules)]),
            hooks=HookRunner(
                Hooks([("before_tool_call", self._hook), ("after_tool_call", self._middleware)])
            ),
            approvals=Approvals(self._approve, ttl_seconds=ttl_seconds),
            recorder=self.recorder,
            validators=InputValidators(),
        )
        self.tool = Tool(
            name="echo", parameters=NUMBERED, execute=execute or self._execute, **fields
        )

    async def call(self, given: object, *, site: CallSite = SITE) -> JsonValue:
        with anyio.fail_after(30):
            return await self.executor.call(self.tool, given, site=site)

    async def refusal(self, given: object, *, site: CallSite = SITE) -> ToolError:
        with pytest.raises(ToolError) as caught:
            await self.call(given, site=site)
        assert caught.value.tool_id == "openclaw:core:echo"
        return caught.value

    @property
    def node(self) -> CallNode:
        (node,) = project(self.recorder.events)
        return node

    async def _hook(self, event: BeforeToolCall) -> Any:
        self.asked.append("hook")
        return self._before

    async def _approve(self, request: ApprovalRequest) -> Any:
        self.asked.append("person")
        if self._answer is None:
            await anyio.sleep_forever()
        return self._answer

    async def _execute(self, input: dict[str, Any], call: ToolCall) -> object:
        self.asked.append("tool")
        self.given.append(input)
        self.calls.append(call)
        return input

    async def _middleware(self, event: AfterToolCall) -> Any:
        self.asked.append(f"after {event.outcome}")
        return self._after


# Who is asked, in which order.


async def test_all_that_agree_are_asked_in_order_and_then_the_tool_is_called() -> None:
    work = Work(before=AskApproval("why"))
    assert await work.call({"n": 1}) == {"n": 1}
    assert work.asked == ["hook", "person", "tool", "after completed"]
    (call,) = work.calls
    assert (call.id, call.parent_id, call.context.session_id) == ("call_1", "exec_1", "s1")


async def test_policy_is_first_and_nobody_else_is_asked() -> None:
    work = Work(deny=("echo",))
    error = await work.refusal({"n": 1})
    assert isinstance(error, ToolDeniedError)
    assert error.code == "denied_by_policy"
    assert work.asked == ["after failed"]


async def test_a_block_bothers_no_person() -> None:
    work = Work(before=Block("no"))
    error = await work.refusal({"n": 1})
    assert (error.message, error.code) == ("no", "blocked_by_hook")
    assert work.asked == ["hook", "after failed"]


@pytest.mark.parametrize("before", [AskApproval(), ChangeInput({"n": "text"})])
async def test_an_input_is_checked_after_hooks_and_before_a_person(before: object) -> None:
    work = Work(before=before)
    error = await work.refusal({"n": "text"})
    assert isinstance(error, ToolInputError)
    assert work.asked == ["hook", "after failed"]


async def test_a_hook_may_repair_an_input_and_the_record_has_both() -> None:
    work = Work(before=ChangeInput({"n": 2}))
    assert await work.call({"n": "two"}) == {"n": 2}
    recorded = [event.data["input"] for event in work.recorder.events if "input" in event.data]
    assert recorded == [{"n": "two"}, {"n": 2}]


async def test_what_a_person_edits_is_checked_again() -> None:
    assert await Work(before=AskApproval(), answer=AllowEdited({"n": 5})).call({"n": 1}) == {"n": 5}
    work = Work(before=AskApproval(), answer=AllowEdited({"n": None}))
    assert isinstance(await work.refusal({"n": 1}), ToolInputError)
    assert work.given == []


@pytest.mark.parametrize(
    ("answer", "ttl_seconds", "code"),
    [
        ("deny", 3600, "approval_denied"),
        ("?", 3600, "approval_denied"),
        (None, 0.01, "approval_expired"),
    ],
)
async def test_without_a_yes_in_time_the_call_is_not_made(
    answer: Any, ttl_seconds: float, code: str
) -> None:
    work = Work(before=AskApproval("why"), answer=answer, ttl_seconds=ttl_seconds)
    assert (await work.refusal({"n": 1})).code == code
    assert work.given == []
    assert [each["event"] for each in work.node.approvals] == ["requested", "answered"]
    assert (work.node.outcome, work.node.error_code) == ("failed", code)


async def test_the_caller_s_clock_is_told_while_a_person_is_asked() -> None:
    work = Work(before=AskApproval())

    class Clock:
        def __enter__(self) -> None:
            work.asked.append("clock stops")

        def __exit__(self, *_: object) -> None:
            work.asked.append("clock goes on")

    await work.call({"n": 1}, site=CallSite(call_id="c", pause_for_approval=Clock))
    assert work.asked[:4] == ["hook", "clock stops", "person", "clock goes on"]


# Inputs and results.


async def test_no_input_is_an_empty_object() -> None:
    assert (await Work().refusal(None)).message.endswith("given: {}")


@pytest.mark.parametrize("given", ["text", 7, True, [1]])
async def test_an_input_that_is_no_object_is_refused_unseen(given: object) -> None:
    work = Work()
    error = await work.refusal(given)
    assert isinstance(error, ToolInputError)
    assert "echo takes one object" in error.message
    assert work.asked == ["after failed"]


async def test_middleware_changes_the_result_and_the_record_has_what_the_caller_got() -> None:
    work = Work(after=ChangeResult("changed"))
    assert await work.call({"n": 1}) == "changed"
    assert (work.node.outcome, work.node.result) == ("completed", "changed")


async def test_a_plain_function_is_taken_for_an_async_one() -> None:
    def execute(input: dict[str, Any], call: ToolCall) -> object:
        return "plain"

    assert await Work(execute=execute).call({"n": 1}) == "plain"


@pytest.mark.parametrize(
    ("error", "message"),
    [(ValueError("no luck"), "no luck"), (ValueError(), "ValueError"), (KeyError("k"), "'k'")],
)
async def test_what_a_tool_raises_is_a_failure_of_the_tool(error: Exception, message: str) -> None:
    async def execute(input: dict[str, Any], call: ToolCall) -> object:
        raise error

    work = Work(execute=execute)
    failed = await work.refusal({"n": 1})
    assert isinstance(failed, ToolFailedError)
    assert (failed.message, failed.code) == (message, "tool_failed")
    assert failed.details == {"errorType": type(error).__name__}
    assert (work.node.error, work.node.error_code) == (message, "tool_failed")


async def test_what_a_tool_raises_is_one_line_of_the_log_and_its_traceback_is_for_debugging(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def execute(input: dict[str, Any], call: ToolCall) -> object:
        raise LookupError("no city\n2026 ERROR nacre: forged")

    with caplog.at_level("DEBUG", "nacre.tools.executor"):
        await Work(execute=execute).refusal({"n": 1})
    told, traced = caplog.records
    assert (told.levelname, told.exc_info) == ("INFO", None)
    assert told.getMessage() == (
        "tool openclaw:core:echo failed: LookupError: no city 2026 ERROR nacre: forged"
    )
    assert (traced.levelname, traced.exc_info is not None) == ("DEBUG", True)


async def test_an_error_that_a_tool_chose_itself_stays_as_it_is() -> None:
    async def execute(input: dict[str, Any], call: ToolCall) -> object:
        raise ToolFailedError("full", code="tool_failed", tool_id="openclaw:core:echo")

    assert (await Work(execute=execute).refusal({"n": 1})).message == "full"


async def test_a_cancellation_of_the_tool_s_own_is_its_failure_and_not_the_caller_s() -> None:
    async def execute(input: dict[str, Any], call: ToolCall) -> object:
        raise anyio.get_cancelled_exc_class()

    failed = await Work(execute=execute).refusal({"n": 1})
    assert (failed.message, failed.code) == ("it was cancelled", "tool_failed")


# Aborts.


async def test_a_call_that_was_aborted_before_it_began_asks_nobody() -> None:
    abort = AbortController()
    abort.abort("over")
    work = Work()
    error = await work.refusal({"n": 1}, site=CallSite(call_id="c", abort=abort.signal))
    assert isinstance(error, ToolAbortedError)
    assert (error.message, error.code) == ("over", "aborted")
    assert work.asked == ["after failed"]


async def test_what_a_tool_raises_after_an_abort_is_the_abort() -> None:
    abort = AbortController()

    async def execute(input: dict[str, Any], call: ToolCall) -> object:
        abort.abort("enough")
        call.abort.raise_if_aborted()
        return None

    work = Work(execute=execute)
    error = await work.refusal({"n": 1}, site=CallSite(call_id="c", abort=abort.signal))
    assert isinstance(error, ToolAbortedError)
    assert error.message == "enough"


async def test_a_cancelled_call_is_recorded_as_aborted() -> None:
    entered = anyio.Event()

    async def execute(input: dict[str, Any], call: ToolCall) -> object:
        entered.set()
        await anyio.sleep_forever()

    work = Work(execute=execute)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(work.call, {"n": 1})
        await entered.wait()
        tasks.cancel_scope.cancel()
    assert (work.node.outcome, work.node.error, work.node.error_code) == (
        "failed",
        "the call was cancelled",
        "aborted",
    )


# Direct calls and control calls.


async def test_only_a_direct_only_tool_returns_what_json_cannot_hold() -> None:
    found = object()

    async def execute(input: dict[str, Any], call: ToolCall) -> object:
        return found

    direct = Work(execute=execute, catalog_mode="direct-only")
    assert await direct.executor.call_directly(direct.tool, {"n": 1}, site=SITE) is found
    assert direct.node.result == {"type": "object"}
    other = Work(execute=execute)
    with pytest.raises(ToolFailedError) as caught:
        await other.executor.call_directly(other.tool, {"n": 1}, site=SITE)
    assert caught.value.code == "invalid_tool_result"


async def test_a_control_call_has_hooks_and_a_record_but_rules_of_its_own() -> None:
    subject = CallSubject(tool_id="code_mode:exec", tool_name="exec", kind="code_mode_exec")
    performed: list[JsonObject] = []

    async def perform(given: JsonObject) -> tuple[JsonObject, JsonValue]:
        performed.append(given)
        return given, "done"

    # Policy speaks of tools: one that denies everything does not deny `exec`.
    work = Work(deny=("*",), before=ChangeInput({"code": "2"}))
    value = await work.executor.control(subject, {"code": "1"}, site=SITE, perform=perform)
    assert performed == [{"code": "2"}]
    assert (value, work.node.result) == ({"code": "2"}, "done")
    assert (work.node.tool_id, work.node.outcome) == ("code_mode:exec", "completed")
