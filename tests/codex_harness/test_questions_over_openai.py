"""Questions of an agent in Codex to clients of the OpenAI-compatible APIs."""

from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from nacre.bootstrap import open_system
from nacre.gateway.app import create_app
from nacre.json_types import JsonObject
from nacre.testing import Call, RecordedRequest, Say, ScriptedProvider
from nacre.testing.http_server import serving
from nacre.testing.script import PlainTurn
from tests.codex_harness.codex_setup import codex_document, read_config
from tests.contract.requirements import requirement

pytestmark = pytest.mark.anyio

TOKEN = "0123456789abcdef-test"
QUESTION: JsonObject = {
    "id": "name",
    "header": "Name",
    "question": "Whose is it?",
    "options": [{"label": "Eve", "description": "the first one"}],
}


def answer(request: RecordedRequest) -> PlainTurn:
    """Ask a question, then say what Codex gave as its answer."""
    is_answered = request.messages[-1].role == "tool"
    return (
        Say(request.tool_results[-1])
        if is_answered
        else Call("request_user_input", {"questions": [QUESTION]})
    )


@pytest.fixture(scope="module")
async def client(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[httpx2.AsyncClient]:
    folder = tmp_path_factory.mktemp("questions")
    async with ScriptedProvider(answer) as provider:
        document = codex_document(provider.openai_url, gateway={"auth": {"token": TOKEN}})
        config = await read_config(document, folder)
        headers = {"authorization": f"Bearer {TOKEN}"}
        async with (
            open_system(config, workers=1) as system,
            serving(create_app(system)) as url,
            httpx2.AsyncClient(base_url=url, headers=headers, timeout=60) as client,
        ):
            yield client


async def post(client: httpx2.AsyncClient, path: str, body: JsonObject, **options: Any) -> Any:
    response = await client.post(path, json={"model": "nacre", **body}, **options)
    assert response.status_code == 200, response.text
    return response.json()


def chat(text: str) -> JsonObject:
    return {"messages": [{"role": "user", "content": text}], "temperature": 0.5}


@requirement("codex:user-input")
async def test_the_question_ends_the_answer_and_the_next_message_continues_the_run(
    client: httpx2.AsyncClient,
) -> None:
    path, headers = "/v1/chat/completions", {"x-nacre-session-key": "painter"}
    asked = await post(client, path, chat("paint it"), headers=headers)
    assert asked["choices"][0]["message"]["content"].startswith("[Name] Whose is it?")
    answered = await post(client, path, chat("Ada"), headers=headers)
    text = '{"answers":{"name":{"answers":["Ada"]}}}'
    assert answered["choices"][0]["message"]["content"] == text
    assert asked["id"] != answered["id"]

    path = "/v1/responses"
    first = await post(client, path, {"input": "paint it"})
    assert first["output"][0]["content"][0]["text"].startswith("[Name] Whose is it?")
    second = await post(client, path, {"input": "Bob", "previous_response_id": first["id"]})
    assert "Bob" in second["output"][0]["content"][0]["text"]
    assert first["id"] != second["id"]


async def test_a_client_without_a_session_is_not_asked(client: httpx2.AsyncClient) -> None:
    answered = await post(client, "/v1/chat/completions", chat("paint it"))
    assert answered["choices"][0]["message"]["content"] == '{"answers":{}}'
