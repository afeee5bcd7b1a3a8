"""Providers that refuse, fail, hang or break off; and those who do not wait for the end."""

import anyio
import pytest

from nacre.config.models import ProviderApi
from nacre.errors import ProviderError
from nacre.messages import user_message
from nacre.providers.base import ModelRequest, Retrying, TextDelta
from nacre.testing import Cut, Fail, Raw, Say, Stall
from tests.providers.asking import API_KEY, SCRIPTED_APIS, WAIT_SECONDS, Scripted, scripted

every_api = pytest.mark.parametrize("api", SCRIPTED_APIS)
HELLO = ModelRequest(instructions="", messages=[user_message("hello")])


async def failure_of(test: Scripted) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await test.ask()
    return caught.value


@every_api
async def test_a_provider_that_is_busy_is_asked_again(api: ProviderApi) -> None:
    turns = [Fail(429, "slow down", retry_after=0), Fail(503, "later"), Say("here I am")]
    async with scripted(api, turns, max_retries=2) as test:
        answer = await test.ask()

    assert answer.text == "here I am"
    retries = [event for event in test.events if isinstance(event, Retrying)]
    assert [(event.attempt, event.delay_seconds) for event in retries] == [(1, 0), (2, 0)]
    assert "slow down" in retries[0].problem
    assert len(test.server.requests) == 3


@every_api
async def test_a_provider_that_keeps_failing_is_given_up(api: ProviderApi) -> None:
    async with scripted(api, [Fail(500, "out of order")] * 5, max_retries=2) as test:
        error = await failure_of(test)

    assert len(test.server.requests) == 3
    assert error.status == 500
    assert error.is_retryable
    assert "test/scripted: HTTP 500 Internal Server Error: out of order" in error.message
    assert "(3 attempts)" in error.message


@every_api
@pytest.mark.parametrize("status", [400, 401, 403, 404])
async def test_a_refusal_that_will_not_change_is_told_at_once(
    api: ProviderApi, status: int
) -> None:
    async with scripted(api, [Fail(status, "no, never")] * 3, max_retries=2) as test:
        error = await failure_of(test)

    assert len(test.server.requests) == 1
    assert error.status == status
    assert not error.is_retryable
    assert not error.is_context_overflow
    assert "no, never" in error.message
    assert ("models.providers.test." in error.message) == (status != 400)


async def test_a_provider_that_wants_to_be_left_alone_for_long_is() -> None:
    turns = [Fail(429, "come back tomorrow", retry_after=86_400), Say("never")]
    async with scripted("openai-completions", turns, max_retries=4) as test:
        error = await failure_of(test)

    assert len(test.server.requests) == 1
    assert error.retry_after_seconds == 86_400
    assert "retry after 86400 s" in error.message


async def test_a_used_up_quota_is_not_asked_for_again() -> None:
    turns = [Fail(429, "you are out of credits", code="insufficient_quota"), Say("never")]
    async with scripted("openai-completions", turns, max_retries=4) as test:
        error = await failure_of(test)

    assert len(test.server.requests) == 1
    assert "out of credits" in error.message


@pytest.mark.parametrize(
    ("api", "refusal"),
    [
        ("openai-completions", Fail(400, "too many tokens", code="context_length_exceeded")),
        ("openai-responses", Fail(400, "too many tokens", code="context_length_exceeded")),
        ("anthropic-messages", Fail(400, "prompt is too long: 300000 tokens > 200000 maximum")),
    ],
)
async def test_a_request_that_is_too_long_for_the_model_can_be_told(
    api: ProviderApi, refusal: Fail
) -> None:
    async with scripted(api, [refusal]) as test:
        error = await failure_of(test)

    assert error.is_context_overflow
    assert not error.is_retryable


@every_api
async def test_an_answer_that_breaks_off_is_an_error_and_not_asked_for_again(
    api: ProviderApi,
) -> None:
    async with scripted(api, [[Say("Once upon a"), Cut()], Say("never")], max_retries=3) as test:
        error = await failure_of(test)

    assert [event for event in test.events if isinstance(event, TextDelta)]
    assert len(test.server.requests) == 1
    assert "the connection to http://127.0.0.1:" in error.message


@every_api
async def test_an_error_in_the_middle_of_an_answer_is_told_as_the_provider_put_it(
    api: ProviderApi,
) -> None:
    turns = [[Say("Once upon a"), Fail(529, "overloaded, sorry")], Say("never")]
    async with scripted(api, turns, max_retries=3) as test:
        error = await failure_of(test)

    assert len(test.server.requests) == 1
    assert "overloaded, sorry" in error.message


@every_api
async def test_a_connection_that_breaks_before_the_answer_is_tried_again(api: ProviderApi) -> None:
    async with scripted(api, [Cut(), Say("back again")], max_retries=1) as test:
        answer = await test.ask()

    assert answer.text == "back again"
    assert isinstance(test.events[0], Retrying)


@every_api
async def test_a_stream_that_is_not_one_is_an_error(api: ProviderApi) -> None:
    async with scripted(
        api, [[Say("Once"), Raw("event: message_delta\ndata: {{{ no json\n\n")]]
    ) as test:
        error = await failure_of(test)

    assert error.message.startswith("test/scripted: ")


@every_api
async def test_a_provider_that_does_not_answer_in_time_is_not_waited_for(api: ProviderApi) -> None:
    async with scripted(api, [Stall()] * 3, max_retries=2, timeout_seconds=1) as test:
        error = await failure_of(test)

    assert len(test.server.requests) == 1
    assert "did not respond in time" in error.message
    assert "`models.providers.test.timeoutSeconds` is 1" in error.message


@every_api
async def test_a_server_that_is_not_there_is_named(api: ProviderApi) -> None:
    async with scripted(api, [], max_retries=1) as test:
        provider = test.provider
        await test.server.__aexit__(None, None, None)
        with pytest.raises(ProviderError) as caught:
            await test.ask(provider=provider)

    assert "the connection to http://127.0.0.1:" in caught.value.message
    assert "(2 attempts)" in caught.value.message
    assert len(test.events) == 1


@every_api
async def test_what_a_provider_says_of_a_key_is_not_shown(api: ProviderApi) -> None:
    refusal = Fail(401, f"the key {API_KEY} is not known, nor is sk-0123456789abcdefghij")
    async with scripted(api, [refusal]) as test:
        error = await failure_of(test)

    assert API_KEY not in str(error)
    assert "sk-0123456789" not in str(error)
    assert "is not known" in error.message
    assert error.__cause__ is None


@every_api
async def test_leaving_in_the_middle_of_an_answer_closes_the_connection(api: ProviderApi) -> None:
    async with scripted(api, [[Say("Once upon a"), Stall()]]) as test:
        with anyio.fail_after(WAIT_SECONDS):
            async with test.provider.stream(HELLO) as events:
                first = await anext(events)
            assert isinstance(first, TextDelta)
            assert await test.server.requests[0].wait_until_over() == "abandoned"


@every_api
async def test_a_cancelled_request_closes_the_connection(api: ProviderApi) -> None:
    async with scripted(api, [[Say("Once"), Stall()]]) as test:
        has_begun = anyio.Event()

        async def ask() -> None:
            async with test.provider.stream(HELLO) as events:
                async for _ in events:
                    has_begun.set()

        with anyio.fail_after(WAIT_SECONDS):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ask)
                await has_begun.wait()
                tasks.cancel_scope.cancel()
            assert await test.server.requests[0].wait_until_over() == "abandoned"


async def test_nobody_waits_out_a_pause_between_two_attempts() -> None:
    turns = [Fail(429, "slow down", retry_after=100), Say("never")]
    async with scripted("openai-completions", turns, max_retries=1) as test:
        is_told = anyio.Event()

        async def ask() -> None:
            async with test.provider.stream(HELLO) as events:
                async for event in events:
                    assert isinstance(event, Retrying)
                    is_told.set()

        with anyio.fail_after(WAIT_SECONDS):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ask)
                await is_told.wait()
                tasks.cancel_scope.cancel()

    assert len(test.server.requests) == 1


async def test_many_are_answered_at_once_each_with_its_own() -> None:
    async with scripted("openai-completions", lambda request: Say(request.prompt)) as test:
        answers: dict[str, str] = {}

        async def ask(text: str) -> None:
            request = ModelRequest(instructions="", messages=[user_message(text)])
            async with test.provider.stream(request) as events:
                async for event in events:
                    if isinstance(event, TextDelta):
                        answers[text] = answers.get(text, "") + event.text

        with anyio.fail_after(WAIT_SECONDS):
            async with anyio.create_task_group() as tasks:
                for number in range(20):
                    tasks.start_soon(ask, f"number {number}")

    assert answers == {f"number {number}": f"number {number}" for number in range(20)}


async def test_a_call_whose_name_is_missing_can_be_told_by_the_reason_of_the_end() -> None:
    chunk = '{{"id":"x","object":"chat.completion.chunk","created":1,"model":"m","choices":[{}]}}'
    call = '{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c","function":{"arguments":"{}"}}]}}'
    end = '{"index":0,"delta":{},"finish_reason":"tool_calls"}'
    sent = [Raw(f"data: {chunk.format(choice)}\n\n") for choice in (call, end)]
    async with scripted("openai-completions", [[*sent, Raw("data: [DONE]\n\n")]]) as test:
        answer = await test.ask()
    assert (answer.parts, answer.finish_reason) == ((), "tool_calls")
