"""Tools of the client: their calls end a response, and their results resume the very same run."""

import json
from typing import Any

import anyio
import anyio.lowlevel
import openai
import pytest

from nacre.agent import AgentRun
from nacre.testing import Call, Say
from tests.gateway.openai.conftest import (
    CHAT_WEATHER,
    RESPONSES_WEATHER,
    OpenAiWorld,
    OpenWorld,
    user,
)
from tests.gateway.worlds import CODE_MODE, DURABLE, PATIENCE_SECONDS

NESTED = "const said = await tools.weather({city: 'Oslo'}); return said.degrees + 1"
BOTH = "return await Promise.all(['Oslo', 'Rome'].map(city => tools.weather({city})))"


def result(call: Any, content: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call.id, "content": content}


def said_by(answer: Any) -> dict[str, Any]:
    return answer.choices[0].message.model_dump(exclude_none=True)


def calls_in(answer: Any) -> list[Any]:
    assert answer.choices[0].finish_reason == "tool_calls", answer
    return answer.choices[0].message.tool_calls


def live_runs(world: OpenAiWorld) -> list[AgentRun]:
    return [run for run in world.world.system.agents.runs() if not run.has_ended]


async def ended(run: AgentRun) -> str:
    with anyio.fail_after(PATIENCE_SECONDS):
        await run.wait()
    return run.state


async def asked(world: OpenAiWorld, **options: Any) -> tuple[list[dict[str, Any]], list[Any]]:
    """The conversation up to the calls, and the calls."""
    answer = await world.chat("the weather?", tools=[CHAT_WEATHER], **options)
    return [user("the weather?"), said_by(answer)], calls_in(answer)


async def test_a_direct_call_goes_to_the_client_and_its_result_to_the_model(
    open_openai: OpenWorld,
) -> None:
    script = [[Say("I look."), Call("weather", {"city": "Oslo"})], Say("It rains.")]
    async with open_openai(script) as world:
        history, (call,) = await asked(world)
        assert history[-1]["content"] == "I look."
        assert (call.type, call.function.name) == ("function", "weather")
        assert json.loads(call.function.arguments) == {"city": "Oslo"}
        (run,) = live_runs(world)
        answer = await world.chat([*history, result(call, "rain")], tools=[CHAT_WEATHER])
        assert answer.choices[0].message.content == "It rains."
        assert await ended(run) == "completed"
        assert world.world.system.agents.runs() == [run]
        assert world.model.requests[-1].tool_results == ("rain",)


async def test_a_call_inside_of_a_cell_suspends_it_and_the_result_resumes_it(
    open_openai: OpenWorld,
) -> None:
    script = [Call("exec", {"code": NESTED}), Say("5 degrees")]
    async with open_openai(script, CODE_MODE) as world:
        history, (call,) = await asked(world)
        assert (call.function.name, call.function.arguments) == ("weather", '{"city":"Oslo"}')
        assert live_runs(world)[0].state == "waiting"
        answer = await world.chat([*history, result(call, '{"degrees": 4}')], stream=False)
        assert answer.choices[0].message.content == "5 degrees"
        # The model made one call, and has one result of it.
        assert [request.tool_names for request in world.model.requests] == [("exec", "wait")] * 2
        assert world.model.requests[-1].last_object["value"] == 5


async def test_a_stream_ends_with_the_calls_and_the_next_goes_on(open_openai: OpenWorld) -> None:
    script = [[Say("I look."), Call("exec", {"code": BOTH})], Say("fine")]
    async with open_openai(script, CODE_MODE) as world:
        stream = await world.chat("weather?", tools=[CHAT_WEATHER], stream=True)
        chunks = [chunk async for chunk in stream]
        assert "".join(each.choices[0].delta.content or "" for each in chunks) == "I look."
        assert chunks[-1].choices[0].finish_reason == "tool_calls"
        calls: dict[int, dict[str, str]] = {}
        for delta in (each for chunk in chunks for each in chunk.choices[0].delta.tool_calls or ()):
            call = calls.setdefault(delta.index, {"id": "", "name": "", "arguments": ""})
            call["id"] += delta.id or ""
            call["name"] += delta.function.name or ""
            call["arguments"] += delta.function.arguments or ""
        assert [(call["name"], call["arguments"]) for call in calls.values()] == [
            ("weather", '{"city":"Oslo"}'),
            ("weather", '{"city":"Rome"}'),
        ]
        results = [
            {"role": "tool", "tool_call_id": call["id"], "content": f"{number} degrees"}
            for number, call in calls.items()
        ]
        stream = await world.chat([user("weather?"), *results], stream=True)
        text = "".join([each.choices[0].delta.content or "" async for each in stream])
        assert text == "fine"
        assert world.model.requests[-1].last_object["value"] == ["0 degrees", "1 degrees"]


async def test_a_partial_answer_is_refused_and_the_run_stays_parked(open_openai: OpenWorld) -> None:
    turn = [Call("weather", {"city": "Oslo"}), Call("weather", {"city": "Rome"})]
    async with open_openai([turn, Say("fine")]) as world:
        history, (oslo, rome) = await asked(world)
        with pytest.raises(openai.BadRequestError, match=rome.id) as refused:
            await world.chat([*history, result(oslo, "rain")])
        assert refused.value.code == "missing_tool_results"
        assert live_runs(world)[0].state == "waiting"
        answer = await world.chat([*history, result(rome, "sun"), result(oslo, "rain")])
        assert answer.choices[0].message.content == "fine"
        assert world.model.requests[-1].tool_results == ("rain", "sun")


async def test_calls_of_several_runs_cannot_be_answered_at_once(open_openai: OpenWorld) -> None:
    call = Call("weather", {"city": "Oslo"})
    async with open_openai([call, call]) as world:
        history, (one,) = await asked(world)
        _, (other,) = await asked(world)
        with pytest.raises(openai.BadRequestError, match="several runs"):
            await world.chat([*history, result(one, "rain"), result(other, "rain")])
        assert [run.state for run in live_runs(world)] == ["waiting", "waiting"]


async def test_ids_cannot_be_guessed_from_those_of_the_model(open_openai: OpenWorld) -> None:
    async with open_openai([Call("weather", {"city": "Oslo"}, call_id="call_1")]) as world:
        _, (call,) = await asked(world)
        assert len(call.id) > 30
        with pytest.raises(openai.BadRequestError, match="results for unknown calls: call_1"):
            await world.chat(
                [user("hm"), {"role": "tool", "tool_call_id": "call_1", "content": "x"}]
            )
        assert live_runs(world)[0].state == "waiting"


async def test_results_that_no_run_waits_for_are_plain_history(open_openai: OpenWorld) -> None:
    async with open_openai([Call("weather", {"city": "Oslo"}), Say("It rained.")]) as world:
        history, (call,) = await asked(world)
        (run,) = live_runs(world)
        await run.abort("enough")
        answer = await world.chat([*history, result(call, "rain")], tools=[CHAT_WEATHER])
        assert answer.choices[0].message.content == "It rained."
        request = world.model.requests[-1]
        assert request.tool_results == ("rain",)
        assert [each.role for each in request.messages if each.role != "system"] == [
            "user",
            "assistant",
            "tool",
        ]


async def test_results_after_a_restart_are_plain_history_in_a_session_too(
    open_openai: OpenWorld,
) -> None:
    async with open_openai([Call("weather", {"city": "Oslo"})]) as world:
        history, (call,) = await asked(world, user="ada")
    async with open_openai([Say("It rained."), Say("Yes.")]) as world:
        answer = await world.chat([*history, result(call, "rain")], user="ada")
        assert answer.choices[0].message.content == "It rained."
        assert world.model.requests[-1].tool_results == ("rain",)
        await world.chat("Really?", user="ada")
        assert "It rained." in [each.text for each in world.model.requests[-1].messages]


async def continued_run(world: OpenAiWorld) -> AgentRun:
    (run,) = live_runs(world)
    with anyio.fail_after(PATIENCE_SECONDS):
        while not run.pending_client_calls:
            assert await run.waiting_or_ended() == "waiting"
            await anyio.lowlevel.checkpoint()
    return run


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_a_durable_run_takes_the_results_of_its_client_after_a_restart(
    open_openai: OpenWorld, is_streamed: bool
) -> None:
    async with open_openai([Call("exec", {"code": NESTED})], DURABLE) as world:
        history, (call,) = await asked(world, user="ada")
        (first,) = live_runs(world)
    async with open_openai([Say("5 degrees"), Say("Yes.")], DURABLE) as world:
        run = await continued_run(world)
        assert run.id == first.id
        messages = [*history, result(call, '{"degrees": 4}')]
        answer = await world.chat(messages, user="ada", stream=is_streamed)
        if is_streamed:
            parts = [part async for part in answer]
            said = "".join(each.choices[0].delta.content or "" for each in parts if each.choices)
            assert {part.id for part in parts} == {f"chatcmpl-{run.id.removeprefix('run_')}-2"}
        else:
            said = answer.choices[0].message.content
        assert said == "5 degrees"
        assert await ended(run) == "completed"
        assert json.loads(world.model.requests[-1].tool_results[0])["value"] == 5
        # The results were taken: they cannot be delivered again.
        again = await world.chat("really?", user="ada")
        assert again.choices[0].message.content == "Yes."


async def test_a_response_of_a_durable_run_continues_after_a_restart(
    open_openai: OpenWorld,
) -> None:
    async with open_openai([Call("exec", {"code": NESTED})], DURABLE) as world:
        response = await world.respond("the weather?", tools=[RESPONSES_WEATHER])
        (call,) = [item for item in response.output if item.type == "function_call"]
    async with open_openai([Say("5 degrees")], DURABLE) as world:
        run = await continued_run(world)
        given = {
            "type": "function_call_output",
            "call_id": call.call_id,
            "output": '{"degrees": 4}',
        }
        answer = await world.respond([given], previous_response_id=response.id)
        assert answer.output_text == "5 degrees"
        assert answer.id not in (response.id, "")
        assert await ended(run) == "completed"


async def test_a_client_that_goes_on_without_the_results_after_a_restart_ends_the_run(
    open_openai: OpenWorld,
) -> None:
    async with open_openai([Call("exec", {"code": NESTED})], DURABLE) as world:
        await asked(world, user="ada")
    async with open_openai([Say("as you like")], DURABLE) as world:
        run = await continued_run(world)
        answer = await world.chat("never mind", user="ada")
        assert answer.choices[0].message.content == "as you like"
        assert await ended(run) == "aborted"


async def test_a_second_answer_to_the_same_calls_is_plain_history(open_openai: OpenWorld) -> None:
    async with open_openai([Call("weather", {"city": "Oslo"}), Say("rain"), Say("sun")]) as world:
        history, (call,) = await asked(world)
        first = await world.chat([*history, result(call, "rain")])
        again = await world.chat([*history, result(call, "sun")])
        assert first.choices[0].message.content == "rain"
        assert again.choices[0].message.content == "sun"
        assert len(world.world.system.agents.runs()) == 2


async def test_a_run_may_ask_its_client_again_and_again(open_openai: OpenWorld) -> None:
    program = (
        "const oslo = await tools.weather({city: 'Oslo'});"
        "const rome = await tools.weather({city: 'Rome'}); return [oslo, rome]"
    )
    script = [Call("exec", {"code": program}), Call("exec", {"code": NESTED}), Say("done")]
    async with open_openai(script, CODE_MODE) as world:
        history, calls = await asked(world)
        cities: list[str] = []
        answer: Any = None
        while calls:
            (call,) = calls
            cities.append(json.loads(call.function.arguments)["city"])
            history.append(result(call, '{"degrees": 4}'))
            answer = await world.chat(history)
            history.append(said_by(answer))
            calls = answer.choices[0].message.tool_calls
        assert cities == ["Oslo", "Rome", "Oslo"]
        assert answer.choices[0].message.content == "done"
        assert len(world.world.system.agents.runs()) == 1
        assert len(world.model.requests) == 3


async def test_usage_is_counted_once(open_openai: OpenWorld) -> None:
    script = [Call("weather", {"city": "Oslo"}), Say("It rains.")]
    async with open_openai(script) as world:
        first = await world.chat("weather?", tools=[CHAT_WEATHER])
        (call,) = calls_in(first)
        second = await world.chat([user("weather?"), said_by(first), result(call, "rain")])
        (run,) = world.world.system.agents.runs()
        assert run.result is not None
        total = first.usage.total_tokens + second.usage.total_tokens
        assert total == run.result.usage.total_tokens


async def test_without_parallel_calls_the_client_is_asked_one_at_a_time(
    open_openai: OpenWorld,
) -> None:
    async with open_openai([Call("exec", {"code": BOTH}), Say("done")], CODE_MODE) as world:
        history, (oslo,) = await asked(world, parallel_tool_calls=False)
        history.append(result(oslo, "rain"))
        second = await world.chat(history, parallel_tool_calls=False)
        (rome,) = calls_in(second)
        assert json.loads(rome.function.arguments) == {"city": "Rome"}
        history += [said_by(second), result(rome, "sun")]
        answer = await world.chat(history, parallel_tool_calls=False)
        assert answer.choices[0].message.content == "done"
        assert world.model.requests[-1].last_object["value"] == ["rain", "sun"]


async def test_an_agent_without_parallel_calls_asks_for_one_after_the_other(
    open_openai: OpenWorld,
) -> None:
    document = {"agents": {"defaults": {"model": "scripted/model", "parallelToolCalls": False}}}
    turn = [Call("weather", {"city": "Oslo"}), Call("weather", {"city": "Rome"})]
    async with open_openai([turn, Say("done")], document) as world:
        history, (oslo,) = await asked(world)
        second = await world.chat([*history, result(oslo, "rain")])
        (rome,) = calls_in(second)
        answer = await world.chat([*history, result(oslo, "rain"), result(rome, "sun")])
        assert answer.choices[0].message.content == "done"
        assert world.model.requests[-1].tool_results == ("rain", "sun")


async def test_what_is_said_besides_the_results_steers_a_kept_run(open_openai: OpenWorld) -> None:
    async with open_openai([Call("weather", {"city": "Oslo"}), Say("done")]) as world:
        history, (call,) = await asked(world, user="ada")
        (run,) = live_runs(world)
        said = [*history, result(call, "rain"), user("In English, please.")]
        answer = await world.chat(said, user="ada")
        assert answer.choices[0].message.content == "done"
        assert await ended(run) == "completed"
        request = world.model.requests[-1]
        assert (request.tool_results, request.prompt) == (("rain",), "In English, please.")


async def test_what_is_said_besides_the_results_begins_anew_where_the_client_keeps_the_history(
    open_openai: OpenWorld,
) -> None:
    async with open_openai([Call("weather", {"city": "Oslo"}), Say("done")]) as world:
        history, (call,) = await asked(world)
        (run,) = live_runs(world)
        answer = await world.chat([*history, result(call, "rain"), user("In English, please.")])
        assert answer.choices[0].message.content == "done"
        assert await ended(run) == "aborted"
        request = world.model.requests[-1]
        assert (request.tool_results, request.prompt) == (("rain",), "In English, please.")


async def test_a_client_that_goes_on_without_the_results_ends_the_run_that_waits(
    open_openai: OpenWorld,
) -> None:
    async with open_openai([Call("weather", {"city": "Oslo"}), Say("Never mind.")]) as world:
        await asked(world, user="ada")
        (run,) = live_runs(world)
        with anyio.fail_after(PATIENCE_SECONDS):
            answer = await world.chat("Forget it.", user="ada")
        assert answer.choices[0].message.content == "Never mind."
        assert (await ended(run), run.result and run.result.error) == (
            "aborted",
            "the client continued without the results of its tool calls",
        )


async def test_a_run_that_waits_too_long_is_aborted(open_openai: OpenWorld) -> None:
    document = {"tools": {"codeMode": {"enabled": False, "snapshotTtlSeconds": 1}}}
    async with open_openai(
        [Call("weather", {"city": "Oslo"}), Say("It rained.")], document
    ) as world:
        history, (call,) = await asked(world)
        (run,) = world.world.system.agents.runs()
        assert await ended(run) == "aborted"
        # Nobody would have read what the model would have said.
        assert len(world.model.requests) == 1
        answer = await world.chat([*history, result(call, "rain")])
        assert answer.choices[0].message.content == "It rained."


async def test_the_run_that_waits_longest_makes_room(open_openai: OpenWorld) -> None:
    document = {"gateway": {"maxConcurrentRuns": 4}}
    async with open_openai([Call("weather", {"city": "Oslo"})] * 3, document) as world:
        for _ in range(3):
            await asked(world)
        first, second, third = world.world.system.agents.runs()
        assert await ended(first) == "aborted"
        assert [second.state, third.state] == ["waiting", "waiting"]


async def test_no_tools_are_offered_where_the_client_says_so(open_openai: OpenWorld) -> None:
    async with open_openai([Say("hi")]) as world:
        await world.chat(tools=[CHAT_WEATHER], tool_choice="none")
        assert "weather" not in world.model.requests[0].tool_names


async def test_a_tool_that_cannot_be_one_is_refused(open_openai: OpenWorld) -> None:
    async with open_openai() as world:
        for name in ("", "no spaces here", "ü" * 400):
            with pytest.raises(openai.BadRequestError) as refused:
                await world.chat(tools=[{"type": "function", "function": {"name": name}}])
            assert refused.value.param == "tools"
        with pytest.raises(openai.BadRequestError, match="second tool named 'weather'"):
            await world.chat(tools=[CHAT_WEATHER, CHAT_WEATHER])


async def test_an_approval_is_waited_for_while_the_client_waits_for_its_answer(
    open_openai: OpenWorld,
) -> None:
    document = {"tools": {"fs": {"ask": "always"}}}
    turn = [Call("list", {}), Call("weather", {"city": "Oslo"})]
    async with open_openai([turn, Say("done")], document) as world:
        history, (call,) = await asked(world)
        (run,) = live_runs(world)
        answers: list[Any] = []

        async def go_on() -> None:
            answers.append(await world.chat([*history, result(call, "rain")]))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(go_on)
            with anyio.fail_after(PATIENCE_SECONDS):
                async for event in run.events.follow():
                    if event.kind == "client_call.answered":
                        break
                assert await run.waiting_or_ended() == "waiting"
            (question,) = run.pending_approvals
            await world.world.client.post(
                f"/api/approvals/{question.id}", json={"answer": "allow-once"}
            )
        assert answers[0].choices[0].message.content == "done"
