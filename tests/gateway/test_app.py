"""The application: its document and probes."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from nacre.errors import RuntimeUnavailableError
from nacre.sandbox.pool import Launcher
from tests.gateway.worlds import open_gateway

AGENTS = {
    "agents": {
        "list": [
            {"id": "main", "default": True},
            {"id": "careful", "name": "Careful", "tools": {"deny": ["write", "edit"]}},
        ]
    }
}


async def test_agents_models_tools_and_plugins_are_listed(tmp_path: Path) -> None:
    async with open_gateway(tmp_path, document=AGENTS) as world:
        agents = (await world.get("/api/agents"))["agents"]
        models = await world.get("/api/models")
        tools = (await world.get("/api/tools"))["tools"]
        careful = (await world.get("/api/tools", params={"agentId": "careful"}))["tools"]
        nobody = await world.client.get("/api/tools", params={"agentId": "nobody"})
        plugins = await world.get("/api/plugins")
    assert [(it["id"], it["isDefault"]) for it in agents] == [("main", True), ("careful", False)]
    assert "scripted" in models["openProviders"]
    # The model of an agent, though its provider has no list.
    assert "scripted/model" in [model["id"] for model in models["models"]]
    assert {"contextWindow", "maxTokens"} <= set(models["models"][0])
    assert {tool["name"] for tool in tools} - {tool["name"] for tool in careful} == {
        "write",
        "edit",
    }
    assert tools[0]["parameters"]["type"] == "object"
    assert nobody.status_code == 404
    assert plugins == {"plugins": []}


BEARER: list[dict[str, list[str]]] = [{"HTTPBearer": []}]
SIGN_IN_PATHS = ("/api/web/sign-in", "/api/web/sign-out", "/api/web/session")


async def test_the_document_describes_every_answer_and_who_may_ask(tmp_path: Path) -> None:
    async with open_gateway(tmp_path) as world:
        document = await world.get("/openapi.json")
    assert document["components"]["securitySchemes"]["HTTPBearer"]["scheme"] == "bearer"
    paths: dict[str, dict[str, Any]] = document["paths"]
    own = {path: it for path, it in paths.items() if path.startswith("/api")}
    assert len(own) >= 15
    for path, operations in own.items():
        for operation in operations.values():
            assert ("security" in operation) == (path not in SIGN_IN_PATHS), path
            assert operation.get("security", BEARER) == BEARER, path
            assert {"401", "422", "503"} <= set(operation["responses"]), path
            assert operation["description"], path
            error = operation["responses"]["401"]["content"]["application/json"]["schema"]
            assert error == {"$ref": "#/components/schemas/ErrorResponse"}, path
    asked = document["components"]["schemas"]["StartRunRequest"]
    assert asked["examples"]
    assert asked["properties"]["queueMode"]["description"]
    assert "security" not in paths["/healthz"]["get"]


async def test_the_document_names_operations_in_words(tmp_path: Path) -> None:
    async with open_gateway(tmp_path) as world:
        document = await world.get("/openapi.json")
    for path, operations in document["paths"].items():
        for operation in operations.values():
            # FastAPI would write the words of the function's name in title case.
            from_function = operation["operationId"].split("_api_")[0].replace("_", " ").title()
            assert operation["summary"] != from_function, path


async def test_a_gateway_whose_agents_need_a_missing_sandbox_is_not_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(launcher: Launcher) -> None:
        raise RuntimeUnavailableError("cannot write to /srv/cache")

    monkeypatch.setattr(Launcher, "launch", fail)
    async with open_gateway(tmp_path, document={"tools": {"codeMode": True}}) as world:
        with pytest.raises(RuntimeUnavailableError):
            await world.system.runtime.sandbox.ensure_available()
        answer = await world.client.get("/readyz")
        assert (answer.status_code, answer.json()) == (503, {"status": "runtime_unavailable"})
        body = {"model": "nacre", "messages": [{"role": "user", "content": "hi"}]}
        failed = await world.client.post("/v1/chat/completions", json=body)
        assert (failed.status_code, failed.json()["error"]["code"]) == (503, "runtime_unavailable")


async def test_the_first_request_builds_no_routes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**_: object) -> None:
        raise AssertionError("a route was built while a client waits")

    async with open_gateway(tmp_path) as world:
        builder = "fastapi.routing._EffectiveRouteContext.from_api_route"
        monkeypatch.setattr(builder, refuse)
        await world.get("/api/agents")
        await world.get("/healthz")


async def test_a_fresh_gateway_is_ready(tmp_path: Path) -> None:
    async with open_gateway(tmp_path) as world:
        assert await world.get("/readyz") == {"status": "ready"}
        assert (await world.get("/"))["openapi"] == "/openapi.json"


async def test_a_database_that_cannot_be_used_is_not_ready(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_gateway(tmp_path) as world:
        world.app.state.gateway.readiness.max_age_seconds = 0
        file = tmp_path / "nacre.db"
        with closing(sqlite3.connect(file, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            locked = await world.client.get("/readyz")
        unlocked = await world.client.get("/readyz")
        file.rename(tmp_path / "moved.db")
        missing = await world.client.get("/readyz")
        (tmp_path / "moved.db").rename(file)
    assert [it.status_code for it in (locked, unlocked, missing)] == [503, 200, 503]
    assert locked.json() == {"status": "unavailable"}
    logged = [it.getMessage() for it in caplog.records if it.name == "nacre.gateway.routing"]
    assert len(logged) == 2
    assert all(str(file) in line for line in logged)
