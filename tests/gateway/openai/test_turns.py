"""Requests of OpenAI clients as turns: models and conversations."""

from typing import Any

import openai
import pytest

from nacre.gateway.openai.turns import ConversationBuilder
from nacre.messages import (
    AssistantMessage,
    SystemMessage,
    TextPart,
    ToolCallPart,
    ToolMessage,
    user_message,
)
from nacre.testing import Say
from tests.gateway.openai.conftest import OpenWorld


def call(call_id: str) -> ToolCallPart:
    return ToolCallPart(call_id=call_id, name="f", arguments="{}")


def result(call_id: str, content: str) -> ToolMessage:
    return ToolMessage(call_id=call_id, name="f", content=content)


def test_parts_of_an_answer_are_one_message_until_something_else_comes() -> None:
    builder = ConversationBuilder()
    builder.user([TextPart(text="go")])
    builder.assistant([TextPart(text="I look.")])
    builder.assistant([call("a")])
    builder.result("a", "1")
    builder.assistant([call("b")])
    built = builder.build()
    assert built.messages == (
        user_message("go"),
        AssistantMessage(parts=(TextPart(text="I look."), call("a"))),
        result("a", "1"),
        AssistantMessage(parts=(call("b"),)),
    )


def test_results_stand_after_their_calls_in_the_order_of_the_calls() -> None:
    builder = ConversationBuilder()
    builder.assistant([call("a"), call("b")])
    builder.user([TextPart(text="and?")])
    builder.result("b", "2")
    builder.result("a", "1")
    assert builder.build().messages[1:] == (
        result("a", "1"),
        result("b", "2"),
        user_message("and?"),
    )


def test_an_id_that_is_used_again_has_its_results_in_order() -> None:
    builder = ConversationBuilder()
    for text in ("first", "second"):
        builder.assistant([call("a")])
        builder.result("a", text)
    built = builder.build()
    assert built.messages[1::2] == (result("a", "first"), result("a", "second"))
    assert (built.results, built.unplaced) == ({"a": "second"}, ())


def test_results_without_a_call_are_named() -> None:
    builder = ConversationBuilder()
    builder.user([TextPart(text="hm")])
    builder.result("a", "1")
    built = builder.build()
    assert (built.unplaced, built.results) == (("a",), {"a": "1"})
    assert built.messages == (user_message("hm"),)


def test_what_is_said_after_the_last_result_is_told_apart() -> None:
    builder = ConversationBuilder()
    builder.user([TextPart(text="before")])
    builder.result("a", "1")
    assert builder.build().message_after_results is None
    builder.user([TextPart(text="after")])
    assert builder.build().message_after_results == user_message("after")


def test_what_ends_with_no_word_of_a_person_has_nothing_to_answer() -> None:
    builder = ConversationBuilder()
    builder.user([TextPart(text="hm")])
    builder.system("Be brief.")
    built = builder.build()
    assert built.last_user_message is None
    assert built.earlier == (user_message("hm"), SystemMessage(text="Be brief."))


TWO_AGENTS: dict[str, Any] = {
    "agents": {
        "list": [
            {"id": "main", "default": True, "instructions": "You are the first."},
            {"id": "Poet", "model": "scripted/verse", "instructions": "You are the second."},
        ]
    }
}


async def test_agents_and_models_are_listed(open_openai: OpenWorld) -> None:
    async with open_openai(document=TWO_AGENTS) as world:
        listed = [model.id async for model in await world.client.models.list()]
        assert listed[:3] == ["nacre", "nacre/main", "nacre/Poet"]
        assert "demo/demo" in listed
        whole = await world.world.get("/v1/models")
        assert "scripted" in whole["openProviders"]
        one = await world.client.models.retrieve("nacre/Poet")
        assert (one.id, one.object, one.owned_by) == ("nacre/Poet", "model", "nacre")


@pytest.mark.parametrize(
    ("name", "instructions", "model"),
    [
        ("nacre", "You are the first.", "model"),
        ("nacre/main", "You are the first.", "model"),
        ("nacre/poet", "You are the second.", "verse"),
        ("agent:Poet", "You are the second.", "verse"),
        ("scripted/prose", "You are the first.", "prose"),
    ],
)
async def test_a_name_stands_for_an_agent_or_for_a_model_of_the_default_one(
    open_openai: OpenWorld, name: str, instructions: str, model: str
) -> None:
    async with open_openai([Say("hi")], TWO_AGENTS) as world:
        answer = await world.chat(model=name)
        (request,) = world.model.requests
    assert answer.model == name
    assert instructions in request.instructions
    assert request.model == model


async def test_a_name_that_stands_for_nothing_is_not_found(open_openai: OpenWorld) -> None:
    async with open_openai(document=TWO_AGENTS) as world:
        for name in ("gpt-6", "nacre/nobody", "agent:", "other/model", "x" * 10_000):
            with pytest.raises(openai.NotFoundError, match="nacre/Poet") as refused:
                await world.chat(model=name)
            assert (refused.value.code, refused.value.param) == ("model_not_found", "model")
            assert "and any model of scripted" in refused.value.message
            assert len(refused.value.message) < 1_000


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses", "/api/runs"])
async def test_a_model_whose_key_is_missing_is_refused_with_the_variable_to_set(
    open_openai: OpenWorld, path: str
) -> None:
    words = {"messages": [{"role": "user", "content": "hi"}]}
    body = {"/v1/chat/completions": words, "/v1/responses": {"input": "hi"}}.get(path)
    async with open_openai() as world:
        asked = {"model": "openai/gpt-6", **(body or {"text": "hi"})}
        answer = await world.world.client.post(path, json=asked)
        assert world.world.system.agents.runs() == []
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (400, "missing_secret")
    assert "OPENAI_API_KEY" in error["message"]
