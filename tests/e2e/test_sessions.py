"""Sessions of code mode: replayed, followed after a disconnect, asked and steered meanwhile."""

import json
from collections.abc import AsyncGenerator
from typing import Any

import anyio
import pytest

from nacre.testing import Call, RecordedRequest, Say
from nacre.testing.script import PlainTurn
from tests.contract.requirements import requirement
from tests.e2e.gateways import CODE_MODE, Event, Gateway, Home, kinds
from tests.e2e.outside import PATIENCE_SECONDS

AGENTS: list[Any] = [{"id": "main"}, {"id": "bare", "tools": {"allow": []}}]
SUSPENDED = "await yield_control('a moment'); return await tools.kit_add({a: 40, b: 2})"
PAY = "return await tools.kit_pay({amount: 5})"


async def configure(home: Home) -> None:
    defaults = {"model": "scripted/model", "workspace": str(home.folder)}
    await home.configure(
        tools={**CODE_MODE, "fs": {"ask": "never"}},
        agents={"defaults": defaults, "list": AGENTS},
    )


@pytest.fixture(scope="module")
async def gateway(shared_home: Home) -> AsyncGenerator[Gateway]:
    await configure(shared_home)
    async with shared_home.gateway() as started:
        yield started


def wait(request: RecordedRequest) -> PlainTurn:
    return Call("wait", {"runId": str(request.last_object["runId"])}, call_id="call_wait")


def wire_calls(request: RecordedRequest) -> list[tuple[str, str, str]]:
    """The calls of the model that a request repeats: id, name, arguments."""
    messages: Any = request.body["messages"]
    return [
        (call["id"], call["function"]["name"], call["function"]["arguments"])
        for message in messages
        for call in message.get("tool_calls", ())
    ]


@requirement("validation:control-calls-are-kept", "validation:nested-calls-are-shown")
async def test_exec_and_wait_are_replayed_as_they_were_also_after_a_restart(home: Home) -> None:
    await configure(home)
    marker = home.model.script(
        Call("exec", {"code": SUSPENDED}, call_id="call_exec"),
        wait,
        Say("42"),
        Say("yes"),
        Say("!"),
    )
    async with home.gateway() as gateway:
        run = await gateway.finished(f"what is it? {marker}", sessionKey="k")
        await gateway.finished("sure?", sessionKey="k")
    async with home.gateway() as gateway:
        await gateway.finished("really?", sessionKey="k")
        session = await gateway.get(f"/api/sessions/{run['sessionId']}")
    during, restarted = home.model.requests(marker)[2], home.model.requests(marker)[-1]
    assert [name for _, name, _ in wire_calls(during)] == ["exec", "wait"]
    assert json.loads(wire_calls(during)[0][2]) == {"code": SUSPENDED}
    assert wire_calls(restarted) == wire_calls(during)
    assert restarted.tool_results == during.tool_results
    roles = [each.role for each in restarted.messages if each.role != "system"]
    first_turn = ["user", "assistant", "tool", "assistant", "tool", "assistant"]
    assert roles == [*first_turn, "user", "assistant", "user"]
    # What the program called stands beneath the call, and is nobody's turn.
    shown = {call["toolName"]: call["children"] for call in session["turns"][0]["calls"]}
    assert list(shown) == ["exec", "wait"]
    nested = [child["toolName"] for children in shown.values() for child in children]
    assert nested == ["kit_add"]
    assert "kit_add" not in [name for _, name, _ in wire_calls(restarted)]


@requirement("validation:no-enforcement-without-tools")
@pytest.mark.parametrize("asked", [{"disableTools": True}, {"agentId": "bare"}], ids=str)
async def test_a_run_without_tools_is_sent_without_tools(
    shared_home: Home, gateway: Gateway, asked: dict[str, Any]
) -> None:
    marker = shared_home.model.script(Say("just words"))
    run = await gateway.finished(f"talk {marker}", **asked)
    assert (run["state"], run["result"]["text"]) == ("completed", "just words")
    (request,) = shared_home.model.requests(marker)
    assert request.tool_names == ()
    assert "tools" not in request.body


async def test_a_person_agrees_in_the_middle_of_a_program(
    shared_home: Home, gateway: Gateway
) -> None:
    marker = shared_home.model.script(
        Call("exec", {"code": PAY}), lambda it: Say(str(it.last_object["value"]))
    )
    run_id = await gateway.start(f"pay {marker}")
    asked = await gateway.event(run_id, "approval.requested")
    waiting = await gateway.get(f"/api/runs/{run_id}")
    (question,) = waiting["pendingApprovals"]
    assert question["approvalId"] == asked.data["approvalId"]
    assert (question["toolName"], question["input"]) == ("kit_pay", {"amount": 5})
    assert question["parentToolCallId"]
    # The model is not asked while a person is.
    assert len(shared_home.model.requests(marker)) == 1
    await gateway.post(
        f"/api/approvals/{question['approvalId']}", {"answer": "edit", "input": {"amount": 3}}
    )
    events = await gateway.events(run_id)
    assert "approval.answered" in kinds(events)
    run = await gateway.get(f"/api/runs/{run_id}")
    assert run["result"]["text"] == "paid 3"


async def test_a_person_who_refuses_is_told_to_the_program(
    shared_home: Home, gateway: Gateway
) -> None:
    program = "return await tools.kit_pay({amount: 5}).catch(error => `no: ${error.message}`)"
    marker = shared_home.model.script(
        Call("exec", {"code": program}), lambda it: Say(str(it.last_object["value"]))
    )
    run_id = await gateway.start(f"pay {marker}")
    asked = await gateway.event(run_id, "approval.requested")
    answer = {"answer": "deny", "reason": "not on a Friday"}
    await gateway.post(f"/api/approvals/{asked.data['approvalId']}", answer)
    await gateway.events(run_id)
    run = await gateway.get(f"/api/runs/{run_id}")
    assert run["result"]["text"].startswith("no: ")
    assert "not on a Friday" in run["result"]["text"]


async def test_a_stream_goes_on_where_it_was_cut(shared_home: Home, gateway: Gateway) -> None:
    program = "return await tools.kit_hold({note: 'while nobody listens'})"
    marker = shared_home.model.script(Call("exec", {"code": program}), Say("all of it"))
    run_id = await gateway.start(f"tell {marker}")
    held = await shared_home.outside.call()
    seen: list[Event] = []
    with anyio.fail_after(PATIENCE_SECONDS):
        async for event in gateway.follow(run_id):
            seen.append(event)
            if event.kind == "call.started" and event.data.get("parentToolCallId"):
                break
    await held.answer("meanwhile")
    seen.extend([event async for event in gateway.follow(run_id, last_id=seen[-1].id)])
    assert seen == await gateway.events(run_id)
    assert seen[-1].kind == "run.completed"
    assert [int(event.id) for event in seen] == list(range(len(seen)))


async def test_a_message_steers_the_turn_that_runs(shared_home: Home, gateway: Gateway) -> None:
    program = "return await tools.kit_hold({note: 'busy'})"
    marker = shared_home.model.script(Call("exec", {"code": program}), Say("as you wish"))
    run_id = await gateway.start(f"work {marker}", sessionKey="steered", queueMode="steer")
    held = await shared_home.outside.call()
    same = await gateway.start("in French, please", sessionKey="steered", queueMode="steer")
    await held.answer("done")
    assert same == run_id
    assert "steered" in kinds(await gateway.events(run_id))
    assert shared_home.model.requests(marker)[-1].prompt == "in French, please"
