"""Chat Completions without an SDK: servers that deviate from OpenAI's."""

import json
from collections.abc import Sequence
from typing import Any, cast

import pytest

from nacre.errors import ProviderError
from nacre.json_types import JsonObject, JsonValue
from nacre.messages import (
    AssistantMessage,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolMessage,
    Usage,
    user_message,
)
from nacre.providers.base import ModelSettings, TextDelta, ThinkingDelta, ToolCallDelta
from nacre.testing import Call, Fail, Raw, Say, Think
from tests.providers.asking import WEATHER, Scripted, scripted

END: JsonObject = {"delta": {}, "finish_reason": "stop"}


def chunk(choice: JsonObject | None, **members: JsonValue) -> str:
    choices = [] if choice is None else [choice]
    return json.dumps({"object": "chat.completion.chunk", "choices": choices, **members})


async def answer_of(test: Scripted) -> AssistantMessage:
    return await test.ask(tools=[WEATHER])


async def read(chunks: Sequence[str], *, events: list[Any] | None = None) -> AssistantMessage:
    """The answer whose stream consists of these chunks."""
    turn = [Raw(f"data: {each}\n\n") for each in (*chunks, "[DONE]")]
    async with scripted("openai-completions", [turn]) as test:
        answer = await answer_of(test)
    if events is not None:
        events.extend(test.events)
    return answer


def delta(**members: JsonValue) -> str:
    return chunk({"delta": members, "finish_reason": None})


def call_delta(**members: JsonValue) -> str:
    return delta(tool_calls=[members])


def sent_messages(test: Scripted, number: int = 0) -> list[JsonObject]:
    return cast("list[JsonObject]", test.server.requests[number].body["messages"])


async def test_text_that_arrives_as_a_list_of_parts_is_joined() -> None:
    parts: list[JsonValue] = [{"type": "text", "text": "to"}, {"type": "reference"}, "day"]
    answer = await read([delta(content=parts), chunk(END)])
    assert answer.text == "today"


async def test_chunks_without_choices_or_delta_are_skipped() -> None:
    empty = chunk(None, choices=None)
    answer = await read([empty, chunk({"delta": None}), delta(content="hi"), chunk(END)])
    assert answer.text == "hi"


async def test_thinking_within_tags_is_told_apart_from_text() -> None:
    events: list[Any] = []
    texts = ["<think>", "let me ", "see", "</think>", "four"]
    answer = await read([*(delta(content=text) for text in texts), chunk(END)], events=events)

    assert [type(each) for each in answer.parts] == [ThinkingPart, TextPart]
    assert cast("ThinkingPart", answer.parts[0]).text == "let me see"
    assert answer.text == "four"
    assert [type(each) for each in events] == [ThinkingDelta, ThinkingDelta, TextDelta]


async def test_thinking_within_tags_goes_back_within_tags() -> None:
    thought = ThinkingPart(text="hm", details={"id": "content", "provider": "openai"})
    history = [
        user_message("2 + 2?"),
        AssistantMessage(parts=(thought, TextPart(text="four")), model="test/scripted"),
        user_message("sure?"),
    ]
    async with scripted("openai-completions", [Say("yes")]) as test:
        await test.ask(history)
    assert sent_messages(test)[1]["content"] == "<think>\nhm\n</think>\n\nfour"


async def test_thinking_goes_back_in_the_member_that_it_came_in() -> None:
    turns = [[Think("hm"), Call("weather", {"town": "Ulm"}, "one")], Say("sun")]
    async with scripted("openai-completions", turns) as test:
        answer = await answer_of(test)
        result = ToolMessage(call_id="one", name="weather", content="sun")
        # A call of another model in the same turn, which has no thinking.
        other = AssistantMessage(
            parts=(ToolCallPart(call_id="two", name="weather", arguments="{}"),), model="else/where"
        )
        last = ToolMessage(call_id="two", name="weather", content="rain")
        await test.ask([user_message("hi"), answer, result, other, last], tools=[WEATHER])

    messages = sent_messages(test, 1)
    assert messages[1]["reasoning_content"] == "hm"
    assert messages[3]["reasoning_content"] == ""


async def test_a_refusal_is_filtered_content() -> None:
    answer = await read([delta(refusal="I cannot do that."), chunk(END)])
    assert (answer.parts, answer.finish_reason) == ((), "content_filter")


async def test_calls_without_an_index_are_told_apart() -> None:
    events: list[Any] = []
    chunks = [
        call_delta(id="a", function={"name": "weather", "arguments": '{"town":'}),
        call_delta(function={"arguments": '"Ulm"}'}),
        call_delta(id="b", function={"name": "weather", "arguments": "{}"}),
        chunk(END),
    ]
    answer = await read(chunks, events=events)
    assert [(call.call_id, call.arguments) for call in answer.tool_calls] == [
        ("a", '{"town":"Ulm"}'),
        ("b", "{}"),
    ]
    assert answer.finish_reason == "tool_calls"
    assert all(isinstance(event, ToolCallDelta) and event.name == "weather" for event in events)


async def test_calls_with_the_same_index_are_told_apart_by_their_ids() -> None:
    chunks = [
        call_delta(index=0, id=call_id, function={"name": "weather", "arguments": "{}"})
        for call_id in ("a", "b")
    ]
    answer = await read([*chunks, chunk(END)])
    assert [(call.call_id, call.name) for call in answer.tool_calls] == [
        ("a", "weather"),
        ("b", "weather"),
    ]


async def test_a_repeated_name_and_arguments_as_an_object_are_understood() -> None:
    chunks = [
        call_delta(index=0, id="a", function={"name": "weather", "arguments": None}),
        call_delta(index=0, id="a", function={"name": "weather", "arguments": {"town": "Ulm"}}),
        chunk(END),
    ]
    (call,) = (await read(chunks)).tool_calls
    assert (call.name, call.arguments) == ("weather", '{"town":"Ulm"}')


async def test_a_call_without_an_id_gets_one_of_its_own() -> None:
    chunks = [call_delta(index=0, function={"name": "weather", "arguments": "{}"}), chunk(END)]
    (first,) = (await read(chunks)).tool_calls
    (second,) = (await read(chunks)).tool_calls
    assert first.call_id
    assert first.call_id != second.call_id


async def test_the_signature_of_a_call_goes_back_with_it() -> None:
    signature: JsonObject = {"google": {"thought_signature": "sealed"}}
    first: JsonObject = {"name": "weather", "arguments": "{}"}
    signed = call_delta(index=0, id="a", function=first, extra_content=signature)
    turn = [Raw(f"data: {each}\n\n") for each in (signed, chunk(END), "[DONE]")]
    async with scripted("openai-completions", [turn, Say("ok")]) as test:
        answer = await answer_of(test)
        result = ToolMessage(call_id="a", name="weather", content="sun")
        await test.ask([user_message("hi"), answer, result], tools=[WEATHER])
    (call,) = cast("list[JsonObject]", sent_messages(test, 1)[1]["tool_calls"])
    assert call["extra_content"] == signature


@pytest.mark.parametrize(
    ("written", "sent"),
    [
        ("", "{}"),
        ('{ "town" : "Ulm" }', '{"town":"Ulm"}'),
        ('{"town": ', '{"INVALID_JSON":"{\\"town\\": "}'),
        ("[1]", '{"INVALID_JSON":"[1]"}'),
    ],
)
async def test_arguments_go_back_as_an_object(written: str, sent: str) -> None:
    call = ToolCallPart(call_id="a", name="weather", arguments=written)
    history = [
        user_message("hi"),
        AssistantMessage(parts=(call,), model="test/scripted"),
        ToolMessage(call_id="a", name="weather", content="?"),
    ]
    async with scripted("openai-completions", [Say("ok")]) as test:
        await test.ask(history, tools=[WEATHER])
    (made,) = cast("list[JsonObject]", sent_messages(test)[1]["tool_calls"])
    assert made["function"] == {"name": "weather", "arguments": sent}


async def test_the_last_usage_counts() -> None:
    first: JsonObject = {"prompt_tokens": 5, "completion_tokens": 1}
    last: JsonObject = {"prompt_tokens": 5, "completion_tokens": 9, "prompt_cache_hit_tokens": 3}
    answer = await read(
        [delta(content="hi"), chunk(END, usage=first), chunk(None, usage=last, model="m-1")]
    )
    assert answer.usage == Usage(input_tokens=5, output_tokens=9, cached_tokens=3)


@pytest.mark.parametrize(("model", "is_sent"), [("gpt-5", False), ("gpt-5.4", True), ("o3", False)])
async def test_a_model_that_reasons_gets_no_temperature(model: str, is_sent: bool) -> None:
    async with scripted("openai-completions", [Say("ok")]) as test:
        settings = ModelSettings(temperature=0.5)
        await test.ask(settings=settings, provider=test.providers.get(f"test/{model}"))
    assert ("temperature" in test.server.requests[0].body) == is_sent


async def test_a_stream_without_a_reason_of_its_end_is_incomplete() -> None:
    with pytest.raises(ProviderError, match="the response is incomplete") as caught:
        await read([delta(content="Once upon a")])
    assert caught.value.is_retryable


async def test_events_may_be_cut_anywhere_and_end_with_carriage_returns() -> None:
    stream = f": comment\r\ndata: {delta(content='hi ü')}\r\n\r\ndata: {chunk(END)}\r\n\r\n"
    # A stream of single characters, without an empty line at the end.
    pieces = [Raw(each) for each in f"{stream}data: [DONE]"]
    async with scripted("openai-completions", [pieces]) as test:
        answer = await test.ask()
    assert answer.text == "hi ü"


@pytest.mark.parametrize(
    ("error", "status", "is_retryable", "is_overflow"),
    [
        ({"message": "slow down", "code": "rate_limit_exceeded"}, 429, True, False),
        ({"message": "no credit", "type": "insufficient_quota"}, 429, False, False),
        ({"message": "bad gateway", "code": 502}, 502, True, False),
        ({"message": "This model's maximum context length is 8"}, 0, False, True),
        ({"message": "busy", "type": "overloaded_error"}, 0, True, False),
        ("broken", 0, False, False),
    ],
)
async def test_an_error_within_a_stream_is_handled_as_its_code_says(
    error: JsonValue, status: int, is_retryable: bool, is_overflow: bool
) -> None:
    with pytest.raises(ProviderError) as caught:
        await read([json.dumps({"error": error})])
    found = caught.value
    assert (found.status, found.is_retryable, found.is_context_overflow) == (
        status,
        is_retryable,
        is_overflow,
    )


@pytest.mark.parametrize("message", ["maximum context length is 4096", "context_length_exceeded"])
async def test_an_overflow_is_recognized_by_code_or_text(message: str) -> None:
    code = message if "_" in message else None
    async with scripted("openai-completions", [Fail(400, message, code=code or "")]) as test:
        with pytest.raises(ProviderError) as caught:
            await test.ask()
    assert caught.value.is_context_overflow
