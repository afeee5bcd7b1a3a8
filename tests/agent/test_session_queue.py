"""Messages that arrive while a turn of their session is running."""

import anyio
import pytest

from nacre.agent import AgentRun
from nacre.errors import ProviderError, SessionError
from nacre.messages import UserMessage, user_message
from tests.agent.agent_setup import AgentSetup, event_of, events_of
from tests.agent.conftest import OpenAgent
from tests.agent.fake_models import HeldAnswer, call, say
from tests.agent.tools import HeldTool


def queue(**settings: object) -> dict[str, object]:
    return {"messages": {"queue": {"debounceMs": 0, **settings}}}


async def busy(setup: AgentSetup, first: HeldAnswer) -> AgentRun:
    """A run whose model is at its answer."""
    setup.model.will(first)
    run = await setup.start("first", session_key="chat")
    with anyio.fail_after(5):
        await first.asked.wait()
    return run


async def ends(*runs: AgentRun) -> None:
    with anyio.fail_after(5):
        for run in runs:
            await run.wait()


def said(setup: AgentSetup, index: int) -> list[str]:
    """What persons said in a request to the model."""
    messages = setup.model.requests[index].messages
    return [message.text for message in messages if isinstance(message, UserMessage)]


async def test_a_steered_message_is_read_before_the_next_model_call(
    open_service: OpenAgent,
) -> None:
    held = HeldTool()
    async with open_service(tools=[held.tool]) as setup:
        setup.model.will(call("held"), say("done"))
        run = await setup.start("first", session_key="chat")
        with anyio.fail_after(5):
            await held.started.wait()
        steered = await setup.start("and this", session_key="chat")
        assert steered is run
        held.release.set()
        await ends(run)
        assert setup.model.requests[1].messages[-1] == user_message("and this")
        assert [event.data["text"] for event in events_of(run, "steered")] == ["and this"]
        assert len(await setup.kept(run.session_id)) == 5


async def test_a_message_that_comes_during_the_last_answer_is_answered_in_the_same_turn(
    open_service: OpenAgent,
) -> None:
    async with open_service() as setup:
        held = HeldAnswer(say("one"))
        run = await busy(setup, held)
        setup.model.will(say("two"))
        assert await setup.start("more", session_key="chat") is run
        held.release.set()
        await ends(run)
        assert run.result is not None
        assert run.result.text == "two"
        assert said(setup, 1) == ["first", "more"]


async def test_a_steered_message_of_a_run_that_failed_has_a_turn_of_its_own(
    open_service: OpenAgent,
) -> None:
    async def fails(request: object) -> object:
        asked.set()
        await release.wait()
        raise ProviderError("broken")

    asked, release = anyio.Event(), anyio.Event()
    async with open_service() as setup:
        setup.model.will(fails, say("fine"))  # pyright: ignore[reportArgumentType]
        run = await setup.start("first", session_key="chat")
        with anyio.fail_after(5):
            await asked.wait()
        await setup.start("more", session_key="chat")
        release.set()
        await ends(run)
        assert run.state == "failed"
        follow_up = setup.service.run(str(events_of(run, "steered")[-1].data["followupRunId"]))
        assert follow_up is not None
        await ends(follow_up)
        assert follow_up.state == "completed"
        assert said(setup, 1) == ["first", "more"]


async def test_a_steered_message_of_a_run_that_was_aborted_is_kept_and_starts_nothing(
    open_service: OpenAgent,
) -> None:
    async with open_service() as setup:
        run = await busy(setup, HeldAnswer(say("never")))
        await setup.start("more", session_key="chat")
        with anyio.fail_after(5):
            await run.abort("stop")
        assert await setup.kept(run.session_id) == [user_message("first"), user_message("more")]
        assert setup.service.runs() == [run]


async def test_a_follow_up_has_its_turn_afterwards(open_service: OpenAgent) -> None:
    async with open_service(document=queue(mode="followup")) as setup:
        held = HeldAnswer(say("one"))
        run = await busy(setup, held)
        second = await setup.start("second", session_key="chat")
        third = await setup.start("third", session_key="chat")
        assert (second.state, third.state) == ("queued", "queued")
        setup.model.will(say("two"), say("three"))
        held.release.set()
        await ends(run, second, third)
        texts = [each.result.text for each in (run, second, third) if each.result]
        assert texts == ["one", "two", "three"]
        assert said(setup, 2) == ["first", "second", "third"]
        assert events_of(second, "run.queued")[0].data["after"] == run.id


async def test_collected_messages_become_one_turn(open_service: OpenAgent) -> None:
    async with open_service(document=queue(mode="collect")) as setup:
        held = HeldAnswer(say("one"))
        run = await busy(setup, held)
        second = await setup.start("second", session_key="chat")
        assert await setup.start("third", session_key="chat") is second
        setup.model.will(say("two"))
        held.release.set()
        await ends(run, second)
        assert said(setup, 1) == ["first", "second\nthird"]
        assert len(setup.model.requests) == 2


async def test_collecting_waits_for_a_moment_of_quiet(open_service: OpenAgent) -> None:
    async with open_service(document=queue(mode="collect", debounceMs=300)) as setup:
        held = HeldAnswer(say("one"))
        run = await busy(setup, held)
        second = await setup.start("second", session_key="chat")
        held.release.set()
        await ends(run)
        assert second.state == "queued"
        assert await setup.start("third", session_key="chat") is second
        setup.model.will(say("two"))
        await ends(second)
        assert said(setup, 1) == ["first", "second\nthird"]


async def test_a_request_can_say_how_it_is_queued(open_service: OpenAgent) -> None:
    async with open_service(document=queue(mode="steer")) as setup:
        held = HeldAnswer(say("one"))
        run = await busy(setup, held)
        second = await setup.start("second", session_key="chat", queue_mode="followup")
        assert second is not run
        setup.model.will(say("two"))
        held.release.set()
        await ends(run, second)


async def test_a_full_queue_refuses_new_messages(open_service: OpenAgent) -> None:
    async with open_service(document=queue(mode="followup", cap=1, drop="new")) as setup:
        held = HeldAnswer(say("one"))
        run = await busy(setup, held)
        second = await setup.start("second", session_key="chat")
        with pytest.raises(SessionError, match=r"`messages.queue.cap` is 1") as refused:
            await setup.start("third", session_key="chat")
        assert refused.value.code == "busy"
        assert len(setup.service.runs()) == 2
        setup.model.will(say("two"))
        held.release.set()
        await ends(run, second)


async def test_a_full_queue_drops_the_oldest_and_says_so(open_service: OpenAgent) -> None:
    async with open_service(document=queue(mode="followup", cap=1, drop="old")) as setup:
        held = HeldAnswer(say("one"))
        run = await busy(setup, held)
        second = await setup.start("second", session_key="chat")
        third = await setup.start("third", session_key="chat")
        assert second.state == "aborted"
        assert second.result is not None
        assert "dropped for newer ones" in second.result.error
        setup.model.will(say("three"))
        held.release.set()
        await ends(run, third)
        assert said(setup, 1) == ["first", "third"]
        assert setup.service.runs() == [second, run, third]


async def test_dropped_messages_can_leave_a_note(open_service: OpenAgent) -> None:
    async with open_service(document=queue(mode="collect", cap=1, drop="summarize")) as setup:
        held = HeldAnswer(say("one"))
        run = await busy(setup, held)
        await setup.start("second", session_key="chat")
        third = await setup.start("third", session_key="chat")
        setup.model.will(say("three"))
        held.release.set()
        await ends(run, third)
        assert said(setup, 1)[1] == (
            "[1 earlier messages were dropped; the last began:\n- second]\nthird"
        )


async def test_a_steered_message_that_is_dropped_is_told_in_the_run(
    open_service: OpenAgent,
) -> None:
    async with open_service(document=queue(mode="steer", cap=1, drop="old")) as setup:
        held = HeldAnswer(say("one"))
        run = await busy(setup, held)
        await setup.start("second", session_key="chat")
        await setup.start("third", session_key="chat")
        setup.model.will(say("two"))
        held.release.set()
        await ends(run)
        assert said(setup, 1) == ["first", "third"]
        dropped = [
            event.data["text"] for event in events_of(run, "steered") if "dropped" in event.data
        ]
        assert dropped == ["second"]


async def test_a_turn_that_waits_can_be_aborted(open_service: OpenAgent) -> None:
    async with open_service(document=queue(mode="followup")) as setup:
        held = HeldAnswer(say("one"))
        run = await busy(setup, held)
        second = await setup.start("second", session_key="chat")
        with anyio.fail_after(5):
            assert await setup.service.abort(second.id, "not wanted")
        assert second.state == "aborted"
        held.release.set()
        await ends(run)
        assert len(setup.model.requests) == 1


async def test_sessions_run_beside_each_other(open_service: OpenAgent) -> None:
    async with open_service() as setup:
        first, second = HeldAnswer(say("one")), HeldAnswer(say("two"))
        setup.model.will(first, second)
        one = await setup.start("1", session_key="a")
        two = await setup.start("2", session_key="b")
        with anyio.fail_after(5):
            await first.asked.wait()
            await second.asked.wait()
        first.release.set()
        second.release.set()
        await ends(one, two)


async def test_too_many_runs_at_once_are_refused(open_service: OpenAgent) -> None:
    async with open_service(document={"gateway": {"maxConcurrentRuns": 1}}) as setup:
        held = HeldAnswer(say("one"))
        run = await busy(setup, held)
        with pytest.raises(SessionError, match=r"`gateway.maxConcurrentRuns` is 1") as refused:
            await setup.start("2", session_key="other")
        assert refused.value.code == "too_many"
        held.release.set()
        await ends(run)
        setup.model.will(say("two"))
        await setup.turn("2", session_key="other")


async def test_the_queue_event_comes_before_the_start(open_service: OpenAgent) -> None:
    async with open_service(document=queue(mode="followup")) as setup:
        held = HeldAnswer(say("one"))
        await busy(setup, held)
        second = await setup.start("second", session_key="chat")
        setup.model.will(say("two"))
        held.release.set()
        await event_of(second, "run.started")
        assert [event.kind for event in second.events.events][:2] == ["run.queued", "run.started"]
        await ends(second)


@pytest.mark.parametrize("mode", ["steer", "collect"])
@pytest.mark.parametrize(
    "more",
    [
        {"model": "fake/model"},
        {"instructions": "Be brief."},
        {"sender": "somebody else"},
        {"tools_disabled": True},
    ],
)
async def test_a_message_that_brings_more_than_words_has_a_turn_of_its_own(
    open_service: OpenAgent, mode: str, more: dict[str, object]
) -> None:
    async with open_service(document=queue(mode=mode)) as setup:
        held = HeldAnswer(say("one"))
        run = await busy(setup, held)
        second = await setup.start("second", session_key="chat", **more)
        third = await setup.start("third", session_key="chat", **more)
        assert len({run.id, second.id, third.id}) == 3
        setup.model.will(say("two"), say("three"))
        held.release.set()
        await ends(run, second, third)
        assert said(setup, 1) == ["first", "second"]


async def test_a_message_for_the_model_that_answers_already_steers_the_turn(
    open_service: OpenAgent,
) -> None:
    async with open_service() as setup:
        held = HeldAnswer(say("one"))
        setup.model.will(held, say("two"))
        run = await setup.start("first", session_key="chat", model="fake/model")
        with anyio.fail_after(5):
            await held.asked.wait()
        assert await setup.start("second", session_key="chat", model="fake/model") is run
        held.release.set()
        await ends(run)
        assert said(setup, 1) == ["first", "second"]


async def test_messages_that_are_collected_keep_the_model_of_the_first(
    open_service: OpenAgent,
) -> None:
    async with open_service(document=queue(mode="collect")) as setup:
        held = HeldAnswer(say("one"))
        setup.spare_model.will(held, say("two"))
        run = await setup.start("first", session_key="chat", model="fake/spare")
        with anyio.fail_after(5):
            await held.asked.wait()
        second = await setup.start("second", session_key="chat", model="fake/spare")
        assert await setup.start("third", session_key="chat") is second
        held.release.set()
        await ends(run, second)
        assert second.result is not None
        assert second.result.model == "fake/spare"


async def test_a_message_that_comes_while_the_run_is_aborted_is_answered(
    open_service: OpenAgent,
) -> None:
    async with open_service() as setup:
        run = await busy(setup, HeldAnswer(say("never")))
        run.request_abort("stop")
        second = await setup.start("start again", session_key="chat")
        assert second is not run
        setup.model.will(say("two"))
        await ends(run, second)
        assert second.state == "completed"
        assert said(setup, 1) == ["first", "start again"]
