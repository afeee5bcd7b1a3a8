"""Which session a turn belongs to, and what is kept of it."""

from dataclasses import replace
from typing import Any

import anyio
import pytest

from nacre.agent import AgentRun, TurnRequest
from nacre.agent.transcript import Transcript
from nacre.agent.turn import Turn
from nacre.config.agents import AgentConfig
from nacre.config.tools import ToolsConfig
from nacre.errors import SessionError, StorageError
from nacre.messages import user_message
from tests.agent.conftest import OpenWorld
from tests.agent.fake_models import HeldAnswer, say
from tests.agent.tools import echo_tool
from tests.agent.worlds import CODE_MODE, World


async def test_a_key_finds_the_same_session_again(open_service: OpenWorld) -> None:
    async with open_service() as world:
        world.model.will(say("one"), say("two"))
        first = await world.turn("1", session_key="chat:7", channel="chat", sender="ada")
        second = await world.turn("2", session_key="chat:7")
        assert first.session_id == second.session_id
        (session,) = await world.store.sessions()
        assert (session.key, session.channel, session.sender) == ("chat:7", "chat", "ada")
        assert session.title == "1"


async def test_a_turn_without_a_session_begins_one(open_service: OpenWorld) -> None:
    async with open_service() as world:
        world.model.will(say("one"), say("two"))
        first, second = await world.turn("1"), await world.turn("2")
        assert first.session_id != second.session_id


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (TurnRequest(message="x", session_id="nowhere"), "not_found"),
        (TurnRequest(message="x", agent_id="nobody"), "not_found"),
        (TurnRequest(message="x", session_id="a", session_key="b"), "invalid"),
    ],
)
async def test_what_is_not_there_is_refused(
    open_service: OpenWorld, asked: TurnRequest, code: str
) -> None:
    async with open_service() as world:
        with pytest.raises(SessionError) as refused:
            await world.service.start(asked)
        assert refused.value.code == code


async def test_a_history_of_the_callers_own_leaves_nothing_behind(
    open_service: OpenWorld,
) -> None:
    async with open_service() as world:
        world.model.will(say("two"))
        before = [user_message("1"), say("one")]
        run = await world.turn("2", history=before)
        assert run.state == "completed"
        assert list(world.model.requests[0].messages) == [*before, user_message("2")]
        assert await world.store.sessions() == []
        assert await world.store.events(run_id=run.id) == []


async def test_a_history_with_a_key_is_used_and_the_turn_is_kept(open_service: OpenWorld) -> None:
    async with open_service() as world:
        world.model.will(say("two"))
        run = await world.turn("2", history=[user_message("1")], session_key="chat")
        assert len(world.model.requests[0].messages) == 2
        assert (await world.kept(run.session_id))[0] == user_message("2")


async def test_a_history_alone_can_be_answered(open_service: OpenWorld) -> None:
    async with open_service() as world:
        world.model.will(say("two"))
        request = TurnRequest(history=[user_message("1")])
        run = await world.service.start(request)
        await run.wait()
        assert run.state == "completed"


async def test_runs_are_found_while_they_run_and_for_a_while_afterwards(
    open_service: OpenWorld,
) -> None:
    async with open_service() as world:
        world.model.will(say("one"), say("two"))
        first = await world.turn("1")
        second = await world.turn("2")
        assert world.service.run(first.id) is first
        assert world.service.runs() == [first, second]
        assert world.service.runs(second.session_id) == [second]
        assert world.service.run("nothing") is None


async def test_a_store_that_fails_fails_the_turn(
    open_service: OpenWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(*_args: object, **_options: object) -> None:
        raise StorageError("the disk is full")

    async with open_service() as world:
        world.model.will(say("one"))
        monkeypatch.setattr(world.store, "end_turn", full)
        run = await world.turn()
        assert run.state == "failed"
        assert run.result is not None
        assert run.result.error == "the turn is not kept: the disk is full"
        assert run.result.text == "one"


async def many_turns(world: World, count: int) -> None:
    for number in range(count):
        world.model.will(say(f"answer {number}"))
        await world.turn(f"question {number}", session_key="chat")


async def test_the_order_of_turns_is_the_order_of_messages(open_service: OpenWorld) -> None:
    async with open_service() as world:
        await many_turns(world, 5)
        (session,) = await world.store.sessions()
        texts = [getattr(message, "text", "") for message in await world.kept(session.id)]
        assert texts == [
            text for number in range(5) for text in (f"question {number}", f"answer {number}")
        ]


async def test_a_turn_that_breaks_ends_its_run_and_no_other(
    open_service: OpenWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def breaks(_turn: Turn) -> None:
        raise RuntimeError("a bug")

    async with open_service() as world:
        with monkeypatch.context() as patch:
            patch.setattr(Turn, "run", breaks)
            run = await world.turn()
        assert run.state == "failed"
        assert run.result is not None
        assert run.result.error == "the run broke inside of Nacre"
        world.model.will(say("fine"))
        assert (await world.turn()).state == "completed"


async def test_a_new_configuration_holds_from_the_next_turn_on(open_service: OpenWorld) -> None:
    async with open_service() as world:
        world.model.will(say("one"), say("two"))
        await world.turn("1", session_key="chat")
        configure(world, better(world))
        await world.turn("2", session_key="chat")
        assert instructions(world) == ["Be good.", "Be better."]


def better(world: World) -> AgentConfig:
    return replace(world.config.agents.agent("main"), instructions="Be better.")


def configure(world: World, agent: AgentConfig) -> None:
    """With this agent, and no other."""
    agents = replace(world.config.agents, default_id=agent.id, by_id={agent.id: agent})
    world.service.configure(replace(world.config, agents=agents))


def instructions(world: World) -> list[str]:
    return [request.instructions.split("\n")[0] for request in world.model.requests]


async def turn_and_one_that_waits(world: World, held: HeldAnswer) -> tuple[AgentRun, AgentRun]:
    world.model.will(held, say("two"))
    first = await world.start("1", session_key="chat")
    with anyio.fail_after(5):
        await held.asked.wait()
    return first, await world.start("2", session_key="chat", queue_mode="followup")


async def test_a_turn_that_waited_begins_with_the_configuration_of_then(
    open_service: OpenWorld,
) -> None:
    held = HeldAnswer(say("one"))
    async with open_service() as world:
        first, second = await turn_and_one_that_waits(world, held)
        configure(world, better(world))
        held.release.set()
        with anyio.fail_after(5):
            await first.wait()
            await second.wait()
        assert instructions(world) == ["Be good.", "Be better."]


async def test_a_turn_that_waited_says_so_where_its_agent_is_gone(open_service: OpenWorld) -> None:
    held = HeldAnswer(say("one"))
    async with open_service() as world:
        first, second = await turn_and_one_that_waits(world, held)
        configure(world, replace(better(world), id="other"))
        held.release.set()
        with anyio.fail_after(5):
            await first.wait()
            result = await second.wait()
        assert (first.state, second.state) == ("completed", "aborted")
        assert result.error == (
            "the configuration changed while the turn waited: "
            "there is no agent 'main'; there are: other"
        )


async def test_a_configuration_that_comes_while_a_turn_is_being_begun_is_not_for_it(
    open_service: OpenWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = Transcript.begin
    async with open_service(document=CODE_MODE, tools=[echo_tool()]) as world:

        async def begun_in_a_reload(session: Transcript, **what: Any) -> None:
            await begin(session, **what)
            agents = world.config.agents
            direct = replace(agents.agent("main"), tools=ToolsConfig())
            world.service.configure(
                replace(world.config, agents=replace(agents, by_id={"main": direct}))
            )

        monkeypatch.setattr(Transcript, "begin", begun_in_a_reload)
        world.model.will(say("one"), say("two"))
        for _ in range(2):
            await world.turn()
        shown = [[tool.name for tool in request.tools] for request in world.model.requests]
        assert shown == [["exec", "wait"], ["echo"]]
