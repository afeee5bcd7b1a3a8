"""What a turn leaves behind that was ended early: nothing, seen from the outside."""

from collections.abc import AsyncGenerator
from typing import Any

import anyio
import pytest

from nacre.testing import Call, RecordedRequest, Say, Stall
from nacre.testing.script import PlainTurn
from tests.contract.requirements import requirement
from tests.e2e.gateways import CODE_MODE, Gateway, Home, kinds
from tests.e2e.outside import PATIENCE_SECONDS

HASTY = {"codeMode": {"timeoutMs": 1000, "snapshotTtlSeconds": 1}}
HOLD = "return await tools.kit_hold({note: 'never answered'})"
CLIENT_TOOL = {"name": "weather", "parameters": {"type": "object"}}


@pytest.fixture(scope="module")
async def gateway(shared_home: Home) -> AsyncGenerator[Gateway]:
    model = {"model": "scripted/model", "workspace": str(shared_home.folder)}
    agents = {"defaults": model, "list": [{"id": "main"}, {"id": "hasty", "tools": HASTY}]}
    await shared_home.configure(tools={**CODE_MODE, "fs": {"ask": "never"}}, agents=agents)
    async with shared_home.gateway() as started:
        yield started


async def nothing_is_left(gateway: Gateway, run_id: str) -> None:
    run = await gateway.get(f"/api/runs/{run_id}")
    assert (run["pendingApprovals"], run["pendingClientCalls"]) == ([], [])
    assert await gateway.metric("nacre_cells_live") == 0
    assert await gateway.metric("nacre_approvals_pending") == 0
    assert await gateway.metric('nacre_runs_active{state="running"}') == 0
    assert await gateway.metric('nacre_runs_active{state="waiting"}') == 0


async def aborted(gateway: Gateway, run_id: str) -> None:
    """The answer comes when all is over."""
    answer = await gateway.post(f"/api/runs/{run_id}/abort", {"reason": "enough"})
    assert answer == {"runId": run_id, "state": "aborted", "wasAborted": True}
    await nothing_is_left(gateway, run_id)
    assert kinds(await gateway.events(run_id))[-1] == "run.aborted"


@requirement("e2e:code-mode:15")
async def test_a_program_that_times_out_takes_its_calls_along(
    shared_home: Home, gateway: Gateway
) -> None:
    program = "tools.kit_hold({note: 'alone'}); await tools.kit_add({a: 1, b: 1}); while (true);"

    def go_on(request: RecordedRequest) -> PlainTurn:
        if request.messages[-1].role == "user":
            return Call("exec", {"code": program})
        result = request.last_object
        # On a busy machine the budget may end before the loop has begun.
        if result["status"] == "waiting":
            return Call("wait", {"runId": str(result["runId"])})
        return Say(str(result["code"]))

    marker = shared_home.model.play(go_on)
    run_id = await gateway.start(f"loop {marker}", agentId="hasty")
    held = await shared_home.outside.call()
    await gateway.events(run_id)
    run = await gateway.get(f"/api/runs/{run_id}")
    assert run["result"]["text"] == "timeout"
    await held.gone()
    await nothing_is_left(gateway, run_id)


@requirement("e2e:code-mode:15")
async def test_a_snapshot_that_expires_takes_its_calls_along(
    shared_home: Home, gateway: Gateway
) -> None:
    is_thinking, is_expired = anyio.Event(), anyio.Event()
    waiting: list[Any] = []

    def think(request: RecordedRequest) -> PlainTurn:
        waiting.append(request.last_object)
        is_thinking.set()
        call = Call("wait", {"runId": str(request.last_object["runId"])})
        return [Say("Let me think."), Stall(is_expired), call]

    def tell(request: RecordedRequest) -> PlainTurn:
        result = request.last_object
        return Say(f"{result['code']}: {result['error']}")

    marker = shared_home.model.script(Call("exec", {"code": HOLD}), think, tell)
    run_id = await gateway.start(f"wait too long {marker}", agentId="hasty")
    held = await shared_home.outside.call()
    # The call goes with its snapshot, while the model still thinks.
    await held.gone()
    with anyio.fail_after(PATIENCE_SECONDS):
        await is_thinking.wait()
    assert waiting[0]["status"] == "waiting"
    is_expired.set()
    await gateway.events(run_id)
    run = await gateway.get(f"/api/runs/{run_id}")
    assert run["result"]["text"].startswith("invalid_input: ")
    assert "expired" in run["result"]["text"]
    await nothing_is_left(gateway, run_id)


async def test_an_abort_ends_the_stream_of_the_provider(
    shared_home: Home, gateway: Gateway
) -> None:
    marker = shared_home.model.script([Say("I think "), Stall()])
    run_id = await gateway.start(f"think {marker}")
    await gateway.event(run_id, "text.delta")
    await aborted(gateway, run_id)
    (request,) = shared_home.model.requests(marker)
    with anyio.fail_after(PATIENCE_SECONDS):
        assert await request.wait_until_over() == "abandoned"
    run = await gateway.get(f"/api/runs/{run_id}")
    assert (run["result"]["text"], run["result"]["error"]) == ("I think ", "enough")


@requirement("e2e:code-mode:15")
async def test_an_abort_ends_the_program_and_the_tool_that_it_waits_for(
    shared_home: Home, gateway: Gateway
) -> None:
    marker = shared_home.model.script(Call("exec", {"code": HOLD}))
    run_id = await gateway.start(f"hold {marker}")
    held = await shared_home.outside.call()
    assert await gateway.metric("nacre_cells_live") == 1
    await aborted(gateway, run_id)
    await held.gone()


async def test_an_abort_ends_a_program_that_computes(shared_home: Home, gateway: Gateway) -> None:
    marker = shared_home.model.script(
        Call(
            "exec", {"code": "text('I compute'); await tools.kit_add({a: 1, b: 1}); while (true);"}
        )
    )
    run_id = await gateway.start(f"compute {marker}")
    await gateway.event(run_id, "call.ended")
    await aborted(gateway, run_id)


async def test_an_abort_withdraws_the_question_to_a_person(
    shared_home: Home, gateway: Gateway
) -> None:
    marker = shared_home.model.script(Call("exec", {"code": "return tools.kit_pay({amount: 5})"}))
    run_id = await gateway.start(f"pay {marker}")
    asked = await gateway.event(run_id, "approval.requested")
    await aborted(gateway, run_id)
    late = await gateway.client.post(
        f"/api/approvals/{asked.data['approvalId']}", json={"answer": "allow-once"}
    )
    assert late.status_code in (404, 409)
    assert late.json()["error"]["message"]


async def test_an_abort_withdraws_the_call_of_a_client(shared_home: Home, gateway: Gateway) -> None:
    marker = shared_home.model.script(Call("exec", {"code": "return tools.weather({})"}))
    run_id = await gateway.start(f"ask the client {marker}", clientTools=[CLIENT_TOOL])
    asked = await gateway.event(run_id, "client_call.requested")
    await aborted(gateway, run_id)
    late = await gateway.client.post(
        f"/api/runs/{run_id}/client-results",
        json={"results": [{"callId": asked.data["callId"], "content": "rain"}]},
    )
    assert late.status_code in (404, 409)


async def test_a_session_goes_on_after_an_abort_with_what_was_said(
    shared_home: Home, gateway: Gateway
) -> None:
    marker = shared_home.model.script([Say("I think "), Stall()], Say("Never mind."))
    run_id = await gateway.start(f"think {marker}", sessionKey="goes-on")
    await gateway.event(run_id, "text.delta")
    await aborted(gateway, run_id)
    run = await gateway.finished("and now?", sessionKey="goes-on")
    assert run["result"]["text"] == "Never mind."
    said = [it.text for it in shared_home.model.requests(marker)[-1].messages]
    assert said[-3:] == [f"think {marker}", "I think ", "and now?"]
