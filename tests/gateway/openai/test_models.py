"""What `model` means: agents and models by name."""

from typing import Any

import openai
import pytest

from nacre.testing import Say
from tests.gateway.openai.conftest import OpenWorld

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
