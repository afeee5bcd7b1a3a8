"""Two gateways on one PostgreSQL: any of them answers for any run."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import pytest

from nacre.errors import StorageError
from nacre.storage import Store
from nacre.testing import Call, Say
from nacre.testing.scripted_provider import ScriptedProvider
from tests.gateway.worlds import CODE_MODE, PATIENCE_SECONDS, World, open_world
from tests.storage.conftest import postgres, postgres_server

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from tests.storage.conftest import PostgresServer

__all__ = ["postgres", "postgres_server"]

LOOK_UP = {"name": "look_up", "description": "Looks it up.", "parameters": {"type": "object"}}
CELL = "return await tools.look_up({q: 1})"
KEY = {"idempotency-key": "k"}
SCRIPT = [Call("exec", {"code": CELL}), Say("found"), Say("and more")]


@pytest.fixture
async def worlds(postgres: PostgresServer, tmp_path: Path) -> AsyncGenerator[tuple[World, World]]:
    document = {**CODE_MODE, "storage": {"url": postgres.url()}}
    async with ScriptedProvider(SCRIPT) as model, AsyncExitStack() as stack:
        one = await stack.enter_async_context(open_world(tmp_path, model, document))
        other = await stack.enter_async_context(open_world(tmp_path, model, document))
        for world in (one, other):
            await world.system.agents.continue_turns()
        yield one, other


async def wait_at(world: World, run_id: str) -> dict[str, Any]:
    """The run as this gateway sees it, once it waits."""
    run = await world.system.agents.find_run(run_id)
    assert run is not None
    with anyio.fail_after(PATIENCE_SECONDS):
        assert await run.waiting_or_ended() == "waiting"
    return await world.get(f"/api/runs/{run_id}")


async def start_waiting(world: World, **more: Any) -> dict[str, Any]:
    started = await world.start(clientTools=[LOOK_UP], **more)
    await wait_at(world, started["runId"])
    shared = world.system.agents.shared
    assert shared is not None
    await shared.flush()
    return started


async def test_a_run_is_shown_answered_and_followed_at_another_gateway(
    worlds: tuple[World, World],
) -> None:
    one, other = worlds
    started = await start_waiting(one)
    path = f"/api/runs/{started['runId']}"
    shown = await wait_at(other, started["runId"])
    assert (shown["state"], shown["isLive"]) == ("waiting", True)
    (call,) = shown["pendingClientCalls"]
    listed = await other.get("/api/runs", params={"sessionId": started["sessionId"]})
    assert [run["runId"] for run in listed["runs"]] == [started["runId"]]

    results = {"results": [{"callId": call["callId"], "content": "a pearl"}]}
    answer = await other.client.post(f"{path}/client-results", json=results)
    assert answer.status_code == 200, answer.text
    again = await other.client.post(f"{path}/client-results", json=results)
    assert again.status_code == 409, again.text

    followed = await other.events(f"{path}/events")
    direct = await one.events(f"{path}/events")
    assert followed == direct
    assert followed[-1].kind == "run.completed"
    # A reader that changes the gateway in the middle.
    last = direct[4].id
    rest = await other.events(f"{path}/events", headers={"last-event-id": last})
    assert rest == direct[5:]
    assert json.loads(rest[-1].text)["data"]["text"] == "found"


async def test_a_run_is_aborted_and_its_session_continues_at_another_gateway(
    worlds: tuple[World, World],
) -> None:
    one, other = worlds
    started = await start_waiting(one)
    answer = await other.client.post(f"/api/runs/{started['runId']}/abort", json={"reason": "no"})
    assert answer.json() == {"runId": started["runId"], "state": "aborted", "wasAborted": True}
    second = await other.start("go on", sessionId=started["sessionId"])
    run = await other.system.agents.find_run(second["runId"])
    assert run is not None
    with anyio.fail_after(PATIENCE_SECONDS):
        await run.wait()
    assert run.state == "completed", run.result


async def test_all_events_are_in_the_stream_of_every_gateway(worlds: tuple[World, World]) -> None:
    one, other = worlds
    seen: list[str] = []
    async with anyio.create_task_group() as tasks:

        async def follow() -> None:
            async for event in other.follow("/api/events"):
                seen.append(event.kind)
                if event.kind == "stream.started":
                    ready.set()
                if event.kind == "run.waiting":
                    return

        ready = anyio.Event()
        tasks.start_soon(follow)
        with anyio.fail_after(PATIENCE_SECONDS):
            await ready.wait()
            await one.start(clientTools=[LOOK_UP])
            while "run.waiting" not in seen:
                await anyio.lowlevel.checkpoint()
    assert {"session.created", "run.started", "client_call.requested"} <= {*seen}


async def test_the_openai_api_continues_a_call_at_another_gateway(
    worlds: tuple[World, World],
) -> None:
    one, other = worlds
    tools = [{"type": "function", "function": LOOK_UP}]
    messages: list[dict[str, Any]] = [{"role": "user", "content": "look"}]
    body = {"model": "nacre/main", "messages": messages, "tools": tools}
    headers = {"x-nacre-session-key": "chat"}
    first = await one.client.post("/v1/chat/completions", json=body, headers=headers)
    assert first.status_code == 200, first.text
    said = first.json()["choices"][0]["message"]
    (call,) = said["tool_calls"]
    result = {"role": "tool", "tool_call_id": call["id"], "content": "a pearl"}
    body["messages"] = [*messages, said, result]
    second = await other.client.post("/v1/chat/completions", json=body, headers=headers)
    assert second.status_code == 200, second.text
    assert second.json()["choices"][0]["message"]["content"] == "found"
    assert "a pearl" in str(one.model.requests[-1].messages)


async def test_metrics_show_leases_takeovers_lag_and_depth(worlds: tuple[World, World]) -> None:
    one, _ = worlds
    await start_waiting(one)
    text = (await one.client.get("/metrics")).text
    assert "nacre_leases_held 1.0" in text
    for name in ("takeovers", "inbox_open", "remote_event_lag_seconds"):
        assert f"nacre_{name} " in text


async def test_the_gateways_are_listed_with_what_they_hold(worlds: tuple[World, World]) -> None:
    one, other = worlds
    await start_waiting(one)
    first, second = (await other.get("/api/gateways"))["gateways"]
    assert (first["state"], first["sessions"], first["waiting"]) == ("alive", 1, 1)
    assert (second["state"], second["sessions"], second["waiting"]) == ("alive", 0, 0)
    assert [first["isThis"], second["isThis"]] == [False, True]
    assert first["version"] == second["version"] != ""


async def fail_to_store(*_: object, **__: object) -> None:
    raise StorageError("the server does not respond")


@pytest.mark.parametrize("body", [{"sessionKey": "chat"}, {}])
async def test_a_message_that_is_sent_again_to_another_gateway_is_taken_once(
    worlds: tuple[World, World], monkeypatch: pytest.MonkeyPatch, body: dict[str, Any]
) -> None:
    one, other = worlds
    with monkeypatch.context() as patch:
        # As if the gateway was killed before it had the message, and then before it responded.
        patch.setattr(one.system.store, "add_session", fail_to_store)
        failed = await one.client.post("/api/runs", json={"text": "hello", **body}, headers=KEY)
        assert failed.status_code == 503, failed.text
        patch.undo()
        patch.setattr(one.system.store, "put_value", fail_to_store)
        first = await one.client.post("/api/runs", json={"text": "hello", **body}, headers=KEY)
    run_id = first.json()["runId"]
    again = await other.client.post("/api/runs", json={"text": "hello", **body}, headers=KEY)
    assert again.json()["runId"] == run_id, again.text
    await one.end_of(run_id)
    later = await other.client.post("/api/runs", json={"text": "hello", **body}, headers=KEY)
    assert later.json()["runId"] == run_id
    assert len((await one.get("/api/sessions"))["sessions"]) == 1
    assert len(one.model.requests) == 2


async def test_a_steering_message_that_is_sent_again_finds_its_run(
    worlds: tuple[World, World], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = worlds
    started = await start_waiting(one, sessionKey="chat")
    more = {"text": "and this", "sessionKey": "chat", "queueMode": "steer"}
    with monkeypatch.context() as patch:
        patch.setattr(Store, "put_value", fail_to_store)
        for world in (one, other):
            answer = await world.client.post("/api/runs", json=more, headers=KEY)
            assert answer.json()["runId"] == started["runId"], answer.text
        (call,) = (await one.get(f"/api/runs/{started['runId']}"))["pendingClientCalls"]
        results = {"results": [{"callId": call["callId"], "content": "a pearl"}]}
        await one.client.post(f"/api/runs/{started['runId']}/client-results", json=results)
        await one.end_of(started["runId"])
        # It is not in the inbox any more.
        answer = await other.client.post("/api/runs", json=more, headers=KEY)
    assert answer.json()["runId"] == started["runId"], answer.text
    session = await one.get(f"/api/sessions/{started['sessionId']}")
    texts = [it["text"] for it in session["messages"] if it["role"] == "user"]
    assert texts.count("and this") == 1
