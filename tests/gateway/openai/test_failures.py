"""What goes wrong: with a status where nothing was said yet, in the stream otherwise."""

from typing import Any

import anyio
import anyio.lowlevel
import openai
import pytest

from nacre.agent import AgentRun
from nacre.errors import StorageError
from nacre.testing import Call, Fail, Say, Stall
from tests.gateway.openai.conftest import CHAT_WEATHER, OpenAiWorld, OpenWorld
from tests.gateway.worlds import PATIENCE_SECONDS

STREAMS = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])


async def ended(run: AgentRun) -> tuple[str, str]:
    with anyio.fail_after(PATIENCE_SECONDS):
        result = await run.wait()
    return run.state, result.error


FAILURES = [
    (Fail(400, "no such thing"), 502, "provider_failed"),
    (Fail(429, "slow down", retry_after=7), 429, "provider_failed"),
    (Fail(401, "who are you?"), 502, "provider_failed"),
    (Fail(400, "too long", code="context_length_exceeded"), 400, "context_length_exceeded"),
]


@STREAMS
@pytest.mark.parametrize("door", ["chat", "responses"])
async def test_a_failure_of_the_provider_has_a_status_and_says_what_it_said(
    open_openai: OpenWorld, stream: bool, door: str
) -> None:
    async with open_openai([failure for failure, _, _ in FAILURES]) as world:
        ask = world.chat if door == "chat" else world.respond
        for failure, status, code in FAILURES:
            with pytest.raises(openai.APIStatusError) as refused:
                await ask(stream=stream)
            error = refused.value
            assert (error.status_code, error.code) == (status, code)
            assert failure.message in error.message
            assert error.response.headers["x-should-retry"] == "false"


async def test_clients_do_not_repeat_a_turn_by_themselves(open_openai: OpenWorld) -> None:
    async with open_openai([Fail(500, "broken"), Say("never asked for")]) as world:
        with pytest.raises(openai.InternalServerError):
            await world.client.with_options(max_retries=2).chat.completions.create(
                model="nacre", messages=[{"role": "user", "content": "hello"}]
            )
        assert len(world.model.requests) == 1


async def test_a_failure_after_the_first_words_is_told_in_the_stream(
    open_openai: OpenWorld,
) -> None:
    async with open_openai([[Say("So far"), Fail(500, "the model fell over")]]) as world:
        stream = await world.chat(stream=True)
        said = ""
        with pytest.raises(openai.APIError, match="the model fell over"):
            async for chunk in stream:
                said += chunk.choices[0].delta.content or ""
    assert said == "So far"


@STREAMS
async def test_a_budget_that_is_used_up_is_an_error(open_openai: OpenWorld, stream: bool) -> None:
    document: dict[str, Any] = {"agents": {"defaults": {"model": "scripted/model", "maxSteps": 1}}}
    async with open_openai([Call("list", {})], document) as world:
        with pytest.raises(openai.InternalServerError, match="maxSteps") as refused:
            await world.chat(stream=stream)
    assert refused.value.code == "run_failed"


@pytest.mark.parametrize("door", ["chat", "responses"])
async def test_a_turn_that_is_not_kept_is_told_as_such(
    open_openai: OpenWorld, door: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(*_args: object, **_options: object) -> None:
        raise StorageError("the disk is full")

    async with open_openai([Say("one")]) as world:
        monkeypatch.setattr(world.world.system.store, "end_turn", full)
        ask = world.chat if door == "chat" else world.respond
        with pytest.raises(openai.InternalServerError) as refused:
            await ask(user="a-session-that-is-kept")
    error = refused.value
    assert (error.status_code, error.code) == (503, "storage_failed")
    assert "the turn is not kept: the disk is full" in error.message
    assert error.response.headers["x-should-retry"] == "false"


@STREAMS
async def test_an_abort_by_somebody_else_is_told(open_openai: OpenWorld, stream: bool) -> None:
    async with open_openai([Stall()]) as world:
        errors: list[Any] = []

        async def ask() -> None:
            with pytest.raises(openai.InternalServerError) as refused:
                await world.chat(stream=stream)
            errors.append(refused.value)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            run = await begun(world)
            with anyio.fail_after(PATIENCE_SECONDS):
                assert await run.abort("a person pressed stop")
    assert (errors[0].status_code, errors[0].code) == (503, "aborted")
    assert "a person pressed stop" in errors[0].message


async def begun(world: OpenAiWorld) -> AgentRun:
    """The run of the only request, once its model is asked."""
    with anyio.fail_after(PATIENCE_SECONDS):
        while not (runs := world.world.system.agents.runs()):
            await anyio.lowlevel.checkpoint()
        async for event in runs[0].events.follow():
            if event.kind == "model.started":
                break
    return runs[0]


@STREAMS
@pytest.mark.parametrize("door", ["chat", "responses"])
async def test_a_client_that_goes_away_ends_its_run(
    open_openai: OpenWorld, stream: bool, door: str
) -> None:
    async with open_openai([[Say("So"), Stall()]]) as world:
        ask = world.chat if door == "chat" else world.respond

        async def listen() -> None:
            answer = await ask(stream=stream)
            async for _ in answer:
                pass

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listen)
            async for event in (await begun(world)).events.follow():
                if event.kind == "text.delta":
                    break
            tasks.cancel_scope.cancel()
        (run,) = world.world.system.agents.runs()
        assert await ended(run) == ("aborted", "the client closed the connection")
        with anyio.fail_after(PATIENCE_SECONDS):
            assert await world.model.requests[0].wait_until_over() == "abandoned"


async def test_a_client_that_goes_away_after_it_was_asked_leaves_its_run_parked(
    open_openai: OpenWorld,
) -> None:
    async with open_openai([Call("weather", {"city": "Oslo"}), Say("rain")]) as world:
        stream = await world.chat("weather?", tools=[CHAT_WEATHER], stream=True)
        call_id = ""
        async for chunk in stream:
            for delta in chunk.choices[0].delta.tool_calls or ():
                call_id = delta.id or call_id
            if call_id:
                break
        await stream.close()
        result = {"role": "tool", "tool_call_id": call_id, "content": "rain"}
        answer = await world.chat([{"role": "user", "content": "weather?"}, result])
        assert answer.choices[0].message.content == "rain"


async def test_too_many_runs_are_refused_with_a_time_to_try_again(open_openai: OpenWorld) -> None:
    document = {"gateway": {"maxConcurrentRuns": 1}}
    async with open_openai([Stall(), Say("hi")], document) as world:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(world.chat)
            await begun(world)
            with pytest.raises(openai.RateLimitError, match="maxConcurrentRuns") as refused:
                await world.chat("another")
            assert refused.value.response.headers["retry-after"] == "1"
            tasks.cancel_scope.cancel()
        (run,) = world.world.system.agents.runs()
        await ended(run)
        answer = await world.chat("once more")
        assert answer.choices[0].message.content == "hi"


async def test_a_caller_without_the_token_is_told_so_as_openai_does(
    open_openai: OpenWorld,
) -> None:
    async with open_openai() as world:
        with pytest.raises(openai.AuthenticationError) as refused:
            await world.client.with_options(api_key="wrong").models.list()
        assert refused.value.type == "authentication_error"
