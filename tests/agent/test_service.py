"""Finding the session of a turn, and storing the turn in it."""

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
from tests.agent.agent_setup import CODE_MODE, AgentSetup
from tests.agent.conftest import OpenAgent
from tests.agent.fake_models import HeldAnswer, say
from tests.agent.tools import echo_tool


async def test_a_key_finds_the_same_session_again(open_service: OpenAgent) -> None:
    async with open_service() as setup:
        setup.model.will(say("one"), say("two"))
        first = await setup.turn("1", session_key="chat:7", channel="chat", sender="ada")
        second = await setup.turn("2", session_key="chat:7")
        assert first.session_id == second.session_id
        (session,) = await setup.store.sessions()
        assert (session.key, session.channel, session.sender) == ("chat:7", "chat", "ada")
        assert session.title == "1"


async def test_a_turn_without_a_session_begins_one(open_service: OpenAgent) -> None:
    async with open_service() as setup:
        setup.model.will(say("one"), say("two"))
        first, second = await setup.turn("1"), await setup.turn("2")
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
    open_service: OpenAgent, asked: TurnRequest, code: str
) -> None:
    async with open_service() as setup:
        with pytest.raises(SessionError) as refused:
            await setup.service.start(asked)
        assert refused.value.code == code


async def test_a_history_of_the_callers_own_leaves_nothing_behind(
    open_service: OpenAgent,
) -> None:
    async with open_service() as setup:
        setup.model.will(say("two"))
        before = [user_message("1"), say("one")]
        run = await setup.turn("2", history=before)
        assert run.state == "completed"
        assert list(setup.model.requests[0].messages) == [*before, user_message("2")]
        assert await setup.store.sessions() == []
        assert await setup.store.events(run_id=run.id) == []


async def test_a_history_with_a_key_is_used_and_the_turn_is_kept(open_service: OpenAgent) -> None:
    async with open_service() as setup:
        setup.model.will(say("two"))
        run = await setup.turn("2", history=[user_message("1")], session_key="chat")
        assert len(setup.model.requests[0].messages) == 2
        assert (await setup.kept(run.session_id))[0] == user_message("2")


async def test_a_history_alone_can_be_answered(open_service: OpenAgent) -> None:
    async with open_service() as setup:
        setup.model.will(say("two"))
        request = TurnRequest(history=[user_message("1")])
        run = await setup.service.start(request)
        await run.wait()
        assert run.state == "completed"


async def test_runs_are_found_while_they_run_and_for_a_while_afterwards(
    open_service: OpenAgent,
) -> None:
    async with open_service() as setup:
        setup.model.will(say("one"), say("two"))
        first = await setup.turn("1")
        second = await setup.turn("2")
        assert setup.service.run(first.id) is first
        assert setup.service.runs() == [first, second]
        assert setup.service.runs(second.session_id) == [second]
        assert setup.service.run("nothing") is None


async def test_a_store_that_fails_fails_the_turn(
    open_service: OpenAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(*_args: object, **_options: object) -> None:
        raise StorageError("the disk is full")

    async with open_service() as setup:
        setup.model.will(say("one"))
        monkeypatch.setattr(setup.store, "end_turn", full)
        run = await setup.turn()
        assert run.state == "failed"
        assert run.result is not None
        assert run.result.error == "the turn is not kept: the disk is full"
        assert run.result.text == "one"


async def many_turns(setup: AgentSetup, count: int) -> None:
    for number in range(count):
        setup.model.will(say(f"answer {number}"))
        await setup.turn(f"question {number}", session_key="chat")


async def test_the_order_of_turns_is_the_order_of_messages(open_service: OpenAgent) -> None:
    async with open_service() as setup:
        await many_turns(setup, 5)
        (session,) = await setup.store.sessions()
        texts = [getattr(message, "text", "") for message in await setup.kept(session.id)]
        assert texts == [
            text for number in range(5) for text in (f"question {number}", f"answer {number}")
        ]


async def test_a_turn_that_breaks_ends_its_run_and_no_other(
    open_service: OpenAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def breaks(_turn: Turn) -> None:
        raise RuntimeError("a bug")

    async with open_service() as setup:
        with monkeypatch.context() as patch:
            patch.setattr(Turn, "run", breaks)
            run = await setup.turn()
        assert run.state == "failed"
        assert run.result is not None
        assert run.result.error == "the run broke inside of Nacre"
        setup.model.will(say("fine"))
        assert (await setup.turn()).state == "completed"


async def test_a_new_configuration_holds_from_the_next_turn_on(open_service: OpenAgent) -> None:
    async with open_service() as setup:
        setup.model.will(say("one"), say("two"))
        await setup.turn("1", session_key="chat")
        configure(setup, better(setup))
        await setup.turn("2", session_key="chat")
        assert instructions(setup) == ["Be good.", "Be better."]


def better(setup: AgentSetup) -> AgentConfig:
    return replace(setup.config.agents.agent("main"), instructions="Be better.")


def configure(setup: AgentSetup, agent: AgentConfig) -> None:
    """With this agent, and no other."""
    agents = replace(setup.config.agents, default_id=agent.id, by_id={agent.id: agent})
    setup.service.configure(replace(setup.config, agents=agents))


def instructions(setup: AgentSetup) -> list[str]:
    return [request.instructions.split("\n")[0] for request in setup.model.requests]


async def turn_and_one_that_waits(setup: AgentSetup, held: HeldAnswer) -> tuple[AgentRun, AgentRun]:
    setup.model.will(held, say("two"))
    first = await setup.start("1", session_key="chat")
    with anyio.fail_after(5):
        await held.asked.wait()
    return first, await setup.start("2", session_key="chat", queue_mode="followup")


async def test_a_turn_that_waited_begins_with_the_configuration_of_then(
    open_service: OpenAgent,
) -> None:
    held = HeldAnswer(say("one"))
    async with open_service() as setup:
        first, second = await turn_and_one_that_waits(setup, held)
        configure(setup, better(setup))
        held.release.set()
        with anyio.fail_after(5):
            await first.wait()
            await second.wait()
        assert instructions(setup) == ["Be good.", "Be better."]


async def test_a_turn_that_waited_says_so_where_its_agent_is_gone(open_service: OpenAgent) -> None:
    held = HeldAnswer(say("one"))
    async with open_service() as setup:
        first, second = await turn_and_one_that_waits(setup, held)
        configure(setup, replace(better(setup), id="other"))
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
    open_service: OpenAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = Transcript.begin
    async with open_service(document=CODE_MODE, tools=[echo_tool()]) as setup:

        async def begun_in_a_reload(session: Transcript, **what: Any) -> None:
            await begin(session, **what)
            agents = setup.config.agents
            direct = replace(agents.agent("main"), tools=ToolsConfig())
            setup.service.configure(
                replace(setup.config, agents=replace(agents, by_id={"main": direct}))
            )

        monkeypatch.setattr(Transcript, "begin", begun_in_a_reload)
        setup.model.will(say("one"), say("two"))
        for _ in range(2):
            await setup.turn()
        shown = [[tool.name for tool in request.tools] for request in setup.model.requests]
        assert shown == [["exec", "wait"], ["echo"]]
