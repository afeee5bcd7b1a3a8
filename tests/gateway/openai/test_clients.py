"""Other people's clients: OpenAI's Agents SDK and pydantic-ai, with tools of their own."""

from typing import Any

import agents
import pytest
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

from nacre.testing import Call, Say
from tests.gateway.openai.conftest import OpenAiWorld, OpenWorld
from tests.gateway.worlds import CODE_MODE

DIRECT = [Call("weather", {"city": "Oslo"}), Say("It rains in Oslo.")]
NESTED = [
    Call(
        "exec",
        {
            "code": "const all = await Promise.all(['Oslo', 'Rome'].map(city =>"
            " tools.weather({city}))); return all.join(' and ')"
        },
    ),
    Say("It rains in Oslo."),
]
APIS = pytest.mark.parametrize("api", ["chat", "responses"])
SURFACES = pytest.mark.parametrize(
    ("script", "document", "cities"),
    [(DIRECT, None, ["Oslo"]), (NESTED, CODE_MODE, ["Oslo", "Rome"])],
    ids=["direct", "nested in a cell"],
)
STREAMS = pytest.mark.parametrize("is_stream", [False, True], ids=["whole", "stream"])


def one_run(world: OpenAiWorld) -> bool:
    (run,) = world.world.system.agents.runs()
    return run.state == "completed"


@APIS
@SURFACES
@STREAMS
async def test_the_agents_sdk_runs_its_function_tools(
    open_openai: OpenWorld,
    api: str,
    script: list[Any],
    document: dict[str, Any] | None,
    cities: list[str],
    is_stream: bool,
) -> None:
    asked: list[str] = []

    @agents.function_tool
    async def weather(city: str) -> str:
        """The weather."""
        asked.append(city)
        return f"rain in {city}"

    async with open_openai(script, document) as world:
        kind: Any = (
            agents.OpenAIChatCompletionsModel if api == "chat" else agents.OpenAIResponsesModel
        )
        agent: Any = agents.Agent(
            name="Client",
            instructions="Ask about the weather.",
            model=kind(model="nacre", openai_client=world.client),
            tools=[weather],
        )
        settings = agents.RunConfig(tracing_disabled=True)
        if is_stream:
            streamed = agents.Runner.run_streamed(agent, "The weather?", run_config=settings)
            async for _ in streamed.stream_events():
                pass
            said = streamed.final_output
        else:
            result = await agents.Runner.run(agent, "The weather?", run_config=settings)
            said = result.final_output
        assert said == "It rains in Oslo."
        assert asked == cities
        assert one_run(world)
        assert "Ask about the weather." in world.model.requests[0].instructions
        assert "rain in Oslo" in world.model.requests[-1].tool_results[-1]


@APIS
@SURFACES
@STREAMS
async def test_pydantic_ai_runs_its_tools(
    open_openai: OpenWorld,
    api: str,
    script: list[Any],
    document: dict[str, Any] | None,
    cities: list[str],
    is_stream: bool,
) -> None:
    asked: list[str] = []
    async with open_openai(script, document) as world:
        kind: Any = OpenAIChatModel if api == "chat" else OpenAIResponsesModel
        model = kind("nacre", provider=OpenAIProvider(openai_client=world.client))
        agent: Any = Agent(model, instructions="Ask about the weather.")

        @agent.tool_plain
        async def weather(city: str) -> str:  # pyright: ignore[reportUnusedFunction]
            """The weather."""
            asked.append(city)
            return f"rain in {city}"

        if is_stream:
            async with agent.run_stream("The weather?") as streamed:
                said = await streamed.get_output()
        else:
            said = (await agent.run("The weather?")).output
        assert said == "It rains in Oslo."
        assert asked == cities
        assert one_run(world)
        assert "rain in Oslo" in world.model.requests[-1].tool_results[-1]


@APIS
async def test_the_agents_sdk_goes_on_with_a_conversation(open_openai: OpenWorld, api: str) -> None:
    async with open_openai([Say("Hello Ada."), Say("Ada.")]) as world:
        kind: Any = (
            agents.OpenAIChatCompletionsModel if api == "chat" else agents.OpenAIResponsesModel
        )
        agent: Any = agents.Agent(
            name="Client", model=kind(model="nacre", openai_client=world.client)
        )
        settings = agents.RunConfig(tracing_disabled=True)
        first = await agents.Runner.run(agent, "I am Ada.", run_config=settings)
        history: Any = [*first.to_input_list(), {"role": "user", "content": "Who am I?"}]
        second = await agents.Runner.run(agent, history, run_config=settings)
        assert second.final_output == "Ada."
        said = [each.text for each in world.model.requests[-1].messages if each.role != "system"]
        assert said == ["I am Ada.", "Hello Ada.", "Who am I?"]
