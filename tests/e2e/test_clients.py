"""Other people's clients in front of the gateway, and other wires behind it."""

from collections.abc import AsyncGenerator
from typing import Any

import agents
import openai
import pytest

from nacre.testing import Call, Say, Think
from tests.e2e.gateways import CODE_MODE, TOKEN, Gateway, Home

NESTED = "return await tools.weather({city: 'Oslo'})"
SUM = "return await tools.kit_add({a: 40, b: 2})"


@pytest.fixture(scope="module")
async def gateway(shared_home: Home) -> AsyncGenerator[Gateway]:
    """One provider per wire, all of them the same script."""
    url, key = shared_home.model.provider.url, {"apiKey": "sk-of-the-clients-0123456789"}
    providers = {
        "scripted": {"baseUrl": f"{url}/v1", **key},
        "responses": {"api": "openai-responses", "baseUrl": f"{url}/v1", **key},
        "anthropic": {"api": "anthropic-messages", "baseUrl": url, **key},
    }
    await shared_home.configure(tools=CODE_MODE, models={"providers": providers})
    async with shared_home.gateway() as started:
        yield started


@pytest.fixture
async def client(gateway: Gateway) -> AsyncGenerator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=TOKEN) as opened:
        yield opened


async def test_the_openai_client_streams_a_chat(
    shared_home: Home, client: openai.AsyncOpenAI
) -> None:
    marker = shared_home.model.script(
        [Say("Let me see. "), Call("exec", {"code": SUM})],
        lambda it: Say(f"It is {it.last_object['value']}."),
    )
    stream = await client.chat.completions.create(
        model="nacre", messages=[{"role": "user", "content": f"add {marker}"}], stream=True
    )
    chunks = [chunk async for chunk in stream]
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text.endswith("It is 42.")
    # The program is the gateway's business.
    assert not any(chunk.choices[0].delta.tool_calls for chunk in chunks if chunk.choices)


async def test_the_openai_client_goes_on_with_a_response(
    shared_home: Home, client: openai.AsyncOpenAI
) -> None:
    marker = shared_home.model.script(Call("exec", {"code": SUM}), Say("42"), Say("As I said."))
    first = await client.responses.create(model="nacre", input=f"add {marker}")
    second = await client.responses.create(
        model="nacre", input="Sure?", previous_response_id=first.id
    )
    assert (first.output_text, second.output_text) == ("42", "As I said.")
    said = [(it.role, it.text) for it in shared_home.model.requests(marker)[-1].messages]
    assert said[-1] == ("user", "Sure?")
    assert ("assistant", "42") in said


async def test_the_agents_sdk_runs_a_function_that_a_program_calls(
    shared_home: Home, client: openai.AsyncOpenAI
) -> None:
    asked: list[str] = []

    @agents.function_tool
    async def weather(city: str) -> str:
        """The weather."""
        asked.append(city)
        return "rain"

    marker = shared_home.model.script(
        Call("exec", {"code": NESTED}), lambda it: Say(f"So: {it.last_object['value']}.")
    )
    model: Any = agents.OpenAIChatCompletionsModel(model="nacre", openai_client=client)
    agent: Any = agents.Agent(name="Client", model=model, tools=[weather])
    result = await agents.Runner.run(
        agent, f"the weather? {marker}", run_config=agents.RunConfig(tracing_disabled=True)
    )
    assert (asked, result.final_output) == (["Oslo"], "So: rain.")
    requests = shared_home.model.requests(marker)
    assert [request.tool_names for request in requests] == [("exec", "wait")] * 2


@pytest.mark.parametrize(
    ("provider", "path"),
    [
        ("scripted", "/v1/chat/completions"),
        ("responses", "/v1/responses"),
        ("anthropic", "/v1/messages"),
    ],
)
async def test_every_wire_carries_exec_and_wait_and_the_thoughts_between(
    shared_home: Home, gateway: Gateway, provider: str, path: str
) -> None:
    marker = shared_home.model.script(
        [Think("hm"), Call("exec", {"code": SUM})],
        lambda it: Say(f"It is {it.last_object['value']}."),
        Say("Yes."),
    )
    key, model = f"wire-{provider}", f"{provider}/scripted"
    run = await gateway.finished(f"add {marker}", model=model, sessionKey=key)
    assert (run["result"]["text"], run["result"]["model"]) == ("It is 42.", model)
    await gateway.finished("sure?", model=model, sessionKey=key)
    requests = shared_home.model.requests(marker)
    assert {request.path for request in requests} == {path}
    assert [request.tool_names for request in requests] == [("exec", "wait")] * 3
    assert requests[1].tool_results == requests[2].tool_results
