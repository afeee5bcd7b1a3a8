"""Approvals at an MCP server: asked by forms of the client, else answered elsewhere."""

import dataclasses
from typing import Any, Literal, cast

import anyio
import anyio.lowlevel
import pytest
from mcp_types import ElicitRequestFormParams

from nacre import (
    AllowAlways,
    AllowOnce,
    ApprovalRequest,
    AskApproval,
    BeforeToolCall,
    Deny,
    RunContext,
    Runtime,
    Tool,
)
from nacre.json_types import JsonObject
from nacre.mcp_server import CodeModeMcpServer
from nacre.mcp_server.served_calls import approval_form, parse_decision
from nacre.sandbox.cell_vm import CellVm
from tests.code_mode.tools import HeldTool, echo_tool
from tests.mcp_server.clients import Era, FormFiller, connect, exec_in, wait_in

CAUGHT = ".catch(e => e.message)"


def ask_always(event: BeforeToolCall) -> object:
    return AskApproval("echoes are loud") if event.tool_name == "echo" else None


def asking_server(runtime: Runtime, *tools: Tool) -> CodeModeMcpServer:
    return CodeModeMcpServer(
        runtime, tools=[echo_tool(), *tools], hooks=[("before_tool_call", ask_always)]
    )


def request_with(input: JsonObject) -> ApprovalRequest:
    return ApprovalRequest(
        id="approval_1",
        tool_id="mcp:files:delete",
        tool_name="delete",
        input=input,
        reason="it deletes",
        context=RunContext(),
        call_id="call_1",
        parent_id="exec_1",
        created=0.0,
        expires=1.0,
    )


async def test_a_client_with_forms_is_asked_and_the_model_sees_one_call(
    runtime: Runtime, era: Era
) -> None:
    person = FormFiller("accept", decision="allow-once")
    async with connect(asking_server(runtime), era, elicitation_callback=person) as client:
        result = await exec_in(client, "return tools.echo({n: 1})")
    assert (result["status"], result["value"]) == ("completed", {"n": 1})
    (asked,) = person.asked
    assert isinstance(asked, ElicitRequestFormParams)
    assert "openclaw:core:echo" in asked.message
    assert '{"n":1}' in asked.message
    assert "echoes are loud" in asked.message


async def test_several_approvals_of_one_program_are_all_asked(runtime: Runtime, era: Era) -> None:
    person = FormFiller("accept", decision="allow-once")
    async with connect(asking_server(runtime), era, elicitation_callback=person) as client:
        code = "await Promise.all([1, 2].map(n => tools.echo({n}))); return tools.echo({n: 3})"
        result = await exec_in(client, code)
    assert result["value"] == {"n": 3}
    assert len(person.asked) == 3


@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_person_who_does_not_agree_stops_the_call(
    runtime: Runtime, era: Era, action: Literal["decline", "cancel"]
) -> None:
    person = FormFiller(action)
    async with connect(asking_server(runtime), era, elicitation_callback=person) as client:
        result = await exec_in(client, f"return tools.echo({{}}){CAUGHT}")
    assert "the approval was denied" in str(result["value"])


async def test_always_is_remembered_for_the_session(runtime: Runtime, era: Era) -> None:
    person = FormFiller("accept", decision="allow-always")
    async with connect(asking_server(runtime), era, elicitation_callback=person) as client:
        for _ in range(2):
            await exec_in(client, "return tools.echo({n: 1})")
    assert len(person.asked) == 1


async def test_a_client_that_fails_to_ask_has_not_agreed(runtime: Runtime, era: Era) -> None:
    async def broken(*_: Any) -> Any:
        from mcp_types import ErrorData

        return ErrorData(code=-32603, message="no screen")

    async with connect(asking_server(runtime), era, elicitation_callback=broken) as client:
        if era == "auto":
            # A client of 2026-07-28 gives up the call itself.
            with pytest.raises(Exception, match="no screen"):
                await exec_in(client, f"return tools.echo({{}}){CAUGHT}")
        else:
            result = await exec_in(client, f"return tools.echo({{}}){CAUGHT}")
            assert "no screen" in str(result["value"])


async def test_without_forms_the_program_waits_and_says_what_to_do(
    runtime: Runtime, era: Era
) -> None:
    async with connect(asking_server(runtime), era) as client:
        waiting = await exec_in(client, "return tools.echo({n: 1})")
    assert waiting["status"] == "waiting"
    assert "cannot ask for approvals" in str(waiting["howToContinue"])
    (asked,) = cast("list[JsonObject]", waiting["approvals"])
    assert (asked["toolId"], asked["reason"]) == ("openclaw:core:echo", "echoes are loud")


async def test_an_approval_that_opened_while_nobody_listened_is_asked_with_the_next_wait(
    runtime: Runtime, era: Era
) -> None:
    person = FormFiller("accept", decision="allow-once")
    held = HeldTool()
    async with connect(
        asking_server(runtime, held.tool), era, elicitation_callback=person
    ) as client:
        code = "const later = tools.held({}).then(() => tools.echo({n: 1}));"
        waiting = await exec_in(client, f"{code} await yield_control(); return later")
        assert waiting["status"] == "waiting"
        held.answer(None)
        result = await wait_in(client, waiting["runId"])
    assert result["value"] == {"n": 1}
    assert len(person.asked) == 1


async def test_a_direct_tool_is_asked_about_as_well(runtime: Runtime, era: Era) -> None:
    person = FormFiller("accept", decision="allow-once")
    direct = echo_tool(catalog_mode="direct-only")
    server = CodeModeMcpServer(runtime, tools=[direct], hooks=[("before_tool_call", ask_always)])
    async with connect(server, era, elicitation_callback=person) as client:
        result = await client.call_tool("echo", {"n": 1})
    assert not result.is_error
    assert len(person.asked) == 1


async def test_an_answer_that_comes_as_the_program_is_suspended_is_no_matter_for_the_model(
    runtime: Runtime, era: Era, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_suspending, suspend = anyio.Event(), CellVm.suspend

    class SlowPerson(FormFiller):
        async def __call__(self, context: Any, params: Any) -> Any:
            await is_suspending.wait()
            return await super().__call__(context, params)

    async def suspend_after_the_answer(vm: CellVm, open_requests: tuple[int, ...]) -> None:
        is_suspending.set()
        while any(call.is_awaiting_approval for cell in runtime.cells() for call in cell.pending):
            await anyio.lowlevel.checkpoint()
        await suspend(vm, open_requests)

    monkeypatch.setattr(CellVm, "suspend", suspend_after_the_answer)
    person = SlowPerson("accept", decision="allow-once")
    async with connect(asking_server(runtime), era, elicitation_callback=person) as client:
        with anyio.fail_after(60):
            result = await exec_in(client, "return tools.echo({n: 1})")
    assert (result["status"], len(person.asked)) == ("completed", 1)


async def test_a_program_with_many_approvals_in_a_row_does_not_wear_out_the_client(
    runtime: Runtime, era: Era
) -> None:
    person = FormFiller("accept", decision="allow-once")
    async with connect(asking_server(runtime), era, elicitation_callback=person) as client:
        code = "for (let n = 0; n < 12; n++) await tools.echo({n}); return 'done'"
        result = await exec_in(client, code)
        while result["status"] == "waiting":
            assert "user is asked" in str(result["howToContinue"])
            result = await wait_in(client, result["runId"])
    assert result["value"] == "done"
    assert len(person.asked) == 12


@pytest.mark.parametrize(
    ("answer", "decided"),
    [
        ({"action": "accept", "content": {"decision": "allow-once"}}, AllowOnce()),
        ({"action": "accept", "content": {"decision": "allow-always"}}, AllowAlways()),
        ({"action": "accept", "content": {"decision": "deny"}}, Deny("the person declined")),
        ({"action": "accept", "content": {}}, Deny("the client sent no decision")),
        ({"action": "accept"}, Deny("the client sent no decision")),
        (
            {"action": "accept", "content": {"decision": ["allow-once"]}},
            Deny("the client sent no decision"),
        ),
        ({"action": "decline"}, Deny("the person declined")),
        ({"action": "cancel", "content": {"decision": "allow-once"}}, Deny("dismissed")),
        ({}, Deny("dismissed")),
    ],
)
def test_everything_but_a_clear_yes_is_a_no(answer: JsonObject, decided: object) -> None:
    assert parse_decision(answer) == decided


def test_a_form_names_the_tool_and_the_reason_on_one_line_each() -> None:
    request = dataclasses.replace(request_with({}), reason="it\nInput: {}\u202e")
    assert str(approval_form(request)["message"]).splitlines() == [
        "A program wants to call mcp:files:delete",
        "Why you are asked: it\\u000aInput: {}\\u202e",
        "Input: {}",
    ]


async def test_a_call_that_cannot_be_shown_in_full_is_denied_without_asking(
    runtime: Runtime, era: Era
) -> None:
    person = FormFiller("accept", decision="allow-once")
    async with connect(asking_server(runtime), era, elicitation_callback=person) as client:
        code = f"return tools.echo({{['k'.repeat(5000)]: 1}}){CAUGHT}"
        result = await exec_in(client, code)
    assert "too many parts to be shown" in str(result["value"])
    assert person.asked == []
