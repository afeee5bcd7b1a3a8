"""Approval requests of the app-server: who decides, and what the answer is."""

from typing import Any

import anyio
import pytest

from nacre.codex_harness.approvals import ApprovalBridge
from nacre.errors import ApprovalError
from nacre.hooks import AskApproval, BeforeToolCall, Block, ChangeInput
from nacre.json_types import JsonObject
from nacre.tools import AllowEdited, ApprovalInfo
from tests.agent.agent_setup import events_of
from tests.agent.conftest import OpenAgent
from tests.codex_harness.approval_turns import (
    ASKING,
    COMMAND,
    ELICITATION,
    FILES,
    PAY_ITEM,
    PERMISSIONS,
    YOLO,
    ApprovalTurns,
    command,
    elicitation,
    file_change,
    permissions,
)
from tests.contract.requirements import requirement

ASKED: JsonObject = {
    "network": {"enabled": True},
    "fileSystem": {"write": ["/opt/place/out"], "read": None},
}
ONCE: list[ApprovalInfo] = ["allow-once"]
ALWAYS: list[ApprovalInfo] = ["allow-always"]
DENY: list[ApprovalInfo] = ["deny"]
EVERY_KIND: list[tuple[str, JsonObject]] = [
    (COMMAND, command()),
    (FILES, file_change()),
    (PERMISSIONS, permissions(ASKED)),
    (ELICITATION, elicitation()),
]
DECLINED: list[JsonObject] = [
    {"decision": "decline"},
    {"decision": "decline"},
    {"permissions": {}, "scope": "turn"},
    {"action": "decline"},
]


class Checked:
    """Native hooks that have let every call pass."""

    def __init__(self, *, is_approved: bool = False) -> None:
        self._is_approved = is_approved

    def has_checked(self, call_id: str, /) -> bool:
        return True

    def is_approved(self, call_id: str, /) -> bool:
        return self._is_approved


@requirement("codex:approval-answers")
@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (
            "allow-once",
            [
                {"decision": "accept"},
                {"decision": "accept"},
                {"permissions": ASKED, "scope": "turn"},
                {"action": "accept", "content": None},
            ],
        ),
        (
            "allow-always",
            [
                {"decision": "accept"},
                {"decision": "accept"},
                {"permissions": ASKED, "scope": "session"},
                {"action": "accept", "content": None},
            ],
        ),
        ("deny", DECLINED),
    ],
)
async def test_each_answer_of_a_person_has_its_result(
    open_service: OpenAgent, answer: Any, expected: list[JsonObject]
) -> None:
    harness = ApprovalTurns()
    async with open_service(harness=harness) as setup:
        results, prompts, run = await harness.send(
            setup, *EVERY_KIND, answers=[answer] * 4, items=[PAY_ITEM]
        )
    assert results == expected
    assert [prompt.tool_id for prompt in prompts] == [
        "openclaw:core:exec",
        "openclaw:core:apply_patch",
        "openclaw:core:codex_permission_approval",
        "mcp:bank:pay",
    ]
    # People are asked like about any other call: events, and a run that waits.
    asked = events_of(run, "approval.requested")
    assert [event.data["approvalId"] for event in asked] == [prompt.id for prompt in prompts]
    assert len(events_of(run, "approval.answered")) == 4
    assert len(events_of(run, "run.waiting")) == 4


@requirement("codex:approval-decline-is-not-cancel")
async def test_an_answer_that_does_not_come_in_time_declines(open_service: OpenAgent) -> None:
    harness = ApprovalTurns()
    harness.ttl_seconds = 0.01
    async with open_service(harness=harness) as setup:
        results, _, run = await harness.send(setup, *EVERY_KIND, items=[PAY_ITEM])
    assert results == DECLINED
    ended = events_of(run, "approval.answered")
    assert [event.data["answer"] for event in ended] == ["expired"] * 4


@requirement("codex:approval-decline-is-not-cancel")
@pytest.mark.parametrize("kind", range(4))
async def test_only_an_abort_of_the_run_cancels(open_service: OpenAgent, kind: int) -> None:
    harness = ApprovalTurns()
    results: list[JsonObject] = []
    async with open_service(harness=harness) as setup:

        async def act(bridge: ApprovalBridge) -> None:
            bridge.observe("item/started", {"threadId": "t1", "item": PAY_ITEM})
            results.append(await bridge.answer(*EVERY_KIND[kind]))

        harness.act = act
        run = await setup.start()
        with anyio.fail_after(5):
            assert await run.waiting_or_ended() == "waiting"
            await run.abort("enough")
    cancelled: list[JsonObject] = [
        {"decision": "cancel"},
        {"decision": "cancel"},
        {"permissions": {}, "scope": "turn"},
        {"action": "cancel"},
    ]
    assert results == [cancelled[kind]]
    assert [event.data["answer"] for event in events_of(run, "approval.answered")] == ["withdrawn"]


@requirement("codex:approval-of-active-turn")
@pytest.mark.parametrize("other", [{"threadId": "t2"}, {"turnId": "u2"}])
async def test_requests_of_other_threads_and_turns_are_declined_unasked(
    open_service: OpenAgent, other: JsonObject
) -> None:
    harness = ApprovalTurns(YOLO)
    foreign = [(method, {**params, **other}) for method, params in EVERY_KIND]
    async with open_service(harness=harness) as setup:
        results, prompts, _ = await harness.send(setup, *foreign, items=[PAY_ITEM])
    assert (results, prompts) == (DECLINED, [])


@requirement("codex:approval-policy-first")
async def test_policy_and_hooks_decline_before_a_person_is_asked(open_service: OpenAgent) -> None:
    seen: list[BeforeToolCall] = []

    def before_tool_call(event: BeforeToolCall) -> object:
        seen.append(event)
        if event.tool_name == "apply_patch":
            return Block("no changes today")
        return ChangeInput({"command": "true"}) if event.tool_name == "exec" else None

    harness = ApprovalTurns(YOLO)
    async with open_service(
        harness=harness, hooks=[before_tool_call], document={"tools": {"deny": ["mcp:bank:*"]}}
    ) as setup:
        item: JsonObject = {"type": "fileChange", "id": "call_1", "changes": [{"path": "a"}]}
        results, prompts, _ = await harness.send(setup, *EVERY_KIND, items=[item])
        assert results == [*DECLINED[:2], {"permissions": ASKED, "scope": "turn"}, DECLINED[3]]
        assert prompts == []
        # Hooks see the script as the model wrote it, and where it runs.
        assert seen[0].input["command"] == "echo hi"
        assert seen[0].input["cwd"] == "/opt/place"
        assert seen[1].input["changes"] == [{"path": "a"}]
        assert [event.tool_name for event in seen] == [
            "exec",
            "apply_patch",
            "codex_permission_approval",
        ]


async def test_a_list_of_allowed_tools_does_not_have_to_name_permissions(
    open_service: OpenAgent,
) -> None:
    harness = ApprovalTurns()
    async with open_service(harness=harness, document={"tools": {"allow": ["exec"]}}) as setup:
        results, prompts, _ = await harness.send(setup, *EVERY_KIND[:3], answers=2 * ONCE)
    assert results == [{"decision": "accept"}, DECLINED[1], {"permissions": ASKED, "scope": "turn"}]
    assert len(prompts) == 2


@requirement("codex:approval-auto")
async def test_only_full_access_without_approvals_accepts_unasked(open_service: OpenAgent) -> None:
    harness = ApprovalTurns(YOLO)
    async with open_service(harness=harness) as setup:
        results, prompts, _ = await harness.send(setup, (COMMAND, command()))
        assert (results, prompts) == ([{"decision": "accept"}], [])
        harness.permissions = ASKING
        results, prompts, _ = await harness.send(setup, (COMMAND, command()), answers=["deny"])
        assert (results, len(prompts)) == ([{"decision": "decline"}], 1)


async def test_a_hook_can_ask_a_person_even_where_nobody_else_would(
    open_service: OpenAgent,
) -> None:
    harness = ApprovalTurns(YOLO)

    def before_tool_call(event: BeforeToolCall) -> AskApproval:
        return AskApproval("it is a holiday")

    async with open_service(harness=harness, hooks=[before_tool_call]) as setup:
        results, prompts, _ = await harness.send(
            setup, (COMMAND, command()), answers=["allow-once"]
        )
        assert results == [{"decision": "accept"}]
        assert prompts[0].reason.endswith("it is a holiday")


async def test_calls_that_native_hooks_have_checked_are_not_hooked_twice(
    open_service: OpenAgent,
) -> None:
    hooked: list[object] = []
    harness = ApprovalTurns(YOLO, checks=Checked())
    async with open_service(harness=harness, hooks=[("before_tool_call", hooked.append)]) as setup:
        results, _, _ = await harness.send(setup, (COMMAND, command()))
        assert results == [{"decision": "accept"}]
        assert hooked == []


async def test_what_a_hook_had_approved_is_not_asked_again_but_more_is(
    open_service: OpenAgent,
) -> None:
    harness = ApprovalTurns(checks=Checked(is_approved=True))
    network: JsonObject = {"host": "example.org", "protocol": "https"}
    async with open_service(harness=harness) as setup:
        results, prompts, _ = await harness.send(
            setup,
            (COMMAND, command()),
            (COMMAND, command()),
            (COMMAND, command(call_id="call_2", networkApprovalContext=network)),
            answers=["deny", "deny"],
        )
        assert [result["decision"] for result in results] == ["accept", "decline", "decline"]
        assert len(prompts) == 2


async def test_an_edited_input_is_refused_and_the_request_stays_open(
    open_service: OpenAgent,
) -> None:
    harness = ApprovalTurns()
    results: list[JsonObject] = []
    async with open_service(harness=harness) as setup:

        async def act(bridge: ApprovalBridge) -> None:
            results.append(await bridge.answer(COMMAND, command()))

        harness.act = act
        run = await setup.start()
        with anyio.fail_after(5):
            await run.waiting_or_ended()
        (request,) = setup.approvals.pending
        with pytest.raises(ApprovalError, match="allow the call as it is, or deny it"):
            setup.approvals.answer(request.id, AllowEdited({"command": "true"}))
        setup.approvals.answer(request.id, "allow-once")
        await run.wait()
    assert results == [{"decision": "accept"}]


# Always.


@requirement("codex:allow-always-exact")
@pytest.mark.parametrize(
    ("changed", "is_asked"),
    [
        ({"startedAtMs": 2, "itemId": "call_9", "approvalId": "a2"}, False),
        ({"command": "/bin/bash -lc 'echo ho'"}, True),
        ({"cwd": "/opt/other"}, True),
        ({"environmentId": "remote"}, True),
        ({"reason": "because"}, True),
        ({"additionalPermissions": {"network": {"enabled": True}}}, True),
    ],
)
async def test_always_holds_for_exactly_the_same_call(
    open_service: OpenAgent, changed: JsonObject, is_asked: bool
) -> None:
    harness = ApprovalTurns()
    async with open_service(harness=harness) as setup:
        await harness.send(setup, (COMMAND, command()), answers=["allow-always"])
        # The order of the members does not matter.
        again = dict(reversed({**command(), **changed}.items()))
        results, prompts, _ = await harness.send(setup, (COMMAND, again), answers=["deny"])
        assert results == [{"decision": "decline" if is_asked else "accept"}]
        assert len(prompts) == is_asked


@requirement("codex:allow-always-exact")
async def test_always_holds_in_its_session_and_for_half_an_hour(open_service: OpenAgent) -> None:
    harness = ApprovalTurns()
    async with open_service(harness=harness) as setup:
        await harness.send(setup, (COMMAND, command()), answers=["allow-always"])
        harness.clock.now += 29 * 60
        assert (await harness.send(setup, (COMMAND, command())))[1] == []
        # Being used does not make it last longer.
        harness.clock.now += 2 * 60
        _, prompts, _ = await harness.send(setup, (COMMAND, command()), answers=["allow-always"])
        assert len(prompts) == 1
        _, prompts, _ = await harness.send(
            setup, (COMMAND, command()), answers=["deny"], session_key="another"
        )
        assert len(prompts) == 1


async def test_always_never_widens_what_codex_may_do(open_service: OpenAgent) -> None:
    """Codex offers rules for prefixes that the model chooses; a person who allows one call does
    not allow them."""
    amendment: JsonObject = {"acceptWithExecpolicyAmendment": {"execpolicy_amendment": ["curl"]}}
    offered = command("curl x", availableDecisions=["accept", amendment, "cancel"])
    for_session = command("curl y", availableDecisions=["accept", "acceptForSession", "cancel"])
    harness = ApprovalTurns()
    async with open_service(harness=harness) as setup:
        results, _, _ = await harness.send(
            setup, (COMMAND, offered), (COMMAND, for_session), answers=2 * ALWAYS
        )
    assert results == [{"decision": "accept"}, {"decision": "acceptForSession"}]


async def test_equal_requests_share_one_prompt(open_service: OpenAgent) -> None:
    harness = ApprovalTurns()
    results: list[JsonObject] = []
    async with open_service(harness=harness) as setup:

        async def act(bridge: ApprovalBridge) -> None:
            async def send(call_id: str, text: str) -> None:
                results.append(await bridge.answer(COMMAND, command(text, call_id=call_id)))

            async with anyio.create_task_group() as tasks:
                for index, text in enumerate(("ls x", "ls x", "ls y")):
                    tasks.start_soon(send, f"call_{index}", text)

        harness.act = act
        run = await setup.start()
        with anyio.fail_after(5):
            while len(setup.approvals.pending) < 2:
                await setup.approvals.wait_for_change()
        await anyio.wait_all_tasks_blocked()
        first, second = setup.approvals.pending
        setup.approvals.answer(first.id, "allow-once")
        setup.approvals.answer(second.id, "deny")
        await run.wait()
    assert sorted(str(result["decision"]) for result in results) == ["accept", "accept", "decline"]


async def test_a_flood_of_unwanted_prompts_ends_and_allowed_ones_are_no_flood(
    open_service: OpenAgent,
) -> None:
    harness = ApprovalTurns()
    many = [(COMMAND, command(f"echo {number}")) for number in range(14)]
    async with open_service(harness=harness) as setup:
        _, prompts, _ = await harness.send(setup, *many, answers=14 * ONCE)
        assert len(prompts) == 14
        results, prompts, _ = await harness.send(setup, *many, answers=14 * DENY)
        assert len(prompts) == 12
        assert results == [{"decision": "decline"}] * 14
        harness.clock.now += 61
        _, prompts, _ = await harness.send(setup, many[0], answers=["deny"])
        assert len(prompts) == 1


# What the person reads.


@requirement("codex:approval-text")
async def test_the_text_is_clean_and_short_and_the_input_is_whole(open_service: OpenAgent) -> None:
    text = "echo \x1b[31mred\x1b[0m \u202egnp.exe\u202c \u200bok" + " long" * 200
    harness = ApprovalTurns()
    async with open_service(harness=harness) as setup:
        reason = "trust me\n\x1b]0;title\x07 " + "really " * 100
        _, (prompt,), _ = await harness.send(
            setup, (COMMAND, command(text, reason=reason)), answers=["deny"]
        )
    assert prompt.reason.startswith("Codex asks to run a command. in /opt/place:")
    assert prompt.reason.isprintable()
    assert "[31m" not in prompt.reason
    assert "title" not in prompt.reason
    assert len(prompt.reason) <= 80 + 256 + 2
    assert prompt.input["command"] == f"/bin/bash -lc '{text}'"


@requirement("codex:approval-text")
@pytest.mark.parametrize(
    ("request_", "risk"),
    [
        ((COMMAND, command(networkApprovalContext={"host": "10.0.0.7", "protocol": "https"})),
         "a private network"),
        ((COMMAND, command(networkApprovalContext={"host": "db.internal", "protocol": "https"})),
         "a private network"),
        ((COMMAND, command(networkApprovalContext={"host": "*.org", "protocol": "https"})),
         "a pattern of hosts"),
        ((COMMAND, command(additionalPermissions={"network": {"enabled": True}})),
         "network access to all hosts"),
        ((PERMISSIONS, permissions({"fileSystem": {"write": ["/"]}})),
         "write access to the file system root"),
        ((PERMISSIONS, permissions({"fileSystem": {"entries": [
            {"access": "read", "path": {"type": "special", "value": {"kind": "root"}}}]}})),
         "read access to the file system root"),
        ((PERMISSIONS, permissions({"fileSystem": {"entries": [
            {"access": "write", "path": {"type": "glob_pattern", "pattern": "/srv/*/x"}}]}})),
         "write access by a pattern of paths"),
        ((PERMISSIONS, permissions({"fileSystem": {"write": ["/srv/data"]}})),
         "files outside of the workspace"),
        ((FILES, file_change(grantRoot="/srv")), "write access to all of /srv from now on"),
    ],
)  # fmt: skip
async def test_risks_are_named(
    open_service: OpenAgent, request_: tuple[str, JsonObject], risk: str
) -> None:
    harness = ApprovalTurns()
    async with open_service(harness=harness) as setup:
        _, (prompt,), _ = await harness.send(setup, request_, answers=["deny"])
    assert f"risk: {risk}" in prompt.reason


async def test_a_file_change_shows_its_files(open_service: OpenAgent) -> None:
    harness = ApprovalTurns()
    async with open_service(harness=harness) as setup:
        workspace = setup.config.agents.agent("main").workspace
        changes: list[Any] = [
            {"path": f"{workspace}/a.txt", "kind": {"type": "add"}, "diff": "hello\n"},
            {"path": "/etc/passwd", "kind": {"type": "update"}, "diff": "@@"},
        ]
        item: JsonObject = {"type": "fileChange", "id": "call_1", "changes": changes}
        _, (prompt,), _ = await harness.send(
            setup, (FILES, file_change()), answers=["deny"], items=[item]
        )
    assert "risk: files outside of the workspace" in prompt.reason
    assert "add a.txt, update /etc/passwd" in prompt.reason
    assert prompt.input == {"changes": changes}


# MCP elicitations.


@requirement("codex:mcp-elicitations")
@pytest.mark.parametrize(
    ("schema", "content"),
    [
        ({}, None),
        ({"approve": {"type": "boolean"}}, {"approve": True}),
        ({"approved": {"type": "boolean"}, "note": {"type": "string"}}, {"approved": True}),
        ({"decision": {"type": "string", "enum": ["deny", "allow", "always"]}},
         {"decision": "allow"}),
        ({"decision": {"type": "string", "oneOf": [
            {"const": "a", "title": "Always"}, {"const": "b", "title": "Allow once"}]}},
         {"decision": "b"}),
        ({"decision": {"type": "string", "enum": ["n", "y"], "enumNames": ["No", "Yes"]}},
         {"decision": "y"}),
        ({"confirm": {"type": "boolean"}, "remember": {"type": "boolean"}},
         {"confirm": True, "remember": False}),
        ({"ok": {"type": "boolean"}, "persist": {"type": "string", "enum": ["once", "always"]}},
         {"ok": True, "persist": "once"}),
    ],
)  # fmt: skip
async def test_a_form_that_means_yes_is_filled_for_this_call_only(
    open_service: OpenAgent, schema: JsonObject, content: JsonObject | None
) -> None:
    harness = ApprovalTurns()
    async with open_service(harness=harness) as setup:
        request = (ELICITATION, elicitation(schema))
        results, prompts, _ = await harness.send(
            setup, request, answers=["allow-always"], items=[PAY_ITEM]
        )
        assert results == [{"action": "accept", "content": content}]
        assert prompts[0].input == {"server": "bank", "tool": "pay", "arguments": {"amount": 3}}
        # Nacre remembers it: the same call is not asked about again, another one is.
        results, prompts, _ = await harness.send(setup, request, items=[PAY_ITEM])
        assert (results[0]["action"], prompts) == ("accept", [])


@requirement("codex:mcp-elicitations")
@pytest.mark.parametrize(
    "params",
    [
        elicitation(_meta=None),
        elicitation(_meta={"codex_approval_kind": "other"}),
        elicitation(mode="url", url="https://example.org", elicitationId="e1"),
        elicitation(mode="openai/form"),
        elicitation({"colour": {"type": "string"}}),
        elicitation({"decision": {"type": "string", "enum": ["red", "blue"]}}),
        elicitation(
            requestedSchema={
                "type": "object",
                "properties": {"approve": {"type": "boolean"}, "pin": {"type": "string"}},
                "required": ["approve", "pin"],
            }
        ),
        elicitation(requestedSchema={"type": "object", "properties": {}}, serverName="unknown"),
        elicitation(requestedSchema=None),
    ],
)
async def test_every_other_elicitation_is_declined_unasked(
    open_service: OpenAgent, params: JsonObject
) -> None:
    harness = ApprovalTurns(YOLO)
    async with open_service(harness=harness) as setup:
        results, prompts, _ = await harness.send(setup, (ELICITATION, params), items=[PAY_ITEM])
    assert (results, prompts) == ([{"action": "decline"}], [])


@requirement("codex:mcp-elicitations")
async def test_two_calls_with_the_same_arguments_are_told_apart_by_their_tools(
    open_service: OpenAgent,
) -> None:
    refund: JsonObject = {**PAY_ITEM, "id": "call_2", "tool": "refund"}
    harness = ApprovalTurns()
    async with open_service(harness=harness) as setup:
        # The call that began last is not the one that is asked about.
        results, prompts, _ = await harness.send(
            setup, (ELICITATION, elicitation()), answers=["allow-once"], items=[PAY_ITEM, refund]
        )
        assert [(it.tool_id, it.input["tool"]) for it in prompts] == [("mcp:bank:pay", "pay")]
        assert results[0]["action"] == "accept"
        # A text that names neither or both of them.
        for text in ("Approve the call?", 'Run "pay" or "refund"?'):
            unclear = (ELICITATION, elicitation(message=text))
            results, prompts, _ = await harness.send(setup, unclear, items=[PAY_ITEM, refund])
            assert (results, prompts) == ([{"action": "decline"}], [])
