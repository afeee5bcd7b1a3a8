"""JSON-RPC with an app-server: answers, faults of the server, and requests of its own."""

from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from anyio.abc import ByteStream

from nacre.backoff import RetryPolicy
from nacre.codex_harness import MIN_VERSION, AppServerClient, AppServers
from nacre.codex_harness import client as client_module
from nacre.codex_harness.client import PROBE
from nacre.errors import (
    AbortedError,
    AppServerClosedError,
    AppServerError,
    AppServerTimeoutError,
    RequestRefusedError,
)
from nacre.json_lines import encode_line
from nacre.json_types import JsonObject, JsonValue
from nacre.mcp_client import OutputTail
from nacre.run_context import AbortController
from nacre.testing import Say, ScriptedProvider
from tests.codex_harness.codex_setup import codex_config, fake_server, mock_provider_config
from tests.contract.requirements import requirement

pytestmark = pytest.mark.anyio


class Listener:
    """Keeps notifications, and answers requests when it may."""

    def __init__(self) -> None:
        self.notifications: list[tuple[str, JsonObject]] = []
        self.completed = anyio.Event()
        self.answers = anyio.Event()
        self.may_answer = anyio.Event()

    def on_notification(self, method: str, params: JsonObject, /) -> None:
        self.notifications.append((method, params))
        if method == "turn/completed":
            self.completed.set()
        if method == "answered":
            self.answers.set()

    async def on_request(self, method: str, params: JsonObject, /) -> JsonValue:
        await self.may_answer.wait()
        if method == "refused":
            raise RequestRefusedError(-32000, "not today")
        if method == "broken":
            raise ZeroDivisionError
        return {"method": method}


@pytest.fixture(scope="module")
async def servers() -> AsyncIterator[AppServers]:
    async with AppServers() as servers:
        yield servers


@pytest.fixture
async def client(servers: AppServers, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The real app-server, one for all tests of the module."""
    folder = Path(tmp_path_factory.getbasetemp()) / "codex-client"
    async with servers.use(await codex_config(folder), "main", "mock") as client:
        yield client


@pytest.fixture
async def fake(tmp_path: Path) -> AsyncIterator[Any]:
    async with AppServers() as servers:

        async def start(*steps: str, **settings: Any) -> AppServerClient:
            config = await codex_config(tmp_path, fake_server(*steps, **settings))
            async with servers.use(config, "main") as client:
                return client

        yield start


async def start_thread(client: AppServerClient, url: str, folder: Path) -> str:
    result = await client.request(
        "thread/start",
        {
            "model": "gpt-5.5",
            "modelProvider": "mock",
            "cwd": str(folder),
            "config": mock_provider_config(url),
        },
    )
    assert isinstance(result, dict)
    thread = result["thread"]
    assert isinstance(thread, dict)
    return str(thread["id"])


async def test_a_turn_of_the_real_server_is_followed_by_its_thread(
    client: AppServerClient, tmp_path: Path
) -> None:
    assert client.version >= MIN_VERSION
    async with ScriptedProvider([Say("Hello.")]) as provider:
        thread_id = await start_thread(client, provider.openai_url, tmp_path)
        listener = Listener()
        unsubscribe = client.subscribe(thread_id, listener)
        text = "half of a pair: \ud83d"
        await client.request(
            "turn/start", {"threadId": thread_id, "input": [{"type": "text", "text": text}]}
        )
        with anyio.fail_after(60):
            await listener.completed.wait()
        unsubscribe()

    assert provider.requests[-1].prompt == "half of a pair: \ufffd"
    methods = [method for method, _ in listener.notifications]
    assert methods.index("turn/started") < methods.index("item/agentMessage/delta")
    assert methods[-1] == "turn/completed"


async def test_an_error_of_the_server_has_its_code_and_the_method(client: AppServerClient) -> None:
    with pytest.raises(AppServerError) as raised:
        await client.request("thread/resume", {"threadId": "no-such-thread"})
    assert (raised.value.method, raised.value.code) == ("thread/resume", -32600)
    assert "Codex refused thread/resume: " in str(raised.value)


@requirement("codex:frozen-process")
async def test_a_working_server_answers_the_question_whether_it_works(
    client: AppServerClient,
) -> None:
    with pytest.raises(AppServerError):
        await client.request(PROBE, {})
    client.check_alive()
    with pytest.raises(AppServerError):
        await client.request("thread/resume", {"threadId": "nobody"})
    assert not client.is_closed


async def test_answers_in_any_order_reach_their_requests(fake: Any) -> None:
    client: AppServerClient = await fake("reverse")
    results: dict[str, JsonValue] = {}

    async def ask(name: str) -> None:
        results[name] = await client.request(name, {})

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask, "first")
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(ask, "second")
    # The handshake was the first request.
    assert results == {
        "first": {"text": "one\ntwo\n\nthree", "id": 2},
        "second": {"text": "one\ntwo\n\nthree", "id": 3},
    }


@requirement("codex:overload")
async def test_an_overloaded_server_is_asked_again(fake: Any) -> None:
    client: AppServerClient = await fake("overload=2", "ask=item/tool/requestUserInput")
    with anyio.fail_after(30):
        result = await client.request("anything", {})
    # The handshake was the first request.
    assert isinstance(result, dict)
    assert result["id"] == 4


@requirement("codex:overload")
async def test_a_request_without_a_waiter_is_not_lost_in_an_overload(fake: Any) -> None:
    client: AppServerClient = await fake("overload=1", "ask=item/tool/requestUserInput")
    listener = Listener()
    client.subscribe("reports", listener)
    # Such as an interrupt of a turn that has ended for Nacre.
    client.post("ask", {})
    with anyio.fail_after(30):
        await listener.answers.wait()


@requirement("codex:overload")
async def test_a_server_that_stays_overloaded_is_given_up_and_an_abort_ends_the_wait(
    fake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    client: AppServerClient = await fake("overload=1000")
    monkeypatch.setattr(client_module, "_RETRIES", RetryPolicy(max_retries=2, first_seconds=0.01))
    with pytest.raises(AppServerError, match="overloaded") as raised:
        await client.request("anything", {})
    assert raised.value.code == -32001

    class Patient(RetryPolicy):
        def delay_seconds(self, attempt: int, *, requested_seconds: float | None) -> float | None:
            controller.abort("enough")
            return 1000.0

    controller = AbortController()
    monkeypatch.setattr(client_module, "_RETRIES", Patient(max_retries=2))
    with anyio.fail_after(30), pytest.raises(AbortedError, match="enough"):
        await client.request("anything", {}, abort=controller.signal)


async def test_messages_with_raw_line_breaks_are_joined_and_garbage_is_skipped(fake: Any) -> None:
    client: AppServerClient = await fake("broken", "garbage")
    for _ in range(2):
        result = await client.request("anything", {})
        assert isinstance(result, dict)
        # Blank lines inside of the text are lost.
        assert result["text"] in ("one\ntwo\n\nthree", "one\ntwo\nthree")


async def test_a_request_times_out_or_is_aborted_and_a_late_result_is_passed_on(
    fake: Any,
) -> None:
    client: AppServerClient = await fake("reverse")
    late: list[JsonValue] = []
    has_come = anyio.Event()

    def keep(result: JsonValue) -> None:
        late.append(result)
        has_come.set()

    controller = AbortController()
    controller.abort("enough")
    with pytest.raises(AbortedError, match="enough"):
        await client.request("first", {}, abort=controller.signal, on_late=keep)
    await client.request("second", {})
    with anyio.fail_after(30):
        await has_come.wait()
    assert late == [{"text": "one\ntwo\n\nthree", "id": 2}]

    with pytest.raises(AppServerTimeoutError, match=r"did not answer third within 0\.1 seconds"):
        await client.request("third", {}, timeout_seconds=0.01)


async def test_the_exit_of_the_server_fails_what_waits_with_its_last_words(fake: Any) -> None:
    client: AppServerClient = await fake("exit=3")
    with pytest.raises(AppServerClosedError) as raised:
        await client.request("anything", {})
    text = str(raised.value)
    assert "the Codex app-server exited with status 3; its last output:\nfatal: token=" in text
    assert "sk-abcdefgh" not in text
    assert await client.wait_closed() is raised.value
    with pytest.raises(AppServerClosedError):
        await client.request("more", {})


@requirement("codex:every-server-request-is-answered")
@pytest.mark.parametrize(
    ("method", "answer"),
    [
        ("item/commandExecution/requestApproval", {"result": {"decision": "decline"}}),
        ("item/fileChange/requestApproval", {"result": {"decision": "decline"}}),
        (
            "item/permissions/requestApproval",
            {"result": {"permissions": {}, "scope": "turn"}},
        ),
        ("item/tool/requestUserInput", {"result": {"answers": {}}}),
        (
            "mcpServer/elicitation/request",
            {"result": {"action": "decline", "content": None, "_meta": None}},
        ),
        (
            "currentTime/read",
            {"error": {"code": -32601, "message": "Nacre does not handle currentTime/read"}},
        ),
    ],
)
async def test_a_request_that_nobody_handles_gets_a_safe_answer(
    fake: Any, method: str, answer: JsonObject
) -> None:
    client: AppServerClient = await fake(f"ask={method}")
    listener = Listener()
    client.subscribe("reports", listener)
    await client.request("ask", {})
    with anyio.fail_after(30):
        await listener.answers.wait()
    assert listener.notifications == [
        ("answered", {"threadId": "reports", "answer": {"id": "own", **answer}})
    ]


@pytest.mark.parametrize(
    ("method", "answer"),
    [
        ("handled", {"result": {"method": "handled"}}),
        ("refused", {"error": {"code": -32000, "message": "not today"}}),
        ("broken", {"error": {"code": -32603, "message": "the request failed: ZeroDivisionError"}}),
    ],
)
async def test_the_reader_does_not_wait_for_the_handler_of_a_request(
    fake: Any, method: str, answer: JsonObject
) -> None:
    client: AppServerClient = await fake(f"ask={method}")
    listener = Listener()
    client.subscribe("t", listener)
    client.subscribe("reports", listener)
    await client.request("ask", {})
    # The handler still waits, and other requests are answered.
    await client.request("other", {})
    assert not listener.answers.is_set()
    listener.may_answer.set()
    with anyio.fail_after(30):
        await listener.answers.wait()
    assert listener.notifications == [
        ("answered", {"threadId": "reports", "answer": {"id": "own", **answer}})
    ]


async def test_a_request_that_the_server_takes_back_is_cancelled_and_not_answered(
    fake: Any,
) -> None:
    client: AppServerClient = await fake("ask=item/tool/requestUserInput")
    listener = Listener()
    client.subscribe("t", listener)
    await client.request("ask", {})
    await client.request("resolve", {})
    listener.may_answer.set()
    # Answered in order: an answer to the request would have come before.
    await client.request("anything", {})
    assert [method for method, _ in listener.notifications] == ["serverRequest/resolved"]


async def test_two_requests_with_the_same_id_are_answered_and_the_connection_goes_on(
    fake: Any,
) -> None:
    client: AppServerClient = await fake("ask=item/tool/requestUserInput")
    listener = Listener()
    client.subscribe("t", listener)
    client.subscribe("reports", listener)
    await client.request("ask", {})
    await client.request("ask", {})
    listener.may_answer.set()
    with anyio.fail_after(30):
        await listener.answers.wait()
    await client.request("anything", {})
    assert [method for method, _ in listener.notifications] == ["answered", "answered"]


class OneChunk(ByteStream):
    """A connection on which one chunk arrives, and then its end."""

    def __init__(self, chunk: bytes) -> None:
        self._chunks = [chunk]

    async def receive(self, max_bytes: int = 65_536) -> bytes:
        if not self._chunks:
            raise anyio.EndOfStream
        return self._chunks.pop()

    async def send(self, item: bytes) -> None:
        pass

    async def send_eof(self) -> None:
        pass

    async def aclose(self) -> None:
        pass


async def test_other_tasks_run_while_many_notifications_arrive_at_once() -> None:
    notification = encode_line({"method": "note", "params": {"threadId": "t"}})
    wire = OneChunk(notification * 500)
    turns, seen = 0, list[int]()

    async def take_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await anyio.lowlevel.checkpoint()

    class Watcher(Listener):
        def on_notification(self, method: str, params: JsonObject, /) -> None:
            seen.append(turns)

    async def describe_end() -> str:
        return "ended"

    client = AppServerClient(
        input=wire,
        output=wire,
        tail=OutputTail(),
        describe_end=describe_end,
        kill=lambda: None,
        request_timeout_seconds=1,
    )
    client.subscribe("t", Watcher())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(take_turns)
        await client.run()
        tasks.cancel_scope.cancel()
    assert len(seen) == 500
    assert max(Counter(seen).values()) < 100
