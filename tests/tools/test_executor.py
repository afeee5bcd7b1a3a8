"""The one call path: who is asked in which order, what is not done then, what is recorded."""

from typing import Any

import anyio
import pytest

from nacre.config.tools import SOURCE_GROUPS, ToolRules, tools_config_from
from nacre.errors import (
    ConfigError,
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
from nacre.tools.definition import SOURCES, ToolSource
from nacre.tools.executor import ToolPolicy, effective_tools, policy_for
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


async def nothing(given: dict[str, Any], call: ToolCall) -> object:
    raise NotImplementedError


def named(name: str, owner: str = "core", source: ToolSource = "openclaw") -> Tool:
    return Tool(name=name, owner=owner, source=source, execute=nothing)


EXEC = named("exec")
READ = named("read_file")
ISSUES = named("list_issues", owner="github")
QUERY = named("query", owner="db", source="mcp")
PICK = named("pick_colour", owner="app", source="client")
ALL = [EXEC, READ, ISSUES, QUERY, PICK]


def rules_of(value: object) -> ToolRules:
    """The rules of `tools.sandbox.tools`, which has nothing but rules."""
    ((_, rules),) = tools_config_from(
        {"tools": {"sandbox": {"tools": value}}}, "main"
    ).sandbox_rules
    return rules


def permitted(rules: ToolRules) -> list[str]:
    policy = ToolPolicy([("tools", rules)])
    return [tool.name for tool in effective_tools(ALL, policy)]


def names_for(config: dict[str, object], context: RunContext | None = None) -> list[str]:
    context = context or RunContext()
    policy = policy_for(tools_config_from(config, context.agent_id), context)
    return [tool.name for tool in effective_tools(ALL, policy)]


EVERY_NAME = [tool.name for tool in ALL]


@pytest.mark.parametrize(
    ("pattern", "matched"),
    [
        ("exec", ["exec"]),
        ("EXEC", ["exec"]),
        ("openclaw:core:exec", ["exec"]),
        ("core", ["exec", "read_file"]),
        ("github", ["list_issues"]),
        ("group:mcp", ["query"]),
        ("Group:Client", ["pick_colour"]),
        ("bundle-mcp", ["query"]),
        ("*", EVERY_NAME),
        ("list_*", ["list_issues"]),
        ("*_*e", ["read_file"]),
        ("mcp:*", ["query"]),
        ("ex?c", ["exec"]),
        ("exe", []),
        ("xec", []),
        ("?", []),
    ],
)
def test_a_pattern_matches_name_id_owner_or_group(pattern: str, matched: list[str]) -> None:
    assert permitted(ToolRules(allow=(pattern,))) == matched
    assert permitted(ToolRules(deny=(pattern,))) == [n for n in EVERY_NAME if n not in matched]


@pytest.mark.parametrize(
    ("pattern", "name", "owner"),
    [
        ("group:openclaw", "group:openclaw", "evil"),
        ("openclaw:core:a", "openclaw:core:a", "evil"),
        ("openclaw:*", "openclaw:x", "evil"),
        ("*:core:*", "x:core:y", "evil"),
        ("*:core:*", "core:y", "evil"),
        ("client:app:*", "client:app:x", "evil"),
        ("client:*:safe_*", "x:safe_y", "evil"),
        ("bundle-mcp", "bundle-mcp", "evil"),
        ("core", "core", "evil"),
        ("core", "x", "core"),
        ("CORE", "Core", "evil"),
        ("github", "x", "github"),
        ("git*", "x", "github"),
    ],
)
def test_a_client_cannot_name_its_tool_into_an_allow_rule(
    pattern: str, name: str, owner: str
) -> None:
    tool = named(name, owner=owner, source="client")
    assert not ToolPolicy([("t", ToolRules(allow=(pattern,)))]).permits(tool)
    # What denies stays broad: there a name that looks like something else is reason enough.
    assert not ToolPolicy([("t", ToolRules(deny=(pattern,)))]).permits(tool)


@pytest.mark.parametrize(
    ("pattern", "tool"),
    [
        ("client:app:*", PICK),
        ("*:app:*", PICK),
        ("*:pick_colour", PICK),
        ("pick_*", PICK),
        ("mcp:*:query", QUERY),
        ("mcp:d*", QUERY),
        ("db", QUERY),
        ("group:*", QUERY),
        ("fs:read", named("fs:read", owner="x", source="client")),
        ("client:x:fs:read", named("fs:read", owner="x", source="client")),
    ],
)
def test_an_allow_rule_still_reaches_what_it_names(pattern: str, tool: Tool) -> None:
    assert ToolPolicy([("t", ToolRules(allow=(pattern,)))]).permits(tool)


@pytest.mark.parametrize(
    "pattern", ["caf\u00e9", "cafe\u0301", "CAFE\u0301", "caf?", "*:caf\u00c9"]
)
def test_an_accent_is_the_same_however_it_is_typed(pattern: str) -> None:
    for name in ("caf\u00e9", "cafe\u0301"):
        assert not ToolPolicy([("t", ToolRules(deny=(pattern,)))]).permits(named(name))
        assert ToolPolicy([("t", ToolRules(allow=(pattern,)))]).permits(named(name))


def test_without_rules_every_tool_is_permitted() -> None:
    assert permitted(ToolRules()) == EVERY_NAME
    assert effective_tools(ALL, ToolPolicy()) == ALL


def test_an_empty_allow_list_permits_nothing() -> None:
    assert permitted(ToolRules(allow=())) == []


def test_also_allow_adds_to_allow_and_does_not_narrow_everything() -> None:
    assert permitted(ToolRules(allow=("exec",), also_allow=("github",))) == ["exec", "list_issues"]
    assert permitted(ToolRules(allow=(), also_allow=("github",))) == ["list_issues"]
    assert permitted(ToolRules(also_allow=("github",))) == EVERY_NAME


def test_deny_wins_over_allow_in_every_form() -> None:
    rules = ToolRules(allow=("*", "exec"), also_allow=("exec",), deny=("ex*",))
    assert "exec" not in permitted(rules)


def test_every_place_has_to_permit_a_tool() -> None:
    policy = ToolPolicy(
        [("tools", ToolRules(allow=("core",))), ("agent", ToolRules(allow=("exec", "query")))]
    )
    assert effective_tools(ALL, policy) == [EXEC]


def test_a_refusal_names_the_setting() -> None:
    policy = ToolPolicy([("tools", ToolRules(allow=("core",), deny=("EX*",)))])
    assert policy.refusal(EXEC) == 'exec is not permitted: `tools.deny` has "EX*"'
    assert policy.refusal(QUERY) == "query is not permitted: `tools.allow` does not name it"
    assert policy.refusal(READ) is None


@pytest.mark.parametrize(
    ("pattern", "name", "is_match"),
    [
        ("a*b*c", "a__b__c", True),
        ("a*b*c", "a__c__b", False),
        ("***", "anything", True),
        ("a*", "a*b", True),
        ("?*?", "ab", True),
        ("a?", "a", False),
        ("*ab", "aab", True),
        ("[ae]*", "exec", False),
        ("STRASSE", "straße", True),
    ],
)
def test_wildcards_are_the_only_special_characters(pattern: str, name: str, is_match: bool) -> None:
    tool = named(name, owner="zz")
    assert ToolPolicy([("t", ToolRules(allow=(pattern,)))]).permits(tool) is is_match


def test_a_pattern_of_many_stars_takes_no_longer_than_others() -> None:
    policy = ToolPolicy([("tools", ToolRules(deny=("*a" * 100 + "*!",)))])
    assert policy.permits(named("a" * 256))


def test_rules_are_read() -> None:
    value = {"allow": ["a"], "deny": ["b"], "alsoAllow": ["c", "c*"]}
    expected = ToolRules(allow=("a",), deny=("b",), also_allow=("c", "c*"))
    assert rules_of(value) == expected
    assert rules_of(None) == rules_of({"allow": None}) == ToolRules()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (5, "`x` is a number; allowed: an object"),
        ({"allowed": []}, '`x` has the unknown key "allowed"; did you mean `allow`?'),
        ({"x": []}, '`x` has the unknown key "x"; known: allow, deny, alsoAllow'),
        ({"allow": "exec"}, '`x.allow` is "exec"; allowed: a list of names, ids or owners'),
        ({"deny": [3]}, "`x.deny[0]` is 3; allowed: names, ids or owners of tools"),
        ({"deny": ["a", ""]}, '`x.deny[1]` is ""; allowed: a tool\'s name'),
        ({"deny": [" exec"]}, '`x.deny[0]` is " exec"; allowed: a tool\'s name'),
        (
            {"deny": ["group:files"]},
            '`x.deny[0]` is "group:files"; known groups: group:client, group:fs, group:mcp, '
            "group:messaging, group:openclaw, group:runtime, group:web",
        ),
    ],
)
def test_rules_that_could_never_hold_are_refused_by_path(value: object, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        rules_of(value)
    assert str(caught.value).replace("tools.sandbox.tools", "x").startswith(message)


def test_every_source_is_a_group() -> None:
    assert {f"group:{source}" for source in SOURCES} == set(SOURCE_GROUPS)


def test_a_config_without_rules_permits_everything() -> None:
    assert names_for({}) == EVERY_NAME
    assert names_for({"tools": {"codeMode": True, "toolSearch": {}}}) == EVERY_NAME


def test_global_and_agent_rules_both_hold() -> None:
    config: dict[str, object] = {
        "tools": {"codeMode": True, "deny": ["exec"]},
        "agents": {
            "defaults": {"model": "m"},
            "list": [
                {"id": "main", "tools": {"allow": ["core", "query"]}},
                {"id": "other", "tools": {"allow": []}},
            ],
        },
    }
    assert names_for(config) == ["read_file", "query"]
    assert names_for(config, RunContext(agent_id="Other")) == []
    assert names_for(config, RunContext(agent_id="third")) == [n for n in EVERY_NAME if n != "exec"]


def test_agents_may_be_a_map() -> None:
    config: dict[str, object] = {"agents": {"main": {"tools": {"allow": ["exec"]}}, "b": {}}}
    assert names_for(config) == ["exec"]
    assert names_for(config, RunContext(agent_id="b")) == EVERY_NAME


def test_sandbox_rules_hold_for_sandboxed_runs_only() -> None:
    config: dict[str, object] = {
        "tools": {"sandbox": {"tools": {"allow": ["exec"], "alsoAllow": ["bundle-mcp"]}}}
    }
    assert names_for(config) == EVERY_NAME
    assert names_for(config, RunContext(is_sandboxed=True)) == ["exec", "query"]


def test_an_agents_own_sandbox_rules_hold_as_well() -> None:
    agent = {"id": "main", "tools": {"sandbox": {"tools": {"deny": ["exec"]}}}}
    config: dict[str, object] = {"agents": {"list": [agent]}}
    assert "exec" in names_for(config)
    assert "exec" not in names_for(config, RunContext(is_sandboxed=True))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"tools": []}, "`tools` is a list; allowed: an object"),
        ({"tools": {"denny": ["a"]}}, '`tools` has the unknown key "denny"; did you mean `deny`?'),
        (
            {"tools": {"also_allow": ["a"]}},
            '`tools` has the unknown key "also_allow"; did you mean `alsoAllow`?',
        ),
        ({"tools": {"sandbox": 1}}, "`tools.sandbox` is a number; allowed: an object"),
        ({"tools": {"sandbox": {"tools": {"x": 1}}}}, "`tools.sandbox.tools` has the unknown key"),
        ({"agents": {"list": {}}}, "`agents.list` is an object; allowed: a list of agents"),
        ({"agents": {"list": [5]}}, "`agents.list[0]` is a number; allowed: an object"),
        (
            {"agents": {"list": [{"id": "main", "tools": {"deny": 1}}]}},
            "`agents.list[0].tools.deny` is 1; allowed: a list",
        ),
    ],
)
def test_mistakes_in_a_config_are_named_by_path(config: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        tools_config_from(config, "main")
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("rules", "is_possible"),
    [
        ({}, True),
        ({"deny": ["github"]}, False),
        ({"deny": ["bundle-mcp"]}, False),
        ({"deny": ["group:mcp"]}, False),
        ({"deny": ["mcp:github:*"]}, False),
        ({"deny": ["*"]}, False),
        ({"deny": ["mcp:github:delete_*", "create_issue"]}, True),
        ({"deny": ["docs"]}, True),
        ({"allow": []}, False),
        ({"allow": ["read_file"]}, True),
        ({"allow": ["read"]}, False),
        ({"allow": ["Read", "git*"]}, True),
        ({"allow": ["read", "github"]}, True),
        ({"allow": ["read", "*"]}, True),
        ({"allow": ["group:mcp"]}, True),
        ({"allow": ["group:*"]}, True),
        ({"allow": ["bundle-mcp"]}, True),
        ({"allow": ["group:fs", "core"]}, False),
        ({"allow": ["openclaw:*", "client:*:*", "mcp:docs:*"]}, False),
        ({"allow": ["mcp:*"]}, True),
        ({"allow": ["*:read_file"]}, True),
        ({"allow": ["mcp:github:create_issue"]}, True),
        ({"allow": ["mcp:git*:create_issue"]}, True),
    ],
)
def test_a_server_is_ruled_out_when_no_tool_of_it_could_be_permitted(
    rules: dict[str, object], is_possible: bool
) -> None:
    policy = ToolPolicy([("tools", rules_of(rules))])
    assert policy.may_permit_server("github", other_names=["read"]) is is_possible


@pytest.mark.parametrize(
    ("group", "members"),
    [
        ("group:fs", ["read", "write", "edit", "list", "search"]),
        ("group:runtime", ["exec", "process"]),
        ("group:web", ["web_fetch"]),
        ("group:messaging", ["message"]),
    ],
)
def test_core_tools_are_grouped_by_what_they_touch(group: str, members: list[str]) -> None:
    names = ["read", "write", "edit", "list", "search", "exec", "process", "web_fetch", "message"]
    core = [named(name) for name in names]
    foreign = [named(name, owner="evil") for name in names]
    policy = ToolPolicy([("tools", ToolRules(allow=(group,)))])
    assert [tool.name for tool in effective_tools([*foreign, *core], policy)] == members
    policy = ToolPolicy([("tools", ToolRules(deny=(group,)))])
    left = [tool.name for tool in effective_tools(core, policy)]
    assert left == [name for name in names if name not in members]
