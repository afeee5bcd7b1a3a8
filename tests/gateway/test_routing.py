"""Limits of bodies and of runs, before a request is served."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import anyio
import pytest

from nacre.config.gateway import GatewayConfig
from nacre.gateway.errors import ApiError
from nacre.gateway.routing import MAX_BODY_PARTS, BodyLimit
from nacre.testing import Say, Stall
from tests.gateway.worlds import open_gateway

SMALL = {"gateway": {"maxBodyBytes": 2000}}


async def pieces(count: int) -> AsyncIterator[bytes]:
    for _ in range(count):
        yield b" " * 1000


async def test_a_body_that_announces_itself_as_too_large_is_not_read(tmp_path: Path) -> None:
    async with open_gateway(tmp_path, document=SMALL) as world:
        answer = await world.client.post("/api/runs", content=b" " * 2001)
        compatible = await world.client.post("/v1/responses", content=b" " * 2001)
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "body_too_large")
    assert compatible.json()["error"]["type"] == "invalid_request_error"


async def test_a_client_that_sends_all_of_a_large_body_gets_the_response(tmp_path: Path) -> None:
    async with open_gateway(tmp_path, document=SMALL) as world:
        answer = await world.client.post("/api/runs", content=b" " * 9_000_000)
    assert answer.status_code == 413


async def test_a_body_that_turns_out_too_large_is_refused_on_the_way(tmp_path: Path) -> None:
    json = {"content-type": "application/json"}
    async with open_gateway(tmp_path, document=SMALL) as world:
        answer = await world.client.post("/api/runs", content=pieces(3), headers=json)
        fits = await world.client.post("/api/runs", content=pieces(2), headers=json)
    assert answer.status_code == 413
    assert fits.status_code == 400


def limited(app: Any, *, body_seconds: float) -> BodyLimit:
    class Configured:
        """As much of the gateway's state as the limit looks at."""

        class system:
            class config:
                gateway = GatewayConfig()

    return BodyLimit(app, cast("Any", Configured), body_seconds=body_seconds)


async def told(limit: BodyLimit, *messages: Any) -> None:
    """Have it receive these messages, and nothing after them."""
    left = list(messages)

    async def receive() -> Any:
        if not left:
            await anyio.sleep_forever()
        return left.pop(0)

    async def send(message: Any) -> None:
        raise AssertionError("it is the application that answers")

    with anyio.fail_after(30):
        await limit({"type": "http", "headers": [], "path": "/"}, receive, send)


async def test_a_body_that_never_ends_is_given_up() -> None:
    caught: list[ApiError] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        with pytest.raises(ApiError) as refused:
            await receive()
        caught.append(refused.value)

    half = {"type": "http.request", "body": b"{", "more_body": True}
    await told(limited(app, body_seconds=0.01), half)
    assert caught[0].status_code == 408


async def test_waiting_for_a_client_to_go_is_not_waiting_for_its_body() -> None:
    has_waited = anyio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        with anyio.move_on_after(0.05) as waiting:
            await receive()
        assert waiting.cancelled_caught
        has_waited.set()

    whole = {"type": "http.request", "body": b"{}", "more_body": False}
    await told(limited(app, body_seconds=0.01), whole)
    assert has_waited.is_set()


async def test_more_runs_than_configured_are_refused_until_one_has_ended(tmp_path: Path) -> None:
    release = anyio.Event()
    script = [[Stall(release), Say("done")], Say("next")]
    document = {"gateway": {"maxConcurrentRuns": 1}}
    async with open_gateway(tmp_path, script, document) as world:
        first = await world.start()
        refused = await world.client.post("/api/runs", json={"text": "me too"})
        release.set()
        await world.end_of(first["runId"])
        assert (await world.finished("now"))["result"]["text"] == "next"
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
    assert refused.json()["error"]["code"] == "too_many"


async def test_a_body_with_too_many_values_is_refused_before_it_is_decoded(tmp_path: Path) -> None:
    keys = ",".join(f'"key{at}":0' for at in range(MAX_BODY_PARTS + 1))
    async with open_gateway(tmp_path) as world:
        for path in ("/api/runs", "/v1/chat/completions", "/v1/responses"):
            answer = await world.client.post(
                path, content=f"{{{keys}}}", headers={"content-type": "application/json"}
            )
            error = answer.json()["error"]
            assert (answer.status_code, error["code"]) == (413, "body_too_large"), path
            assert error["message"] == "the body has more than 50,000 parts; send less at a time"
