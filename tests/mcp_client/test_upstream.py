"""What servers ask of us reaches whoever is there, or is refused in plain words."""

import json

import anyio
import pytest

from nacre.errors import ToolFailedError
from nacre.json_types import JsonObject
from nacre.mcp_client import UpstreamRefusal
from nacre.mcp_client.upstream import UpstreamGate
from tests.mcp_client.conftest import Opening
from tests.mcp_client.peers import Person, call, raw, text_of

QUESTION: JsonObject = {"message": "sure?", "requestedSchema": {"type": "object"}}


async def answer_to(opening: Opening, person: Person | None, method: str) -> JsonObject:
    server = await opening.one(raw(), upstream=person)
    return json.loads(text_of(await call(server, "ask", method=method, params=QUESTION)))


async def test_a_question_is_passed_on_and_its_answer_back(opening: Opening) -> None:
    person = Person()
    assert await answer_to(opening, person, "elicitation/create") == {
        "action": "accept",
        "content": {"half": "\ufffd"},
    }
    assert person.asked == [("plain", QUESTION)]


async def test_only_known_capabilities_are_announced(opening: Opening) -> None:
    server = await opening.one(raw(), upstream=Person())
    told = json.loads(text_of(await call(server, "client")))
    assert told["capabilities"] == {"elicitation": {"form": {}}, "roots": {}}
    assert told["clientInfo"]["name"] == "nacre"


async def test_without_anybody_a_question_is_refused(opening: Opening) -> None:
    refusal = await answer_to(opening, None, "elicitation/create")
    assert refusal["code"] == -32601
    assert refusal["message"] == (
        "elicitation is not supported: there is no client to answer elicitation/create"
    )


async def test_what_is_not_announced_is_refused(opening: Opening) -> None:
    refusal = await answer_to(opening, Person(), "sampling/createMessage")
    assert refusal["code"] == -32601


async def test_an_unknown_method_is_refused(opening: Opening) -> None:
    refusal = await answer_to(opening, Person(), "tools/call")
    assert refusal["message"] == "tools/call is unknown to this client"


async def test_a_refusal_reaches_the_server_in_its_own_words(opening: Opening) -> None:
    refusal = await answer_to(opening, Person(refusal="not now"), "elicitation/create")
    assert refusal["message"] == "not now"


async def test_a_failure_of_ours_is_not_shown_to_the_server(opening: Opening) -> None:
    refusal = await answer_to(opening, Person(), "roots/list")
    assert refusal["message"] == "roots failed"


async def test_only_a_few_questions_are_open_at_once() -> None:
    gate = UpstreamGate("noisy", Person(seconds=60))
    refusals: list[str] = []

    async def ask() -> None:
        try:
            await gate.answer("elicitation/create", QUESTION)
        except UpstreamRefusal as refusal:
            refusals.append(refusal.message)

    async with anyio.create_task_group() as tasks:
        for _ in range(100):
            tasks.start_soon(ask)
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    assert refusals == ["8 requests are already open; wait for an answer"] * 92


async def test_a_result_with_too_many_questions_is_refused_before_the_first_is_asked() -> None:
    person = Person()
    request: JsonObject = {"method": "elicitation/create", "params": QUESTION}
    gate = UpstreamGate("noisy", person)
    with pytest.raises(UpstreamRefusal, match="has 21 requests for input; the limit is 20"):
        await gate.answer_all({str(number): request for number in range(21)})
    assert person.asked == []
    assert len(await gate.answer_all({str(number): request for number in range(20)})) == 20


async def test_a_ping_is_answered(opening: Opening) -> None:
    assert await answer_to(opening, None, "ping") == {}


async def test_the_time_that_a_person_takes_is_not_the_servers(opening: Opening) -> None:
    server = await opening.one(raw(timeout_seconds=1), upstream=Person(seconds=1.5))
    result = await call(server, "ask", method="elicitation/create", params=QUESTION)
    assert json.loads(text_of(result))["action"] == "accept"


async def test_a_modern_server_asks_by_its_result(opening: Opening) -> None:
    server = await opening.one(raw("modern"), upstream=Person())
    answers = json.loads(text_of(await call(server, "confirm")))
    assert answers["q"]["action"] == "accept"


async def test_a_modern_server_whose_question_is_refused_fails_the_call(opening: Opening) -> None:
    server = await opening.one(raw("modern"))
    with pytest.raises(ToolFailedError, match="elicitation is not supported"):
        await call(server, "confirm")
