"""Responses: items, events, and responses that go on from others."""

from typing import Any

import anyio
import openai
import pytest

from nacre.messages import Usage
from nacre.testing import Call, End, Fail, Say, Stall
from tests.gateway.openai.conftest import RESPONSES_WEATHER, OpenWorld
from tests.gateway.worlds import CODE_MODE, PATIENCE_SECONDS

NESTED = "const said = await tools.weather({city: 'Oslo'}); return said.degrees + 1"
PROGRAM = Call("exec", {"code": "return 1 + 1"})


async def events_of(stream: Any) -> list[Any]:
    return [event async for event in stream]


def output(call: Any, text: str) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call.call_id, "output": text}


def said_to(request: Any) -> list[tuple[str, str]]:
    return [(each.role, each.text) for each in request.messages if each.role != "system"]


async def test_a_response_has_its_items_its_usage_and_what_was_asked_for(
    open_openai: OpenWorld,
) -> None:
    turn = [Say("Good day."), End(usage=Usage(input_tokens=9, output_tokens=3, cached_tokens=4))]
    async with open_openai([turn]) as world:
        response = await world.respond(
            "hello", metadata={"ticket": "7"}, instructions="Be brief.", temperature=0.5
        )
        (request,) = world.model.requests
    assert (response.object, response.status, response.model) == ("response", "completed", "nacre")
    (message,) = response.output
    assert (message.type, message.role, message.status) == ("message", "assistant", "completed")
    assert response.output_text == "Good day."
    assert (response.metadata, response.instructions) == ({"ticket": "7"}, "Be brief.")
    assert (response.usage.input_tokens, response.usage.output_tokens) == (9, 3)
    assert response.usage.input_tokens_details.cached_tokens == 4
    assert response.error is None
    assert "Be brief." in request.instructions


async def test_a_stream_has_the_events_of_openai_in_their_order(open_openai: OpenWorld) -> None:
    script = [[Say("Let me see."), PROGRAM], Say("It is 2.")]
    async with open_openai(script, CODE_MODE) as world:
        events = await events_of(await world.respond("1 + 1?", stream=True))
    kinds = [event.type for event in events if event.type != "response.output_text.delta"]
    message = [
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
    ]
    assert kinds == [
        "response.created",
        "response.in_progress",
        *message,
        *message,
        "response.completed",
    ]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    whole = events[-1].response
    assert [item.content[0].text for item in whole.output] == ["Let me see.", "It is 2."]
    deltas = [event for event in events if event.type == "response.output_text.delta"]
    for index, item in enumerate(whole.output):
        mine = [event for event in deltas if event.output_index == index]
        assert {event.item_id for event in mine} == {item.id}
        assert "".join(event.delta for event in mine) == item.content[0].text
    assert events[0].response.status == "in_progress"
    assert {event.response.id for event in events if hasattr(event, "response")} == {whole.id}


async def test_a_call_of_a_client_tool_is_an_item_and_its_output_resumes_the_run(
    open_openai: OpenWorld,
) -> None:
    script = [Call("exec", {"code": NESTED}), Say("5 degrees")]
    async with open_openai(script, CODE_MODE) as world:
        first = await world.respond("weather?", tools=[RESPONSES_WEATHER])
        (call,) = first.output
        assert (call.type, call.name, call.arguments) == (
            "function_call",
            "weather",
            '{"city":"Oslo"}',
        )
        (run,) = world.world.system.agents.runs()
        second = await world.respond(
            [output(call, '{"degrees": 4}')], previous_response_id=first.id
        )
        assert second.output_text == "5 degrees"
        assert second.id != first.id
        assert second.previous_response_id == first.id
        assert world.world.system.agents.runs() == [run]
        assert world.model.requests[-1].last_object["value"] == 5


async def test_calls_are_streamed_as_openai_does(open_openai: OpenWorld) -> None:
    async with open_openai([Call("weather", {"city": "Oslo"}), Say("rain")]) as world:
        stream = await world.respond("weather?", tools=[RESPONSES_WEATHER], stream=True)
        events = await events_of(stream)
        assert [event.type for event in events] == [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.function_call_arguments.delta",
            "response.function_call_arguments.done",
            "response.output_item.done",
            "response.completed",
        ]
        (call,) = events[-1].response.output
        # A client that keeps the history itself sends all of it, with what was thought.
        history: list[Any] = [
            {"role": "user", "content": [{"type": "input_text", "text": "weather?"}]},
            {"type": "reasoning", "id": "rs_1", "summary": []},
            call.model_dump(exclude_none=True),
            output(call, "rain"),
        ]
        again = await events_of(await world.respond(history, stream=True))
        assert again[-1].response.output_text == "rain"
        assert len(world.world.system.agents.runs()) == 1


async def test_a_response_goes_on_from_another_also_after_a_restart(open_openai: OpenWorld) -> None:
    async with open_openai([Say("Hello Ada.")]) as world:
        first = await world.respond("I am Ada.", instructions="Be kind.")
    async with open_openai([Say("Ada.")]) as world:
        second = await world.respond("Who am I?", previous_response_id=first.id)
        (request,) = world.model.requests
        assert said_to(request) == [
            ("user", "I am Ada."),
            ("assistant", "Hello Ada."),
            ("user", "Who am I?"),
        ]
        # As with OpenAI, instructions are for one response.
        assert "Be kind." not in request.instructions
        assert second.output_text == "Ada."
        assert len(await world.world.system.store.sessions()) == 1


async def test_two_responses_may_go_on_from_the_same_one(open_openai: OpenWorld) -> None:
    script = [Say("one"), Say("two"), Say("another two"), Say("another three")]
    async with open_openai(script) as world:
        first = await world.respond("a")
        await world.respond("b", previous_response_id=first.id)
        branch = await world.respond("c", previous_response_id=first.id)
        await world.respond("d", previous_response_id=branch.id)
        assert [text for _, text in said_to(world.model.requests[2])] == ["a", "one", "c"]
        assert [text for _, text in said_to(world.model.requests[3])] == [
            "a",
            "one",
            "c",
            "another two",
            "d",
        ]


async def test_a_branch_begins_with_the_summary_of_what_is_long_ago(open_openai: OpenWorld) -> None:
    async with open_openai([Say("one"), Say("two"), Say("three"), Say("x"), Say("y")]) as world:
        first = await world.respond("a")
        second = await world.respond("b", previous_response_id=first.id)
        store = world.world.system.store
        (session,) = await store.sessions()
        await store.add_compaction(session.id, up_to_sequence=1, summary="It began with a.")
        await world.respond("c", previous_response_id=second.id)
        await world.respond("d", previous_response_id=second.id)
        late = world.model.requests[-1]
        assert [text for _, text in said_to(late)] == ["b", "two", "d"]
        assert "It began with a." in late.instructions
        # What the summary stands for can still be gone back to.
        await world.respond("e", previous_response_id=first.id)
        assert [text for _, text in said_to(world.model.requests[-1])] == ["a", "one", "e"]


async def test_what_a_client_brings_along_is_kept_with_the_response(open_openai: OpenWorld) -> None:
    items = [
        {"role": "developer", "content": "Count in Latin."},
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "unus"},
        {"role": "user", "content": "two"},
    ]
    async with open_openai([Say("duo"), Say("tres")]) as world:
        first = await world.respond(items)
        await world.respond([{"role": "user", "content": "three"}], previous_response_id=first.id)
        first_request, second_request = world.model.requests
    assert "Count in Latin." in first_request.instructions
    assert "Count in Latin." in second_request.instructions
    assert [text for _, text in said_to(second_request)] == ["one", "unus", "two", "duo", "three"]


async def test_nothing_is_kept_where_the_client_says_so(open_openai: OpenWorld) -> None:
    async with open_openai([Say("kept"), Say("not kept")]) as world:
        first = await world.respond("a")
        second = await world.respond("b", store=False, previous_response_id=first.id)
        assert [text for _, text in said_to(world.model.requests[1])] == ["a", "kept", "b"]
        with pytest.raises(openai.NotFoundError, match="no stored response"):
            await world.client.responses.retrieve(second.id)
        with pytest.raises(openai.BadRequestError, match="names no stored response"):
            await world.respond("c", previous_response_id=second.id)
        (session,) = await world.world.system.store.sessions()
        assert session.turn_count == 1


async def test_a_response_can_be_asked_for_again(open_openai: OpenWorld) -> None:
    async with open_openai([[Say("Hm."), PROGRAM], Say("Two.")], CODE_MODE) as world:
        first = await world.respond("1 + 1?", metadata={"ticket": "7"})
        assert await world.client.responses.retrieve(first.id) == first
    async with open_openai() as world:
        again = await world.client.responses.retrieve(first.id)
        assert (again.id, again.status) == (first.id, "completed")
        assert [item.content[0].text for item in again.output] == ["Hm.", "Two."]
        assert again.usage == first.usage


async def test_a_response_that_is_not_there_is_not_found(open_openai: OpenWorld) -> None:
    async with open_openai() as world:
        for response_id in ("resp_1", "resp_" + "0" * 24, "run_1", "%00"):
            answer = await world.world.client.get(f"/v1/responses/{response_id}")
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")
            answer = await world.world.client.post(f"/v1/responses/{response_id}/cancel")
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")


async def test_a_response_can_be_cancelled(open_openai: OpenWorld) -> None:
    async with open_openai([[Say("So"), Stall()]]) as world:
        with anyio.fail_after(PATIENCE_SECONDS):
            stream = await world.respond(stream=True)
            events: list[Any] = []
            async for event in stream:
                events.append(event)
                if event.type == "response.output_text.delta":
                    cancelled = await world.client.responses.cancel(events[0].response.id)
                    assert cancelled.status == "cancelled"
        assert events[-1].type == "response.failed"
        assert "cancelled" in events[-1].response.error.message
        assert events[-1].response.output[0].status == "incomplete"
        kept = await world.client.responses.retrieve(events[0].response.id)
        assert kept.status == "cancelled"


async def test_a_response_that_fails_in_the_middle_says_so(open_openai: OpenWorld) -> None:
    async with open_openai([[Say("So far"), Fail(500, "the model fell over")]]) as world:
        events = await events_of(await world.respond(stream=True))
    assert events[-1].type == "response.failed"
    assert "the model fell over" in events[-1].response.error.message
    assert events[-1].response.output_text == "So far"


async def test_an_answer_that_was_cut_is_incomplete(open_openai: OpenWorld) -> None:
    async with open_openai([[Say("as far as"), End(reason="length")]]) as world:
        events = await events_of(await world.respond(stream=True))
    assert events[-1].type == "response.incomplete"
    assert events[-1].response.incomplete_details.reason == "max_output_tokens"


async def test_a_header_names_a_session_here_too(open_openai: OpenWorld) -> None:
    headers = {"x-nacre-session-key": "ada"}
    async with open_openai([Say("one"), Say("two")]) as world:
        await world.respond("a", extra_headers=headers)
        await world.respond("b", extra_headers=headers)
        assert [text for _, text in said_to(world.model.requests[1])] == ["a", "one", "b"]
        kept = await world.world.system.store.session_by_key("main", "ada")
        assert kept is not None


async def test_going_on_without_the_outputs_ends_the_run_that_waits(open_openai: OpenWorld) -> None:
    async with open_openai([Call("weather", {"city": "Oslo"}), Say("Never mind.")]) as world:
        first = await world.respond("weather?", tools=[RESPONSES_WEATHER])
        (run,) = world.world.system.agents.runs()
        second = await world.respond("Forget it.", previous_response_id=first.id)
        assert second.output_text == "Never mind."
        assert run.state == "aborted"


async def test_outputs_of_calls_that_nobody_knows_are_refused(open_openai: OpenWorld) -> None:
    async with open_openai([Call("weather", {"city": "Oslo"})]) as world:
        first = await world.respond("weather?", tools=[RESPONSES_WEATHER])
    async with open_openai() as world:
        with pytest.raises(openai.BadRequestError, match="unknown calls: call_") as refused:
            await world.respond([output(first.output[0], "rain")], previous_response_id=first.id)
        assert refused.value.code == "unknown_tool_call"


async def test_outputs_stand_with_their_calls_wherever_the_client_put_them(
    open_openai: OpenWorld,
) -> None:
    def call(number: int) -> dict[str, Any]:
        return {"type": "function_call", "call_id": f"c{number}", "name": "f", "arguments": "{}"}

    def out(number: int) -> dict[str, Any]:
        return {"type": "function_call_output", "call_id": f"c{number}", "output": f"r{number}"}

    items = [{"role": "user", "content": "go"}, call(1), call(2), out(1), call(3), out(3), out(2)]
    async with open_openai([Say("done")]) as world:
        await world.respond(items, store=False)
        (request,) = world.model.requests
    assert request.tool_results == ("r1", "r2", "r3")


async def test_a_response_is_not_gone_on_from_before_it_is_complete(open_openai: OpenWorld) -> None:
    async with open_openai([[Say("So"), Stall()]]) as world:
        stream = await world.respond(stream=True)
        with anyio.fail_after(PATIENCE_SECONDS):
            async for event in stream:
                if event.type == "response.output_text.delta":
                    break
            (run,) = world.world.system.agents.runs()
            response_id = f"resp_{run.id.removeprefix('run_')}"
            with pytest.raises(openai.ConflictError, match="not complete yet"):
                await world.respond("b", previous_response_id=response_id)
            await stream.close()
            await run.wait()


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"background": True}, "background"),
    ({"conversation": "conv_1"}, "conversation"),
    ({"prompt": {"id": "pmpt_1"}}, "prompt"),
    ({"text": {"format": {"type": "json_schema"}}}, "text.format.type"),
    ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
    ({"tools": [{"type": "function"}]}, "tools[0].name"),
    ({"tool_choice": {"type": "function", "name": "f"}}, "tool_choice"),
    ({"previous_response_id": "nonsense"}, "previous_response_id"),
    ({"input": []}, "input"),
    ({"input": [{"role": "robot", "content": "x"}]}, "input[0].role"),
    ({"input": [{"type": "computer_call"}]}, "input[0].type"),
    ({"input": [{"role": "assistant", "content": "x"}]}, "input"),
    (
        {"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}]},
        "input[0].content[0].image_url",
    ),
    ({"metadata": {"a": 7}}, "metadata.a"),
]


async def test_what_cannot_be_done_is_refused_by_name(open_openai: OpenWorld) -> None:
    async with open_openai() as world:
        for options, param in REFUSED:
            with pytest.raises(openai.BadRequestError) as refused:
                await world.respond(extra_body=options)
            assert refused.value.param == param
        assert world.model.requests == []
