"""The routes under `/v1` in the OpenAPI document."""

from typing import Any

from tests.gateway.openai.conftest import OpenWorld


async def test_the_document_has_the_requests_and_all_answers(open_openai: OpenWorld) -> None:
    async with open_openai() as world:
        document: dict[str, Any] = await world.world.get("/openapi.json")
    routes = {
        (method, path): route
        for path, methods in document["paths"].items()
        if path.startswith("/v1/")
        for method, route in methods.items()
    }
    assert set(routes) == {
        ("get", "/v1/models"),
        ("get", "/v1/models/{model}"),
        ("post", "/v1/chat/completions"),
        ("post", "/v1/responses"),
        ("get", "/v1/responses/{response_id}"),
        ("post", "/v1/responses/{response_id}/cancel"),
    }
    schemas = document["components"]["schemas"]
    for path, name in (
        ("/v1/chat/completions", "ChatCompletionRequest"),
        ("/v1/responses", "ResponsesRequest"),
    ):
        route = routes["post", path]
        body = route["requestBody"]["content"]["application/json"]["schema"]
        assert body["$ref"].endswith(f"/{name}")
        assert set(route["responses"]["200"]["content"]) == {
            "application/json",
            "text/event-stream",
        }
    assert "messages" in schemas["ChatCompletionRequest"]["required"]
    for route in routes.values():
        failed = route["responses"]["401"]["content"]["application/json"]["schema"]
        assert failed["$ref"].endswith("/OpenAiErrorResponse")
