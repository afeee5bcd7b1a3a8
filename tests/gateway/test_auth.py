"""Host, origin, token and scopes of requests."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest

from nacre.errors import ConfigError
from nacre.gateway.app import create_app
from tests.gateway.worlds import PATIENCE_SECONDS, TOKEN, World, open_gateway

PAGE = "https://app.example.org"


@asynccontextmanager
async def stranger(world: World, **headers: str) -> AsyncGenerator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(
        base_url=world.url, headers=headers, timeout=PATIENCE_SECONDS
    ) as client:
        yield client


async def test_nothing_but_health_and_the_document_is_told_without_the_token(
    tmp_path: Path,
) -> None:
    async with open_gateway(tmp_path) as world, stranger(world) as client:
        closed = ("/api/sessions", "/api/runs/x/events", "/metrics", "/v1/models", "/nowhere")
        for path in closed:
            answer = await client.get(path)
            assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer"), path
        for path in ("/", "/healthz", "/readyz", "/openapi.json"):
            assert (await client.get(path)).status_code == 200, path
        assert (await client.post("/api/runs", json={"text": "hi"})).status_code == 401
    assert world.model.requests == []


@pytest.mark.parametrize(
    "given",
    ["Bearer wrong", "Bearer", TOKEN, f"Basic {TOKEN}", f"Bearer {TOKEN}x", "Bearer é"],
)
async def test_a_wrong_token_is_none(tmp_path: Path, given: str) -> None:
    async with open_gateway(tmp_path) as world:
        headers = {b"authorization": given.encode()}
        answer = await world.client.get("/api/agents", headers=headers)
    assert answer.status_code == 401
    assert TOKEN not in answer.text


async def test_a_wrong_token_is_told_apart_from_none(tmp_path: Path) -> None:
    async with open_gateway(tmp_path) as world:
        none = await world.client.get("/api/agents", headers={"authorization": ""})
        wrong = await world.client.get("/api/agents", headers={"authorization": "Bearer wrong"})
    assert "a token is required" in none.json()["error"]["message"]
    assert "the token is wrong" in wrong.json()["error"]["message"]


async def test_the_token_of_a_changed_configuration_counts_at_once(tmp_path: Path) -> None:
    async with open_gateway(tmp_path) as world:
        gateway = replace(world.system.config.gateway, token="another-token-0123")
        await world.system.apply(replace(world.system.config, gateway=gateway))
        assert (await world.client.get("/api/agents")).status_code == 401
        async with stranger(world, authorization="Bearer another-token-0123") as client:
            assert (await client.get("/api/agents")).status_code == 200


SCOPED: dict[str, Any] = {
    "auth": {
        "token": TOKEN,
        "tokens": {
            name: {"token": f"{name}-0123456789abcdef", "scopes": scopes}
            for name, scopes in {
                "reader": ["read"],
                "runner": ["read", "run"],
                "approver": ["approve"],
                "owner": ["admin"],
            }.items()
        },
    }
}


async def test_named_tokens_allow_what_their_scopes_say(tmp_path: Path) -> None:
    requests = [
        ("GET", "/api/sessions"),
        ("POST", "/api/runs"),
        ("POST", "/v1/chat/completions"),
        ("POST", "/api/approvals/nothing"),
        ("GET", "/api/approvals/nothing/input"),
        ("DELETE", "/api/sessions/nothing"),
    ]
    allowed: dict[str, list[bool]] = {}
    async with open_gateway(tmp_path, document={"gateway": SCOPED}) as world:
        for name in SCOPED["auth"]["tokens"]:
            authorization = f"Bearer {name}-0123456789abcdef"
            async with stranger(world, authorization=authorization) as client:
                answers = [await client.request(*request, json={}) for request in requests]
            allowed[name] = [answer.status_code != 403 for answer in answers]
            codes = {it.json()["error"]["code"] for it in answers if it.status_code == 403}
            assert codes <= {"missing_scope"}
    assert allowed == {
        "reader": [True, False, False, False, False, False],
        "runner": [True, True, True, False, False, False],
        "approver": [False, False, False, True, True, False],
        "owner": [True, True, True, True, True, True],
    }


async def test_a_page_under_a_name_of_its_own_does_not_get_in(tmp_path: Path) -> None:
    async with open_gateway(tmp_path) as world:
        port = world.url.rpartition(":")[2]
        for host in ("evil.example", f"evil.example:{port}", "127.0.0.1.evil.example", "", "["):
            answer = await world.client.get("/healthz", headers={"host": host})
            assert answer.status_code == 421, host
        for host in ("localhost", f"LOCALHOST:{port}", "[::1]:1", "127.0.0.1"):
            answer = await world.client.get("/healthz", headers={"host": host})
            assert answer.status_code == 200, host


async def test_more_names_can_be_allowed_also_on_all_addresses(tmp_path: Path) -> None:
    document = {"gateway": {"allowedHosts": ["Proxy.example"]}}
    async with open_gateway(tmp_path, document=document) as world:
        config = world.system.config
        for host in ("127.0.0.1", "0.0.0.0"):
            gateway = replace(config.gateway, host=host)
            await world.system.apply(replace(config, gateway=gateway))
            for name, status in (("proxy.example:443", 200), ("localhost", 200), ("evil", 421)):
                answer = await world.client.get("/healthz", headers={"host": name})
                assert answer.status_code == status, (host, name)


async def test_pages_of_other_origins_are_refused_unless_they_are_configured(
    tmp_path: Path,
) -> None:
    async with open_gateway(tmp_path) as world:
        own = await world.client.get("/api/agents", headers={"origin": world.url})
        foreign = await world.client.get("/api/agents", headers={"origin": PAGE})
        hidden = await world.client.get("/api/agents", headers={"origin": "null"})
        broken = await world.client.get("/healthz", headers={"origin": "http://["})
    assert (own.status_code, foreign.status_code, hidden.status_code) == (200, 403, 403)
    assert broken.status_code == 403
    assert "access-control-allow-origin" not in foreign.headers


async def test_a_configured_page_may_ask_beforehand_and_read_the_answer(tmp_path: Path) -> None:
    gateway = {"gateway": {"corsOrigins": [PAGE]}}
    async with open_gateway(tmp_path, document=gateway) as world:
        asked = {"access-control-request-method": "POST", "origin": PAGE}
        async with stranger(world, **asked) as page:
            wanted = {"access-control-request-headers": "authorization"}
            before = await page.options("/api/runs", headers=wanted)
        answer = await world.client.get("/api/agents", headers={"origin": PAGE})
        behind_proxy = await world.client.get("/api/agents", headers={"host": "app.example.org"})
    assert (before.status_code, before.headers["access-control-allow-origin"]) == (204, PAGE)
    assert before.headers["access-control-allow-headers"] == "authorization"
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, PAGE)
    assert behind_proxy.status_code == 200


async def test_without_a_token_this_machine_is_served_if_that_is_configured(tmp_path: Path) -> None:
    document = {"gateway": {"auth": {"mode": "none"}}}
    async with open_gateway(tmp_path, document=document) as world, stranger(world) as client:
        assert (await client.get("/api/agents")).status_code == 200


async def test_an_application_without_any_token_is_not_made(tmp_path: Path) -> None:
    async with open_gateway(tmp_path) as world:
        gateway = replace(world.system.config.gateway, token="")
        await world.system.apply(replace(world.system.config, gateway=gateway))
        assert (await world.client.get("/api/agents")).status_code == 401
        with pytest.raises(ConfigError, match=r"gateway\.auth\.token"):
            create_app(world.system)
