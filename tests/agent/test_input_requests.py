"""A harness that asks the person a question: the next message of the session is the answer."""

import anyio
import pytest

from nacre.agent import AgentRun, InputRequest, TurnContext
from tests.agent.agent_setup import AgentSetup, event_of, events_of, kinds
from tests.agent.conftest import OpenAgent


class AskingHarness:
    """Asks one question, and answers with what it heard once it is released."""

    def __init__(self, *, timeout_seconds: float = 60, is_held: bool = False) -> None:
        self._timeout_seconds = timeout_seconds
        self.release = anyio.Event()
        if not is_held:
            self.release.set()

    def plan_surface(self, turn: TurnContext, /) -> str:
        return "direct"

    def needs_history(self, turn: TurnContext, /) -> bool:
        return True

    async def run(self, turn: TurnContext, /) -> None:
        turn.waits.begin("call_1")
        with turn.stop.cancelling():
            answer = await turn.run.input_requests.ask(
                InputRequest(
                    call_id="call_1", text="Which one?", timeout_seconds=self._timeout_seconds
                )
            )
            turn.waits.end("call_1")
            await self.release.wait()
            steered = [message.text for message in turn.queue.take_steered()]
            turn.output.text = f"{answer.text if answer else 'nothing'}, steered: {steered}"
        turn.stop.raise_if_aborted()


async def ask(setup: AgentSetup) -> AgentRun:
    """A run that waits for an answer."""
    run = await setup.start("first", session_key="chat")
    with anyio.fail_after(5):
        assert await run.waiting_or_ended() == "waiting"
    return run


@pytest.mark.parametrize("mode", ["steer", "followup", "collect"])
async def test_the_next_message_answers_whatever_the_queue_mode_is(
    open_service: OpenAgent, mode: str
) -> None:
    async with open_service(harness=AskingHarness()) as setup:
        run = await ask(setup)
        assert run.pending_input is not None
        assert run.pending_input.text == "Which one?"
        taken_by = await setup.start("the red one", session_key="chat", queue_mode=mode)
        result = await run.wait()
        assert taken_by is run
        assert result.text == "the red one, steered: []"
        assert setup.service.runs(run.session_id) == [run]
        assert "steered" not in kinds(run)
        assert events_of(run, "input.answered")[0].data["how"] == "answered"
        waited = [kind for kind in kinds(run) if kind.startswith(("run.w", "run.r", "input."))]
        assert waited == ["input.requested", "run.waiting", "input.answered", "run.resumed"]


async def test_only_the_first_message_answers_and_the_next_one_steers(
    open_service: OpenAgent,
) -> None:
    harness = AskingHarness(is_held=True)
    async with open_service(harness=harness) as setup:
        run = await ask(setup)
        await setup.start("red", session_key="chat")
        assert await setup.start("and hurry", session_key="chat") is run
        harness.release.set()
        assert (await run.wait()).text == "red, steered: ['and hurry']"


@pytest.mark.parametrize("other", [{"sender": "somebody"}, {"channel": "mail"}])
async def test_a_message_of_another_sender_or_channel_does_not_answer(
    open_service: OpenAgent, other: dict[str, str]
) -> None:
    async with open_service(harness=AskingHarness()) as setup:
        run = await ask(setup)
        queued = await setup.start("mine", session_key="chat", **other)
        assert queued is not run
        assert run.pending_input is not None
        await setup.start("red", session_key="chat")
        await run.wait()
        with anyio.fail_after(5):
            await queued.waiting_or_ended()
        await queued.abort()


async def test_an_abort_withdraws_the_question(open_service: OpenAgent) -> None:
    async with open_service(harness=AskingHarness()) as setup:
        run = await ask(setup)
        with anyio.fail_after(5):
            await run.abort("stop")
        assert run.pending_input is None
        assert events_of(run, "input.answered")[0].data["how"] == "withdrawn"
        # The session is free: the next message starts a turn of its own.
        again = await setup.start("again", session_key="chat")
        assert again is not run
        await again.abort()


async def test_a_question_that_nobody_answers_expires(open_service: OpenAgent) -> None:
    async with open_service(harness=AskingHarness(timeout_seconds=0.01)) as setup:
        run = await setup.start("first", session_key="chat")
        assert (await event_of(run, "input.answered")).data["how"] == "expired"
        assert (await run.wait()).text == "nothing, steered: []"


async def test_a_newer_question_withdraws_the_older_one() -> None:
    run = AgentRun(id="run_1", session_id="session_1", agent_id="main")
    answers: list[object] = []

    async def ask_again(text: str) -> None:
        request = InputRequest(call_id=text, text=text, timeout_seconds=60)
        answers.append(await run.input_requests.ask(request))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask_again, "one")
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(ask_again, "two")
        await anyio.wait_all_tasks_blocked()
        assert answers == [None]
        assert run.pending_input is not None
        assert run.pending_input.text == "two"
        run.input_requests.withdraw()
    assert answers == [None, None]
