"""The six proofs of Tool Search: a large plugin directly, in mode `code`, in mode `tools`."""

from dataclasses import dataclass
from typing import Any

import pytest

from nacre.testing import Call, RecordedRequest, Say
from nacre.testing.script import Turn
from tests.contract.requirements import requirement
from tests.e2e.gateways import Event, Home

COUNT = 120
PLUGIN = {"many": {"count": COUNT}}
WANTED = {"text": "hello"}
RETURNED = {"number": 77, "said": "hello"}
PROGRAM = """
const [found] = await openclaw.tools.search("fake tool number 77");
const described = await openclaw.tools.describe(found.id);
return await openclaw.tools.call(described.id, {text: "hello"});
"""


@dataclass(frozen=True, kw_only=True)
class Proof:
    """What was seen of a turn that calls the tool number 77."""

    requests: list[RecordedRequest]
    events: list[Event]
    run: dict[str, Any]
    turn: dict[str, Any]
    """As the session shows it."""
    telemetry: dict[str, Any]
    """As the trajectory ends."""

    @property
    def nested(self) -> list[str]:
        found = [event.data for event in self.events if event.kind == "call.started"]
        return [call["toolName"] for call in found if call.get("parentToolCallId")]


async def proof_of(home: Home, tools: dict[str, Any], *turns: Turn) -> Proof:
    await home.configure(tools={**tools, "fs": {"enabled": False}}, plugins=PLUGIN)
    marker = home.model.script(*turns, Say("done"))
    async with home.gateway() as gateway:
        run_id = await gateway.start(f"call it {marker}")
        events = await gateway.events(run_id)
        run = await gateway.get(f"/api/runs/{run_id}")
        session = await gateway.get(f"/api/sessions/{run['sessionId']}")
        trajectory = await gateway.get(f"/api/runs/{run_id}/trajectory")
    (turn,) = session["turns"]
    ended = trajectory["events"][-1]["event"]
    assert ended["kind"] == "turn.ended"
    return Proof(
        requests=home.model.requests(marker),
        events=events,
        run=run,
        turn=turn,
        telemetry=ended["data"]["telemetry"],
    )


def searched(request: RecordedRequest) -> Call:
    found: Any = request.last_object["value"]
    return Call("tool_describe", {"id": found[0]["id"]})


def described(request: RecordedRequest) -> Call:
    found: Any = request.last_object["value"]
    return Call("tool_call", {"id": found["id"], "args": dict(WANTED)})


@pytest.fixture(scope="module")
async def direct(shared_home: Home) -> Proof:
    return await proof_of(shared_home, {}, Call("fake_77", dict(WANTED)))


@pytest.fixture(scope="module")
async def code(shared_home: Home) -> Proof:
    return await proof_of(
        shared_home,
        {"toolSearch": {"enabled": True, "mode": "code"}},
        Call("tool_search_code", {"code": PROGRAM}),
    )


@pytest.fixture(scope="module")
async def structured(shared_home: Home) -> Proof:
    return await proof_of(
        shared_home,
        {"toolSearch": {"enabled": True, "mode": "tools"}},
        Call("tool_search", {"query": "fake tool number 77"}),
        searched,
        described,
    )


@requirement("e2e:tool-search:1", "e2e:tool-search:3")
async def test_directly_the_provider_sees_every_tool_and_calls_one(direct: Proof) -> None:
    assert set(direct.requests[0].tool_names) >= {f"fake_{number}" for number in range(COUNT)}
    tools: Any = direct.requests[0].body["tools"]
    (shown,) = [it["function"] for it in tools if it["function"]["name"] == "fake_77"]
    assert shown["parameters"]["required"] == ["text"]
    assert direct.requests[1].last_object == RETURNED
    assert direct.run["result"]["text"] == "done"


@requirement("e2e:tool-search:2", "e2e:tool-search:4")
async def test_a_program_of_tool_search_calls_the_same_tool(code: Proof) -> None:
    assert [request.tool_names for request in code.requests] == [("tool_search_code",)] * 2
    assert code.requests[1].last_object["value"] == RETURNED
    assert code.run["result"]["text"] == "done"


@requirement("e2e:tool-search:2", "e2e:tool-search:4")
async def test_the_structured_tools_call_the_same_tool(structured: Proof) -> None:
    shown = ("tool_search", "tool_describe", "tool_call")
    assert [request.tool_names for request in structured.requests] == [shown] * 4
    assert structured.requests[-1].last_object["value"] == RETURNED
    assert structured.run["result"]["text"] == "done"


@requirement("e2e:tool-search:5")
async def test_the_request_is_smaller_on_the_wire(
    direct: Proof, code: Proof, structured: Proof
) -> None:
    whole = direct.requests[0].body_bytes
    assert code.requests[0].body_bytes < whole * 0.2
    assert structured.requests[0].body_bytes < whole * 0.2


@requirement("e2e:tool-search:6")
async def test_the_log_of_the_session_shows_what_was_searched_and_called(
    direct: Proof, code: Proof, structured: Proof
) -> None:
    assert [call["toolName"] for call in direct.turn["calls"]] == ["fake_77"]
    (bridge,) = code.turn["calls"]
    assert bridge["toolName"] == "tool_search_code"
    assert [call["toolName"] for call in bridge["children"]] == ["fake_77"]
    assert code.nested == structured.nested == ["fake_77"]
    called = [call["toolName"] for call in structured.turn["calls"]]
    assert called == ["tool_search", "tool_describe", "tool_call"]
    for proof in (code, structured):
        told = proof.telemetry
        assert (told["catalogSize"], told["callCount"]) == (COUNT + 1, 1)
        assert (told["searchCount"], told["describeCount"]) == (1, 1)
        assert told["calledTools"] == [
            {"id": "openclaw:many:fake_77", "source": "openclaw", "count": 1}
        ]
        assert told["visibleTools"] == list(proof.requests[0].tool_names)
        assert told["toolBytes"] < told["directToolBytes"] * 0.2
