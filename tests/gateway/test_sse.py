"""Answers as server-sent events: heartbeats, readers that are slow or gone."""

import json
from collections.abc import AsyncGenerator
from typing import Any

import anyio
import pytest
from starlette.types import Message

from nacre.agent import AgentRun, RunResult
from nacre.agent.replies import ReplyEventLog
from nacre.gateway.errors import ApiError
from nacre.gateway.openai.answer_stream import AnswerStream, RunEnd, TextDelta
from nacre.gateway.openai.run_starter import WaitingRuns
from nacre.gateway.sse import EventStreamResponse

SCOPE: dict[str, Any] = {"type": "http", "path": "/v1/chat/completions", "headers": []}


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
    monkeypatch.setattr("nacre.gateway.sse._SEND_SECONDS", 0.0)
    caplog.set_level("INFO", "nacre.gateway.sse")
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
