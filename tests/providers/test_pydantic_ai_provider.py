"""Answers of models over the real wire formats: what is sent, with and without an SDK, and read."""

import base64
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, cast

import anthropic
import openai
import pytest

from nacre.config.models import ModelConfig, ProviderApi
from nacre.errors import ProviderError
from nacre.json_types import JsonObject, JsonValue, encode_json
from nacre.messages import (
    AssistantMessage,
    ImagePart,
    SystemMessage,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolMessage,
    Usage,
    UserMessage,
    user_message,
)
from nacre.providers.base import ModelSettings, TextDelta, ThinkingDelta, ToolCallDelta
from nacre.providers.pydantic_ai_provider import send_plainly
from nacre.testing import Call, End, Say, ScriptedProvider, Think
from tests.providers.asking import API_KEY, SCRIPTED_APIS, WEATHER, Scripted, scripted

every_api = pytest.mark.parametrize("api", SCRIPTED_APIS)


def deltas_of(scripted: Scripted, kind: type[TextDelta] | type[ThinkingDelta]) -> list[str]:
    return [event.text for event in scripted.events if isinstance(event, kind)]


def objects(value: JsonValue) -> list[JsonObject]:
    return cast("list[JsonObject]", value)


@every_api
async def test_an_answer_is_streamed_word_by_word_and_given_whole_at_the_end(
    api: ProviderApi,
) -> None:
    usage = Usage(input_tokens=100, output_tokens=7, cached_tokens=40)
    async with scripted(api, [[Say("Good morning to you"), End(usage=usage)]]) as test:
        answer = await test.ask()

    assert deltas_of(test, TextDelta) == ["Good ", "morning ", "to ", "you"]
    assert answer.text == "Good morning to you"
    assert answer.model == "test/scripted"
    assert answer.finish_reason == "stop"
    assert answer.usage == usage


@every_api
async def test_the_key_the_instructions_and_the_settings_reach_the_provider(
    api: ProviderApi,
) -> None:
    settings = ModelSettings(max_tokens=321, temperature=0.25, top_p=0.5, is_parallel=False)
    async with scripted(api, [Say("yes")], headers={"x-org": "acme-org"}) as test:
        await test.ask("hi", instructions="Be brief.", tools=[WEATHER], settings=settings)

    request = test.server.requests[0]
    assert API_KEY in f"{request.headers.get('authorization')} {request.headers.get('x-api-key')}"
    assert request.headers["x-org"] == "acme-org"
    assert request.body.get("temperature") == 0.25
    assert request.body.get("top_p") == 0.5
    limits = ("max_tokens", "max_completion_tokens", "max_output_tokens")
    assert [request.body[key] for key in limits if key in request.body] == [321]
    choice = request.body.get("tool_choice")
    serial = request.body.get("parallel_tool_calls") is False
    assert serial or (isinstance(choice, dict) and choice.get("disable_parallel_tool_use") is True)


async def test_the_configuration_limits_an_answer_that_nobody_else_limits() -> None:
    models = {"scripted": ModelConfig(id="scripted", name="Scripted", max_output_tokens=77)}
    async with scripted("anthropic-messages", [Say("a"), Say("b")], models=models) as test:
        await test.ask()
        await test.ask(settings=ModelSettings(max_tokens=5))

    assert [request.body.get("max_tokens") for request in test.server.requests] == [77, 5]


@every_api
async def test_calls_made_at_once_are_told_apart(api: ProviderApi) -> None:
    calls = [Call("weather", {"town": "Ulm"}, "one"), Call("weather", {"town": "Bonn"}, "two")]
    async with scripted(api, [calls]) as test:
        answer = await test.ask(tools=[WEATHER])

    assert answer.finish_reason == "tool_calls"
    assert [(call.call_id, call.name, call.arguments) for call in answer.tool_calls] == [
        ("one", "weather", '{"town":"Ulm"}'),
        ("two", "weather", '{"town":"Bonn"}'),
    ]
    streamed = {"one": "", "two": ""}
    for event in test.events:
        assert isinstance(event, ToolCallDelta)
        assert event.name == "weather"
        streamed[event.call_id] += event.arguments
    assert streamed == {"one": '{"town":"Ulm"}', "two": '{"town":"Bonn"}'}


@every_api
async def test_calls_of_one_id_get_an_id_each(api: ProviderApi) -> None:
    turn = [Call("weather", {"town": town}, call_id="same") for town in ("Bern", "Rome", "Oslo")]
    async with scripted(api, [turn]) as test:
        answer = await test.ask(tools=[WEATHER])

    assert [call.call_id for call in answer.tool_calls] == ["same", "same-2", "same-3"]


@every_api
async def test_tokens_that_nobody_could_count_are_not_believed(api: ProviderApi) -> None:
    claimed = Usage(input_tokens=10**30, output_tokens=5)
    async with scripted(api, [[Say("hello"), End(usage=claimed)]]) as test:
        answer = await test.ask()

    assert answer.usage == Usage(input_tokens=10**12, output_tokens=5)


@every_api
async def test_broken_arguments_are_passed_on_as_the_model_wrote_them(api: ProviderApi) -> None:
    async with scripted(api, [Call("weather", '{"town": '), Say("sorry")]) as test:
        answer = await test.ask(tools=[WEATHER])
        call = answer.tool_calls[0]
        result = ToolMessage(call_id=call.call_id, name=call.name, content="what?", is_error=True)
        again = await test.ask([user_message("hi"), answer, result], tools=[WEATHER])

    assert call.arguments == '{"town": '
    assert again.text == "sorry"


@every_api
async def test_a_schema_is_sent_as_it_is(api: ProviderApi) -> None:
    async with scripted(api, [Say("ok")]) as test:
        await test.ask(tools=[WEATHER])

    tool = objects(test.server.requests[0].body["tools"])[0]
    function = cast("JsonObject", tool.get("function", tool))
    assert function.get("parameters", function.get("input_schema")) == WEATHER.parameters
    assert not function.get("strict")


@every_api
async def test_results_and_errors_of_calls_are_sent_back(api: ProviderApi) -> None:
    called = AssistantMessage(
        parts=(
            ToolCallPart(call_id="a", name="weather", arguments='{"town":"Ulm"}'),
            ToolCallPart(call_id="b", name="weather", arguments=""),
        ),
        model="test/scripted",
        finish_reason="tool_calls",
    )
    history = [
        SystemMessage(text="Earlier, rain was discussed."),
        user_message("weather?"),
        called,
        ToolMessage(call_id="a", name="weather", content='{"sun":true}'),
        ToolMessage(call_id="b", name="weather", content='{"no":"town"}', is_error=True),
        user_message("go on"),
    ]
    async with scripted(api, [Say("ok")]) as test:
        await test.ask(history, instructions="Be brief.", tools=[WEATHER])

    request = test.server.requests[0]
    assert request.tool_results == ('{"sun":true}', '{"no":"town"}')
    assert "Be brief." in request.instructions
    assert "Earlier, rain was discussed." in request.instructions
    assert request.prompt == "go on"


GIF = ImagePart(url="data:image/gif;base64,R0lGODlh")
CALLED = AssistantMessage(
    parts=(
        ToolCallPart(call_id="a", name="weather", arguments="{}"),
        ToolCallPart(call_id="b", name="weather", arguments="{}"),
    ),
    model="test/scripted",
)
WITH_IMAGE = [
    user_message("hi"),
    CALLED,
    ToolMessage(call_id="a", name="weather", content='{"map":1}', images=(GIF, GIF)),
    ToolMessage(call_id="b", name="weather", content="none"),
]


@every_api
async def test_the_images_of_a_result_reach_the_model_as_images(api: ProviderApi) -> None:
    async with scripted(api, [Say("ok")]) as test:
        await test.ask(WITH_IMAGE, tools=[WEATHER])

    body = test.server.requests[0].body
    match api:
        case "anthropic-messages":
            result, _ = objects(objects(body["messages"])[-1]["content"])
            text, image, _ = objects(result["content"])
            assert image["source"] == {
                "type": "base64", "media_type": "image/gif", "data": "R0lGODlh"
            }  # fmt: skip
        case "openai-responses":
            result = objects(body["input"])[-2]
            text, image, _ = objects(result["output"])
            assert (image["type"], image["image_url"]) == ("input_image", GIF.url)
        case _:
            # Results of this API are text, and have to follow each other.
            first, second, images = objects(body["messages"])[-3:]
            assert (first["content"], second["content"]) == ('{"map":1}', "none")
            text, image, _ = objects(images["content"])
            assert image["image_url"] == {"url": GIF.url}
            assert text["text"] == "Images in the result of weather (a):"
            return
    assert text["text"] == '{"map":1}'


@every_api
async def test_a_model_that_takes_only_text_is_told_of_the_images(api: ProviderApi) -> None:
    models = {"scripted": ModelConfig(id="scripted", name="Scripted", takes_images=False)}
    async with scripted(api, [Say("ok")], models=models) as test:
        await test.ask(WITH_IMAGE, tools=[WEATHER])

    request = test.server.requests[0]
    assert "R0lGODlh" not in encode_json(request.body).decode()
    note = "[2 images left out: this model takes only text]"
    assert request.tool_results == (f'{{"map":1}}\n{note}', "none")


async def test_anthropic_is_told_which_result_is_an_error() -> None:
    called = AssistantMessage(
        parts=(ToolCallPart(call_id="a", name="weather", arguments="{}"),), model="test/scripted"
    )
    result = ToolMessage(call_id="a", name="weather", content="no town", is_error=True)
    async with scripted("anthropic-messages", [Say("ok")]) as test:
        await test.ask([user_message("hi"), called, result], tools=[WEATHER])

    last = objects(test.server.requests[0].body["messages"])[-1]
    assert objects(last["content"])[0]["is_error"] is True


@every_api
async def test_thoughts_are_streamed_apart_from_what_is_said(api: ProviderApi) -> None:
    async with scripted(api, [[Think("let me see"), Say("four")]]) as test:
        answer = await test.ask("2 + 2?")

    assert "".join(deltas_of(test, ThinkingDelta)) == "let me see"
    assert deltas_of(test, TextDelta) == ["four"]
    assert answer.text == "four"
    thought = answer.parts[0]
    assert isinstance(thought, ThinkingPart)
    assert thought.text == "let me see"


async def test_anthropic_gets_its_signed_thoughts_back() -> None:
    turns = [[Think("hm", "signed-7"), Say("four")], Say("sure")]
    async with scripted("anthropic-messages", turns) as test:
        answer = await test.ask("2 + 2?")
        await test.ask([user_message("2 + 2?"), answer, user_message("sure?")])

    assistant = objects(test.server.requests[1].body["messages"])[1]
    assert objects(assistant["content"])[0] == {
        "type": "thinking",
        "thinking": "hm",
        "signature": "signed-7",
    }


async def test_openai_gets_its_encrypted_reasoning_back_and_stores_nothing() -> None:
    turns = [[Think("hm", "sealed-7"), Say("four")], Say("sure")]
    async with scripted("openai-responses", turns) as test:
        reasoner = test.providers.get("test/gpt-5")
        answer = await test.ask("2 + 2?", provider=reasoner)
        history = [user_message("2 + 2?"), answer, user_message("sure?")]
        await test.ask(history, provider=reasoner)

    body = test.server.requests[1].body
    reasoning = next(item for item in objects(body["input"]) if item.get("type") == "reasoning")
    assert reasoning["encrypted_content"] == "sealed-7"
    assert body["store"] is False


async def test_a_model_that_takes_no_thoughts_back_is_not_told_that_they_were_said() -> None:
    turns = [[Think("a secret plan"), Say("four")], Say("sure")]
    async with scripted("openai-responses", turns) as test:
        answer = await test.ask("2 + 2?")
        await test.ask([user_message("2 + 2?"), answer, user_message("sure?")])

    assert "a secret plan" not in str(test.server.requests[1].body)


@every_api
async def test_what_another_provider_thought_and_noted_stays_with_it(api: ProviderApi) -> None:
    foreign = AssistantMessage(
        parts=(
            ThinkingPart(text="a foreign thought", details={"signature": "foreign-seal"}),
            TextPart(text="four", details={"id": "foreign-id"}),
        ),
        model="elsewhere/model",
    )
    only_thought = AssistantMessage(
        parts=(ThinkingPart(text="a foreign thought"),), model="elsewhere/model"
    )
    history = [user_message("2 + 2?"), foreign, user_message("?"), only_thought, user_message("!")]
    async with scripted(api, [Say("ok")]) as test:
        await test.ask(history)

    sent = str(test.server.requests[0].body)
    assert "four" in sent
    assert "foreign" not in sent


@every_api
async def test_images_are_sent_with_the_words_around_them(api: ProviderApi) -> None:
    pixel = base64.b64encode(b"not really a picture").decode()
    message = UserMessage(
        parts=(
            TextPart(text="what is this?"),
            ImagePart(url=f"data:image/png;base64,{pixel}"),
            ImagePart(url="https://example.org/cat.png"),
        )
    )
    async with scripted(api, [Say("a cat")]) as test:
        await test.ask([message])

    sent = str(test.server.requests[0].body)
    assert pixel in sent
    assert "https://example.org/cat.png" in sent
    assert "what is this?" in sent


@pytest.mark.parametrize("url", ["file:///etc/passwd", "http://a.org/x.png", "data:nothing", "x"])
async def test_an_image_with_another_address_is_refused(url: str) -> None:
    async with scripted("openai-completions", [Say("never")]) as test:
        with pytest.raises(ProviderError, match="an image has the URL"):
            await test.ask([UserMessage(parts=(ImagePart(url=url),))])

    assert test.server.requests == []


@every_api
@pytest.mark.parametrize("reason", ["length", "content_filter"])
async def test_the_reason_why_an_answer_ended_is_kept(api: ProviderApi, reason: str) -> None:
    end = End("length" if reason == "length" else "content_filter")
    async with scripted(api, [[Say("and then"), end]]) as test:
        answer = await test.ask()

    assert answer.finish_reason == reason
    assert answer.text == "and then"


@every_api
async def test_text_that_is_no_unicode_does_not_break_a_session(api: ProviderApi) -> None:
    half = chr(0xD83D)
    called = AssistantMessage(
        parts=(
            TextPart(text=half),
            ToolCallPart(call_id="a", name="weather", arguments=f'{{"town":"{half}"}}'),
        ),
        model="test/scripted",
    )
    history = [
        SystemMessage(text=half),
        user_message(f"a{half}b"),
        called,
        ToolMessage(call_id="a", name="weather", content=half),
    ]
    async with scripted(api, [Say("ok")]) as test:
        answer = await test.ask(history, tools=[WEATHER])

    assert answer.text == "ok"
    assert test.server.requests[0].prompt == "a\ufffdb"


SCHEMA = {"type": "object", "properties": {"code": {"type": "string"}}}
CALL = {"id": "c1", "type": "function", "function": {"name": "exec", "arguments": "{}"}}
CHAT: dict[str, Any] = {
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "hi"}]},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "done"},
    ],
    "tools": [{"type": "function", "function": {"name": "exec", "parameters": SCHEMA}}],
    "temperature": 0.5,
    "extra_body": {"seen": True},
}
RESPONSES: dict[str, Any] = {
    "input": [{"role": "user", "content": [{"type": "input_text", "text": "hi"}]}],
    "tools": [{"type": "function", "name": "exec", "parameters": SCHEMA, "strict": False}],
}
MESSAGES: dict[str, Any] = {
    "max_tokens": 10,
    "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}],
    "tools": [{"name": "exec", "input_schema": SCHEMA}],
}


class Clients:
    """The official ones, for a scripted provider."""

    def __init__(self, provider: ScriptedProvider) -> None:
        self.openai = openai.AsyncOpenAI(api_key="x", base_url=provider.openai_url)
        self.anthropic = anthropic.AsyncAnthropic(api_key="x", base_url=provider.url)

    def resource(self, door: str) -> Any:
        match door:
            case "chat":
                return self.openai.chat.completions
            case "responses":
                return self.openai.responses
            case _:
                return self.anthropic.beta.messages


@asynccontextmanager
async def clients_of(provider: ScriptedProvider) -> AsyncGenerator[Clients]:
    clients = Clients(provider)
    async with clients.openai, clients.anthropic:
        yield clients


@pytest.mark.parametrize(
    ("door", "conversation", "options"),
    [
        ("chat", "messages", CHAT),
        ("responses", "input", RESPONSES),
        ("messages", "messages", MESSAGES),
    ],
)
async def test_what_arrives_is_what_the_sdk_would_have_sent(
    door: str, conversation: str, options: dict[str, Any]
) -> None:
    async with ScriptedProvider([Say("a"), Say("b")]) as provider, clients_of(provider) as clients:
        resource = clients.resource(door)
        await resource.create(model="m", **options)
        send_plainly(resource, conversation)
        await resource.create(model="m", **options)
        walked, sent = provider.requests
    assert sent.body == walked.body


async def test_the_sdk_does_not_look_at_what_is_plain() -> None:
    seen: list[dict[str, Any]] = []

    class Resource:
        """Notes what it is given."""

        async def create(self, **options: Any) -> None:
            seen.append(options)

    resource: Any = Resource()
    send_plainly(resource, "messages")
    await resource.create(model="m", messages=CHAT["messages"], tools=CHAT["tools"])
    assert seen == [
        {
            "model": "m",
            "messages": [],
            "extra_body": {"messages": CHAT["messages"], "tools": CHAT["tools"]},
        }
    ]


async def test_what_is_not_json_is_left_to_the_sdk() -> None:
    said = {"role": "user", "content": "hi", "name": openai.omit}
    async with ScriptedProvider([Say("a")]) as provider, clients_of(provider) as clients:
        resource = clients.resource("chat")
        send_plainly(resource, "messages")
        await resource.create(model="m", messages=[said])
        (request,) = provider.requests
    assert request.body["messages"] == [{"role": "user", "content": "hi"}]
