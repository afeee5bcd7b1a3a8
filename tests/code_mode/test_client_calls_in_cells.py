"""Calls that wait for a client: the program's clock stands still, and the model is told which."""

from typing import Any

import anyio
import pytest

from nacre import Runtime, Tool, ToolCall
from nacre.code_mode.cell import PendingToolCall
from nacre.errors import ToolPayloadError
from nacre.messages import SentPayload
from tests.code_mode.outcomes import value_of, waiting_of
from tests.code_mode.simple_tools import simple_tool


async def test_a_call_that_is_away_is_told_from_one_that_waits_for_a_person(
    runtime: Runtime,
) -> None:
    release = anyio.Event()

    async def execute(given: dict[str, Any], call: ToolCall) -> object:
        with call.pause_timeout():
            await release.wait()
        return "delivered"

    tool = Tool(name="ask", owner="app", source="client", execute=execute)
    run = runtime.run(tools=[tool])
    with anyio.fail_after(5):
        waiting = waiting_of(await run.exec("return await tools.ask({})"))
        (pending,) = waiting.pending
        assert (pending.is_awaiting_client, pending.is_awaiting_approval) == (True, False)
        assert pending.to_json() == {
            "id": pending.call_id,
            "toolId": "client:app:ask",
            "awaitingClient": True,
        }
        assert run.waits_for_somebody(waiting.pending)
        assert waiting.next_timer_ms is None
        release.set()
        assert value_of(await run.wait(waiting.cell_id)) == "delivered"


async def test_a_cell_with_a_timer_says_so(runtime: Runtime) -> None:
    run = runtime.run(tools=[simple_tool("nothing")])
    program = "setTimeout(() => {}, 60000); await yield_control(); return 1"
    with anyio.fail_after(5):
        assert waiting_of(await run.exec(program)).next_timer_ms is not None


async def test_calls_that_have_no_turn_wait_for_those_that_wait_for_somebody(
    runtime: Runtime,
) -> None:
    run = runtime.run(tools=[simple_tool("nothing")])
    asked = PendingToolCall(
        id=1, method="tools.call", call_id="c.1", tool_id="t", is_awaiting_client=True
    )
    queued = PendingToolCall(id=2, method="tools.call", call_id="c.2", tool_id="t")
    assert run.waits_for_somebody([asked])
    assert not run.waits_for_somebody([])
    assert not run.waits_for_somebody([asked, queued])
    assert run.waits_for_somebody([asked] * 16 + [queued])


async def test_a_run_checks_the_payload_of_its_requests(runtime: Runtime) -> None:
    run = runtime.run(tools=[simple_tool("nothing")])
    run.verify_payload(payload("wait", "exec"))
    with pytest.raises(ToolPayloadError, match="too many: nothing; missing: wait"):
        run.verify_payload(payload("exec", "nothing"))
    assert run.telemetry().catalog_size == 1


@pytest.mark.parametrize("names", [[], ["nothing"], ["exec", "wait", "nothing"]])
async def test_runs_outside_code_mode_are_not_checked(runtime: Runtime, names: list[str]) -> None:
    runtime.run(tools=[simple_tool("nothing")], tools_disabled=True).verify_payload(payload(*names))
    runtime.run(tools=[]).verify_payload(payload(*names))


def payload(*names: str) -> SentPayload:
    return SentPayload(tool_names=names, tool_bytes=0, payload_bytes=0)
