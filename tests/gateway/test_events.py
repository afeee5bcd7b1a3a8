"""One stream for everything that a page watches, and readers that are slow or gone."""

import json
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import anyio
import httpx2
import pytest
from anyio.abc import SocketAttribute
from starlette.types import Message

from nacre.agent import AgentRun, RunResult
from nacre.agent.replies import ReplyEventLog
from nacre.gateway.errors import ApiError
from nacre.gateway.events import EventHub, EventStreamResponse
from nacre.gateway.openai.run_starter import WaitingRuns
from nacre.gateway.openai.turns import AnswerStream, RunEnd, TextDelta
from nacre.gateway.routes import events as events_route
from nacre.testing import Call, Say, Stall
from tests.gateway.worlds import (
    CODE_MODE,
    PATIENCE_SECONDS,
    TOKEN,
    Event,
    World,
    open_gateway,
)

WRITE = "return await tools.write({path: 'note.txt', content: 'x'})"
ANSWER = "one two three four"

SCOPE: dict[str, Any] = {"type": "http", "path": "/v1/chat/completions", "headers": []}


def hub_of(world: World) -> EventHub:
    return world.app.state.gateway.events


@asynccontextmanager
async def stream(
    world: World, session_id: str = "", *, last_id: str = ""
) -> AsyncGenerator[AsyncIterator[Event]]:
    headers = {"last-event-id": last_id} if last_id else {}
    found = world.follow("/api/events", params={"sessionId": session_id}, headers=headers)
    async with aclosing(cast("AsyncGenerator[Event]", found)) as events:
        yield events


async def read_until(
    events: AsyncIterator[Event], is_last: Callable[[dict[str, Any]], bool]
) -> list[dict[str, Any]]:
    """The data of the events up to that one, each with its id."""
    found: list[dict[str, Any]] = []
    with anyio.fail_after(PATIENCE_SECONDS):
        async for event in events:
            found.append({**json.loads(event.text), "id": event.id})
            if is_last(found[-1]):
                return found
    raise AssertionError(f"the stream ended with {found[-1:]}")


async def read_until_all(
    events: AsyncIterator[Event], *conditions: Callable[[dict[str, Any]], bool]
) -> list[dict[str, Any]]:
    """Up to the event with which each condition was met once. Changes of a session are joined, so
    their place among other events is open."""
    left = list(conditions)

    def is_last(event: dict[str, Any]) -> bool:
        left[:] = [it for it in left if not it(event)]
        return not left

    return await read_until(events, is_last)


def is_session(event: dict[str, Any], session_id: str, **members: object) -> bool:
    is_change = event["kind"] in ("session.created", "session.updated")
    data = event["data"]
    return (
        is_change
        and event["sessionId"] == session_id
        and all(data[name] == value for name, value in members.items())
    )


def is_kind(kind: str) -> Callable[[dict[str, Any]], bool]:
    return lambda event: event.get("kind") == kind


def text_of(events: list[dict[str, Any]]) -> str:
    return "".join(it["data"]["text"] for it in events if it["kind"] == "text.delta")


def numbers_of(events: list[dict[str, Any]], run_id: str) -> list[int]:
    return [it["sequence"] for it in events if it["runId"] == run_id]


async def test_a_page_gets_all_of_its_session_and_the_outline_of_the_others(
    tmp_path: Path,
) -> None:
    script = [Say("hello"), Say(ANSWER), Say(ANSWER)]
    async with open_gateway(tmp_path, script) as world:
        mine = (await world.finished("first"))["sessionId"]
        async with stream(world, mine) as events:
            [started] = await read_until(events, is_kind("stream.started"))
            other = await world.finished("other", title="a title")
            own = await world.finished("own", sessionId=mine)
            seen = await read_until_all(
                events,
                lambda it: it["kind"] == "run.completed" and it["runId"] == own["runId"],
                lambda it: is_session(it, mine, state="idle", turnCount=2),
            )
    assert started["data"] == {"epoch": hub_of(world).epoch, "liveRuns": []}
    outline = {it["kind"] for it in seen if it["runId"] == other["runId"]}
    assert outline == {"run.started", "run.completed"}
    assert text_of(seen) == ANSWER
    mine_numbers = numbers_of(seen, own["runId"])
    assert mine_numbers == sorted(set(mine_numbers))
    assert {"model.started", "message.completed"} <= {it["kind"] for it in seen}
    [created] = [it for it in seen if it["kind"] == "session.created"]
    assert (created["sessionId"], created["data"]["title"]) == (other["sessionId"], "a title")
    assert created["data"].keys() >= {"id", "agentId", "updatedAt", "turnCount", "state"}


async def test_a_page_that_opens_during_a_run_gets_it_from_the_start_and_then_live(
    tmp_path: Path,
) -> None:
    release = anyio.Event()
    async with open_gateway(tmp_path, [[Say("one two "), Stall(release), Say("three")]]) as world:
        started = await world.start()
        with anyio.fail_after(PATIENCE_SECONDS):
            async for event in world.run(started["runId"]).events.follow():
                if event.kind == "text.delta" and "two" in str(event.data["text"]):
                    break
        async with stream(world, started["sessionId"]) as events:
            replayed = await read_until(events, lambda it: "two" in str(it["data"].get("text")))
            release.set()
            live = await read_until(events, is_kind("run.completed"))
    [listed] = replayed[0]["data"]["liveRuns"]
    assert (listed["runId"], listed["state"]) == (started["runId"], "running")
    numbers = numbers_of([*replayed, *live], started["runId"])
    assert numbers == sorted(set(numbers))
    assert text_of([*replayed, *live]) == "one two three"
    assert live[-1]["sequence"] == world.run(started["runId"]).events.last_sequence
    # A reader that breaks off in the replay has no id, so it starts again.
    assert [it["id"] != "" for it in replayed] == [False] * (len(replayed) - 1) + [True]


async def test_a_broken_stream_continues_after_the_last_event(tmp_path: Path) -> None:
    release = anyio.Event()
    script = [[Say("one "), Stall(release), Say("two three")], Say("later")]
    async with open_gateway(tmp_path, script) as world:
        async with stream(world) as events:
            await read_until(events, is_kind("stream.started"))
            started = await world.start()
            before = await read_until(events, is_kind("run.started"))
        release.set()
        await world.end_of(started["runId"])
        async with stream(world, started["sessionId"], last_id=before[-1]["id"]) as events:
            rest = await read_until(events, is_kind("run.completed"))
        async with stream(world, started["sessionId"], last_id=rest[-1]["id"]) as events:
            later = await world.finished("more", sessionId=started["sessionId"])
            end = await read_until(
                events, lambda it: it["kind"] == "run.completed" and it["runId"] == later["runId"]
            )
    numbers = numbers_of([*before, *rest], started["runId"])
    assert numbers == sorted(set(numbers))
    assert text_of(rest) == "one two three"
    assert not [it for it in [*rest, *end] if it["kind"].startswith("stream.")]
    assert text_of(end) == "later"


async def test_an_id_that_cannot_be_continued_resets_the_page(tmp_path: Path) -> None:
    async with open_gateway(tmp_path, [[Say("one "), Stall()]]) as world:
        started = await world.start()
        hub = hub_of(world)
        ids = (
            "000000000000.1",
            f"{hub.epoch}.{hub.last_number + 1_000}",
            f"{hub.epoch}.{'9' * 19}",
            f"{hub.epoch}.-1",
            f"{hub.epoch}.0",
            f"{hub.epoch}.٣",
            f"{hub.epoch}.",
            "12",
            "x" * 30_000,
        )
        for last_id in ids:
            # As bytes: a header may have more than ASCII.
            headers: Any = {b"last-event-id": last_id.encode()}
            path = f"/api/events?sessionId={started['sessionId']}"
            with anyio.fail_after(PATIENCE_SECONDS):
                async with world.client.stream("GET", path, headers=headers) as answer:
                    lines = answer.aiter_lines()
                    kinds = [line async for line in _first_events(lines)]
            assert kinds == ["event: stream.reset", "event: run.started"], last_id[:50]
        await world.run(started["runId"]).abort()


async def _first_events(lines: AsyncIterator[str]) -> AsyncIterator[str]:
    left = 2
    async for line in lines:
        if line.startswith("event: "):
            left -= 1
            yield line
            if not left:
                return


async def test_a_waiting_approval_of_any_session_is_shown_with_its_state(tmp_path: Path) -> None:
    script = [Call("exec", {"code": WRITE}), Say("done")]
    async with open_gateway(tmp_path, script, CODE_MODE) as world, stream(world) as events:
        await read_until(events, is_kind("stream.started"))
        await world.start()
        seen = await read_until_all(
            events,
            is_kind("approval.requested"),
            lambda it: is_session(it, it["sessionId"], state="waiting"),
        )
        [asked] = [it for it in seen if it["kind"] == "approval.requested"]
        path = f"/api/approvals/{asked['data']['approvalId']}"
        await world.client.post(path, json={"answer": "allow-once"})
        after = await read_until(events, is_kind("run.completed"))
    assert "approval.answered" in {it["kind"] for it in after}
    assert not {"call.started", "text.delta"} & {it["kind"] for it in [*seen, *after]}


async def test_a_deleted_session_is_reported(tmp_path: Path) -> None:
    async with open_gateway(tmp_path, [Say("hi")]) as world:
        session_id = (await world.finished())["sessionId"]
        async with stream(world) as events:
            await read_until(events, is_kind("stream.started"))
            await world.system.store.delete_session(session_id)
            seen = await read_until(events, is_kind("session.deleted"))
    assert seen[-1]["data"] == {"id": session_id}


async def test_fifty_readers_get_the_same_events(tmp_path: Path) -> None:
    found: list[list[dict[str, Any]]] = []

    async def read(world: World, session_id: str, ready: Callable[[], None]) -> None:
        async with stream(world, session_id) as events:
            await read_until(events, is_kind("stream.started"))
            ready()
            found.append(await read_until(events, is_kind("run.completed")))

    async with open_gateway(tmp_path, [Say("hi"), Say(ANSWER)]) as world:
        session_id = (await world.finished())["sessionId"]
        waiting = anyio.Semaphore(0)
        async with anyio.create_task_group() as tasks:
            for _ in range(50):
                tasks.start_soon(read, world, session_id, waiting.release)
            with anyio.fail_after(PATIENCE_SECONDS):
                for _ in range(50):
                    await waiting.acquire()
            await world.start("go", sessionId=session_id)
    assert len(found) == 50
    assert {text_of(it) for it in found} == {ANSWER}
    assert len({it[-1]["id"] for it in found}) == 1


async def test_a_reader_that_does_not_read_delays_nobody_and_is_reset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    padding = "x" * 20_000
    async with open_gateway(tmp_path) as world:
        hub = hub_of(world)
        monkeypatch.setattr(hub, "_max_bytes", 2_000_000)
        host, _, port = world.url.removeprefix("http://").partition(":")
        stalled = await anyio.connect_tcp(host, int(port))
        # The system would buffer megabytes for the reader.
        raw: socket.socket = stalled.extra(SocketAttribute.raw_socket)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        async with stalled, stream(world) as events:
            head = f"GET /api/events HTTP/1.1\r\nHost: {host}:{port}\r\n"
            await stalled.send(f"{head}Authorization: Bearer {TOKEN}\r\n\r\n".encode())
            assert b"200 OK" in await stalled.receive(200)
            await read_until(events, is_kind("stream.started"))
            for number in range(1_000):
                hub.publish("server.test", {"number": number, "padding": padding})
                if number % 20 == 19:
                    seen = await read_until(events, lambda it, n=number: it["data"]["number"] == n)
                    assert len(seen) == 20
                    assert hub.bytes_held <= 2_000_000
            received = b""
            with anyio.fail_after(PATIENCE_SECONDS):
                while b"event: stream.reset" not in received:
                    received = received[-100:] + await stalled.receive()


async def test_nothing_is_logged_while_nobody_reads(tmp_path: Path) -> None:
    async with open_gateway(tmp_path, [Say("hi"), Say("again")]) as world:
        await world.finished()
        assert (hub_of(world).bytes_held, hub_of(world).last_number > 5) == (0, True)
        async with stream(world) as events:
            [started] = await read_until(events, is_kind("stream.started"))
        # A page that is gone for a moment can continue.
        await world.finished()
        async with stream(world, last_id=started["id"]) as events:
            seen = await read_until(events, is_kind("run.completed"))
    assert seen[0]["kind"] == "session.created"


async def test_the_stream_of_a_browser_ends_with_its_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events_route, "_CHECK_SECONDS", 0.01)
    async with open_gateway(tmp_path) as world:
        headers = {"origin": world.url}
        async with httpx2.AsyncClient(
            base_url=world.url, headers=headers, timeout=PATIENCE_SECONDS
        ) as client:
            await client.post("/api/web/sign-in", json={"token": TOKEN})
            async with client.stream("GET", "/api/events") as answer:
                lines = answer.aiter_lines()
                assert "stream.started" in await anext(lines) + await anext(lines)
                await client.post("/api/web/sign-out")
                with anyio.fail_after(PATIENCE_SECONDS):
                    rest = [line async for line in lines]
    assert "event: stream.closed" in rest


async def test_the_stream_of_a_token_ends_when_the_token_is_rotated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events_route, "_CHECK_SECONDS", 0.01)
    async with open_gateway(tmp_path) as world, stream(world) as events:
        await read_until(events, is_kind("stream.started"))
        gateway = replace(world.system.config.gateway, token="another-token-0123")
        await world.system.apply(replace(world.system.config, gateway=gateway))
        with anyio.fail_after(PATIENCE_SECONDS):
            kinds = [event.kind async for event in events]
    assert kinds[-1] == "stream.closed"


async def test_a_gateway_that_stops_ends_the_streams(tmp_path: Path) -> None:
    async with open_gateway(tmp_path) as world, stream(world) as events:
        await read_until(events, is_kind("stream.started"))
        hub_of(world).publish("config.applied", {"needsRestart": []})
        hub_of(world).close()
        with anyio.fail_after(PATIENCE_SECONDS):
            kinds = [event.kind async for event in events]
    assert kinds == ["config.applied", "stream.closed"]


def a_run() -> AgentRun:
    run = AgentRun(id="run_1", session_id="s", agent_id="main")
    run.begin({})
    return run


def an_answer(run: AgentRun) -> AnswerStream:
    return AnswerStream(run, WaitingRuns(max_runs=lambda: 8))


class Browser:
    """The other end: takes what is sent, and goes away when a test says so."""

    def __init__(self) -> None:
        self.gone = anyio.Event()
        self.got = anyio.Event()
        self.sent: list[Message] = []

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent)

    async def receive(self) -> Message:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        self.sent.append(message)
        if message.get("body"):
            self.got.set()


def streamed(
    answer: AnswerStream, events: AsyncGenerator[bytes], *, heartbeat_seconds: float = 900
) -> EventStreamResponse:
    return EventStreamResponse(
        events,
        headers=answer.headers,
        on_close=answer.close,
        error_event=lambda error: f"error: {error.message}".encode(),
        heartbeat_seconds=heartbeat_seconds,
    )


async def nothing_until(event: anyio.Event, then: ApiError | None = None) -> AsyncGenerator[bytes]:
    await event.wait()
    if then is not None:
        raise then
    yield b"data: x\n\n"


async def test_a_stream_that_has_nothing_to_say_for_long_says_so() -> None:
    run, browser, go_on = a_run(), Browser(), anyio.Event()
    stream = streamed(an_answer(run), nothing_until(go_on), heartbeat_seconds=0.01)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stream, SCOPE, browser.receive, browser.send)
        with anyio.fail_after(30):
            await browser.got.wait()
        assert browser.body.startswith(b": still working\n\n")
        assert browser.sent[0]["status"] == 200
        go_on.set()
    assert b"data: x\n\n" in browser.body
    assert browser.sent[-1]["more_body"] is False


@pytest.mark.parametrize("has_begun", [False, True])
async def test_an_error_has_a_status_until_something_was_sent(has_begun: bool) -> None:
    run, browser, go_on = a_run(), Browser(), anyio.Event()
    error = ApiError(502, "no model", code="provider_failed")
    stream = streamed(
        an_answer(run),
        nothing_until(go_on, error),
        heartbeat_seconds=0.01 if has_begun else 900,
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stream, SCOPE, browser.receive, browser.send)
        if has_begun:
            with anyio.fail_after(30):
                await browser.got.wait()
        go_on.set()
    if has_begun:
        assert browser.body.endswith(b"error: no model")
    else:
        assert browser.sent[0]["status"] == 502
        assert json.loads(browser.body)["error"]["code"] == "provider_failed"


async def test_a_reader_that_goes_away_ends_the_run() -> None:
    run, browser = a_run(), Browser()
    stream = streamed(an_answer(run), nothing_until(anyio.Event()))
    browser.gone.set()
    with anyio.fail_after(30):
        await stream(SCOPE, browser.receive, browser.send)
    assert run.abort_signal.reason == "the client closed the connection"


async def test_a_reader_that_is_too_slow_is_told_that_something_is_lost() -> None:
    run = a_run()
    run.events = ReplyEventLog(max_events=3)
    for number in range(5):
        run.events.add("text.delta", {"text": str(number)})
    with pytest.raises(ApiError, match="2 events of the run run_1 are lost"):
        await anext(an_answer(run).parts())


async def test_a_model_that_does_not_stream_is_heard_all_the_same() -> None:
    run = a_run()
    run.events.add("message.completed", {"text": "all at once", "usage": {}})
    run.end("completed", RunResult(text="all at once"))
    parts = [part async for part in an_answer(run).parts()]
    assert parts[0] == TextDelta(text="all at once", begins_message=True)
    assert isinstance(parts[-1], RunEnd)


async def test_the_stream_of_a_client_that_reads_nothing_is_closed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("nacre.gateway.events._SEND_SECONDS", 0.0)
    caplog.set_level("INFO", "nacre.gateway.events")
    answer = an_answer(a_run())

    async def one_event() -> AsyncGenerator[bytes]:
        yield b"data: 1\n\n"

    async def send_nothing(message: Message) -> None:
        await anyio.sleep_forever()

    await streamed(answer, one_event())(SCOPE, Browser().receive, send_nothing)
    assert "reads nothing" in caplog.text


async def test_a_timeout_of_the_events_is_not_taken_for_a_stalled_client() -> None:
    async def failing_events() -> AsyncGenerator[bytes]:
        yield b"data: 1\n\n"
        raise TimeoutError("the store did not answer")

    browser = Browser()
    response = streamed(an_answer(a_run()), failing_events())
    with pytest.raises(ExceptionGroup) as raised:
        await response(SCOPE, browser.receive, browser.send)
    assert raised.group_contains(TimeoutError, match="did not answer")
