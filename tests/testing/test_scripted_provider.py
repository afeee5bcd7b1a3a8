"""The scripted provider, driven by the official SDKs."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import anthropic
import anyio
import anyio.to_thread
import httpx2
import openai
import pytest

from nacre.config.models import ProviderApi
from nacre.errors import ProviderError
from nacre.messages import Usage
from nacre.testing import (
    Call,
    Cut,
    End,
    Fail,
    Raw,
    RecordedRequest,
    Say,
    ScriptedProvider,
    Stall,
    Think,
    by_marker,
)
from nacre.testing.script import EndReason, PlainTurn
from tests.providers.asking import scripted
from tests.testing.sdk_clients import DOORS, STREAMS, Clients, Door, clients_of

FAILURES = (openai.APIError, anthropic.APIError, httpx2.HTTPError)
END_WORDS: dict[str, dict[EndReason, str]] = {
    "chat": {reason: reason for reason in ("stop", "tool_calls", "length", "content_filter")},
    "responses": {
        "stop": "completed",
        "tool_calls": "completed",
        "length": "incomplete",
        "content_filter": "incomplete",
    },
    "messages": {
        "stop": "end_turn",
        "tool_calls": "tool_use",
        "length": "max_tokens",
        "content_filter": "refusal",
    },
}


def word_for(door: Door, reason: EndReason) -> str:
    return END_WORDS[door.split()[0]][reason]


@pytest.mark.parametrize("door", DOORS)
async def test_text_thoughts_and_calls_arrive_as_they_were_scripted(door: Door) -> None:
    program = "return 'ünï © 漢字'.length // long enough for several pieces"
    turn = [
        Think("let me see"),
        Say("Two\n words,  and more"),
        Call("exec", {"code": program}),
        Call("exec", {}, call_id="mine"),
    ]
    async with ScriptedProvider([turn]) as provider, clients_of(provider) as clients:
        heard = await clients.ask(door)
    assert (heard.text, heard.thought) == ("Two\n words,  and more", "let me see")
    assert heard.calls == [("exec", {"code": program}), ("exec", {})]
    assert heard.call_ids[1] == "mine"
    assert heard.reason == word_for(door, "tool_calls")


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("reason", ["stop", "length", "content_filter"])
async def test_a_turn_ends_for_the_reason_and_with_the_tokens_of_the_script(
    door: Door, reason: EndReason
) -> None:
    usage = Usage(input_tokens=100, output_tokens=7, cached_tokens=60)
    async with (
        ScriptedProvider([[Say("cut sh"), End(reason, usage)]]) as provider,
        clients_of(provider) as clients,
    ):
        heard = await clients.ask(door)
    assert (heard.reason, heard.tokens) == (word_for(door, reason), (100, 7, 60))


@pytest.mark.parametrize("door", DOORS)
async def test_tokens_are_estimated_where_the_script_says_nothing(door: Door) -> None:
    async with ScriptedProvider([Say("a" * 400)]) as provider, clients_of(provider) as clients:
        heard = await clients.ask(door)
        (request,) = provider.requests
    assert heard.tokens == (request.body_bytes // 4 + 1, 101, 0)


@pytest.mark.parametrize("door", DOORS)
async def test_a_request_is_recorded_in_the_same_words_for_every_format(door: Door) -> None:
    async with ScriptedProvider([Say("yes")]) as provider, clients_of(provider) as clients:
        await clients.ask(door, prompt="are you there?")
        (request,) = provider.requests
    assert (request.model, request.is_streaming) == ("scripted", door in STREAMS)
    assert (request.instructions, request.prompt) == ("Be brief.", "are you there?")
    assert (request.tool_names, request.tool_results, request.last_result) == (("exec",), (), None)
    assert request.headers["content-type"] == "application/json"
    assert request.body_bytes == int(request.headers["content-length"])
    assert request.outcome == "answered"


RESULTS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "go"}]},
            {"role": "assistant", "content": None, "tool_calls": [{"id": "c1"}]},
            {"role": "tool", "tool_call_id": "c1", "content": '{"runId": "run_1"}'},
        ]
    },
    "/v1/responses": {
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "go"}]},
            {"type": "function_call", "call_id": "c1", "name": "exec", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": '{"runId": "run_1"}'},
        ]
    },
    "/v1/messages": {
        "messages": [
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "exec"}]},
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "c1",
                        "content": [{"type": "text", "text": '{"runId": "run_1"}'}],
                    }
                ],
            },
        ]
    },
}


@pytest.mark.parametrize("path", RESULTS)
async def test_a_function_of_the_script_goes_on_from_the_last_result(path: str) -> None:
    def go_on(request: RecordedRequest) -> PlainTurn:
        return Say(f"{request.prompt}: {request.last_object['runId']}")

    async with ScriptedProvider([go_on]) as provider, httpx2.AsyncClient() as client:
        answer = await client.post(provider.url + path, json={"model": "m", **RESULTS[path]})
        (request,) = provider.requests
    assert "go: run_1" in answer.text
    assert [each.call_id for each in request.messages if each.role == "tool"] == ["c1"]


@pytest.mark.parametrize("door", DOORS)
async def test_a_failure_has_its_status_its_words_and_when_to_come_back(door: Door) -> None:
    failure = Fail(429, "slow down", retry_after=1.5)
    async with ScriptedProvider([failure, Say("now")]) as provider, clients_of(provider) as clients:
        with pytest.raises((openai.RateLimitError, anthropic.RateLimitError)) as caught:
            await clients.ask(door)
        heard = await clients.ask(door)
        outcomes = [request.outcome for request in provider.requests]
    assert "slow down" in str(caught.value)
    assert caught.value.response.headers["retry-after"] == "1.5"
    assert (heard.text, outcomes) == ("now", ["refused", "answered"])


@pytest.mark.parametrize("door", ["chat stream", "messages stream"])
async def test_a_failure_after_the_first_words_comes_in_the_stream(door: Door) -> None:
    turn = [Say("so far"), Fail(529, "overloaded")]
    async with ScriptedProvider([turn]) as provider, clients_of(provider) as clients:
        with pytest.raises(FAILURES, match="overloaded"):
            await clients.ask(door)


async def test_a_response_that_fails_on_the_way_is_a_failed_response() -> None:
    turn = [Say("so far"), Fail(500, "broken")]
    async with ScriptedProvider([turn]) as provider, clients_of(provider) as clients:
        events = await raw_responses(clients)
    assert (events[-1].type, events[-1].response.error.message) == ("response.failed", "broken")


async def test_a_response_that_was_cut_short_is_incomplete_in_the_stream() -> None:
    async with (
        ScriptedProvider([[Say("so f"), End("length")]]) as provider,
        clients_of(provider) as clients,
    ):
        events = await raw_responses(clients)
    assert events[-1].type == "response.incomplete"
    assert events[-1].response.incomplete_details.reason == "max_output_tokens"


async def test_responses_have_every_kind_of_call_and_read_its_result() -> None:
    turn = [
        Call("find", {"a": 1}, "c1", namespace="docs"),
        Call("patch", "*** Begin", "c2", kind="custom"),
        Call("tool_search", {"query": "q"}, "c3", kind="tool_search"),
    ]
    given: dict[str, Any] = {
        "model": "m",
        "tools": [{"type": "namespace", "name": "docs", "tools": [{"name": "find"}]}],
        "input": [
            {"type": "additional_tools", "tools": [{"type": "custom", "name": "patch"}]},
            {"type": "custom_tool_call_output", "call_id": "c2", "output": "patched"},
            {"type": "tool_search_output", "call_id": "c3", "tools": []},
        ],
    }
    async with ScriptedProvider([turn]) as provider, httpx2.AsyncClient() as client:
        answer = (await client.post(f"{provider.openai_url}/responses", json=given)).json()
        (request,) = provider.requests
        assert request.tool_names == ("docs.find", "patch")
        assert request.tool_results == ("patched", "[]")
    find, patch, search = answer["output"]
    assert (find["type"], find["namespace"]) == ("function_call", "docs")
    assert (patch["type"], patch["input"]) == ("custom_tool_call", "*** Begin")
    assert (search["type"], search["arguments"]) == ("tool_search_call", {"query": "q"})


async def raw_responses(clients: Clients) -> list[Any]:
    stream = await clients.openai.responses.create(model="m", input="go", stream=True)
    return [event async for event in stream]


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("turn", [Cut(), [Say("half of it"), Cut()]], ids=["at once", "halfway"])
async def test_a_cut_breaks_the_connection_and_the_next_request_is_served(
    door: Door, turn: PlainTurn
) -> None:
    async with ScriptedProvider([turn, Say("whole")]) as provider, clients_of(provider) as clients:
        with pytest.raises(FAILURES):
            await clients.ask(door)
        heard = await clients.ask(door)
        assert [request.outcome for request in provider.requests] == ["cut", "answered"]
    assert heard.text == "whole"


@pytest.mark.parametrize("door", DOORS)
async def test_a_stalled_turn_goes_on_when_its_event_is_set(door: Door) -> None:
    stalled, go_on = anyio.Event(), anyio.Event()

    def turn(_request: RecordedRequest) -> PlainTurn:
        stalled.set()
        return [Say("before, "), Stall(go_on), Say("after")]

    texts: list[str] = []
    async with ScriptedProvider([turn]) as provider, clients_of(provider) as clients:

        async def ask() -> None:
            texts.append((await clients.ask(door)).text)

        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ask)
                await stalled.wait()
                assert (texts, provider.requests[0].outcome) == ([], "open")
                go_on.set()
    assert texts == ["before, after"]


@pytest.mark.parametrize("door", DOORS)
async def test_a_client_that_goes_away_is_noticed_at_once(door: Door) -> None:
    arrived = anyio.Event()

    def turn(_request: RecordedRequest) -> PlainTurn:
        arrived.set()
        return [Say("one "), Stall(), Say("two")]

    async with ScriptedProvider([turn]) as provider, clients_of(provider) as clients:
        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(clients.ask, door)
                await arrived.wait()
                tasks.cancel_scope.cancel()
            assert await provider.requests[0].wait_until_over() == "abandoned"


async def test_leaving_the_block_does_not_wait_for_stalled_requests() -> None:
    arrived = anyio.Event()

    def turn(_request: RecordedRequest) -> PlainTurn:
        arrived.set()
        return Stall()

    async def ask(url: str) -> None:
        async with httpx2.AsyncClient() as client:
            with pytest.raises(httpx2.HTTPError):
                await client.post(f"{url}/chat/completions", json={"model": "m"})

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks, ScriptedProvider([turn]) as provider:
            tasks.start_soon(ask, provider.openai_url)
            await arrived.wait()


@pytest.mark.parametrize("door", DOORS)
async def test_a_script_that_is_used_up_says_so(door: Door) -> None:
    async with ScriptedProvider([Say("once")]) as provider, clients_of(provider) as clients:
        await clients.ask(door)
        with pytest.raises(FAILURES, match="the script has only 1 turns") as caught:
            await clients.ask(door)
    assert isinstance(caught.value, (openai.APIStatusError, anthropic.APIStatusError))
    # One that no client asks again for, with or without the header.
    assert caught.value.status_code == 400
    assert caught.value.response.headers["x-should-retry"] == "false"


@pytest.mark.parametrize("api", ["openai-responses", "openai-completions", "anthropic-messages"])
async def test_our_own_clients_do_not_ask_a_used_up_script_again(api: ProviderApi) -> None:
    async with scripted(api, [], max_retries=3) as world:
        with pytest.raises(ProviderError, match="the script has only 0 turns"):
            await world.ask()
    assert len(world.server.requests) == 1


async def test_what_a_function_of_the_script_raises_comes_out_at_the_end() -> None:
    def wrong(request: RecordedRequest) -> PlainTurn:
        raise AssertionError(f"nobody should ask {request.prompt!r}")

    with pytest.raises(AssertionError, match="nobody should ask 'hello'"):
        async with ScriptedProvider(wrong) as provider, clients_of(provider) as clients:
            with pytest.raises(openai.BadRequestError, match="the script failed"):
                await clients.ask("chat")


async def test_many_conversations_play_the_script_each_from_its_beginning() -> None:
    heard: dict[str, list[str]] = {}
    script = [Say("first"), Say("second"), Say("third")]
    async with (
        ScriptedProvider(script, script_for=by_marker(r"session-\d+")) as provider,
        clients_of(provider) as clients,
    ):

        async def converse(name: str, door: Door) -> None:
            heard[name] = [(await clients.ask(door, f"I am {name}")).text for _ in range(3)]

        async with anyio.create_task_group() as tasks:
            for number in range(24):
                tasks.start_soon(converse, f"session-{number}", DOORS[number % len(DOORS)])
        keys = {request.key for request in provider.requests}
    assert list(heard.values()) == [["first", "second", "third"]] * 24
    assert keys == set(heard)


async def test_conversations_may_have_scripts_of_their_own() -> None:
    scripts = {"cats": [Say("meow")], "dogs": [Say("woof")]}
    async with (
        ScriptedProvider(scripts, script_for=by_marker("cats|dogs|fish")) as provider,
        clients_of(provider) as clients,
    ):
        assert (await clients.ask("chat", "about dogs, not cats")).text == "woof"
        assert (await clients.ask("messages", "about cats")).text == "meow"
        with pytest.raises(
            FAILURES, match="no script for the conversation 'fish'; there are: 'cats', 'dogs'"
        ):
            await clients.ask("chat", "about fish")


def test_scripts_by_conversation_need_to_know_how_to_tell_them_apart() -> None:
    with pytest.raises(ValueError, match="script_for"):
        ScriptedProvider({"a": []})


async def test_broken_arguments_are_streamed_as_they_are() -> None:
    pieces: list[str] = []
    async with (
        ScriptedProvider([Call("exec", '{"code": "')]) as provider,
        clients_of(provider) as clients,
    ):
        stream = await clients.openai.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "go"}], stream=True
        )
        async for chunk in stream:
            calls: list[Any] = chunk.choices[0].delta.tool_calls or []
            pieces += [call.function.arguments for call in calls]
    assert "".join(pieces) == '{"code": "'


async def test_broken_arguments_that_a_format_cannot_say_are_named() -> None:
    async with (
        ScriptedProvider([Call("exec", '{"code": "')]) as provider,
        clients_of(provider) as clients,
    ):
        with pytest.raises(FAILURES, match="the arguments of exec are no JSON object"):
            await clients.ask("messages")


async def test_raw_text_stands_in_the_stream_as_it_is() -> None:
    turn = [Say("a"), Raw("data: {not json\n\n")]
    async with ScriptedProvider([turn]) as provider, clients_of(provider) as clients:
        with pytest.raises(json.JSONDecodeError):
            await clients.ask("chat stream")


async def test_raw_text_is_the_whole_of_an_answer_that_is_not_streamed() -> None:
    async with ScriptedProvider([Raw("{oops")]) as provider, httpx2.AsyncClient() as client:
        answer = await client.post(f"{provider.openai_url}/responses", json={"model": "m"})
    assert (answer.status_code, answer.text) == (200, "{oops")


async def test_models_are_listed_as_each_sdk_expects() -> None:
    async with (
        ScriptedProvider([], models=["small", "large"]) as provider,
        clients_of(provider) as clients,
    ):
        of_openai = [model.id async for model in clients.openai.models.list()]
        of_anthropic = [model.id async for model in clients.anthropic.models.list()]
    assert of_openai == of_anthropic == ["small", "large"]


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        ("/chat/completions", b"{}", 404, "/v1/chat/completions"),
        ("/v1/responses", b"[1]", 400, "not a JSON object"),
        ("/v1/messages", b'{"model": ', 400, "not a JSON object"),
    ],
)
async def test_a_request_that_is_none_is_refused_and_takes_no_turn(
    path: str, body: bytes, status: int, words: str
) -> None:
    async with ScriptedProvider([Say("still here")]) as provider, httpx2.AsyncClient() as client:
        refused = await client.post(provider.url + path, content=body)
        served = await client.post(f"{provider.openai_url}/chat/completions", json={"model": "m"})
    assert (refused.status_code, served.status_code) == (status, 200)
    assert words in refused.text


@pytest.mark.parametrize("path", RESULTS)
@pytest.mark.parametrize("content", [None, 7, [None, 1], [{"type": "image"}], {"a": []}])
async def test_odd_messages_are_no_reason_to_fall_over(path: str, content: Any) -> None:
    odd: list[Any] = [content, {"role": "user", "content": content}, {"role": 5, "content": "x"}]
    body = {"messages": odd, "input": odd, "tools": content, "system": content}

    def look(request: RecordedRequest) -> PlainTurn:
        return Say(f"{request.prompt}{request.tool_names}{request.instructions}")

    async with ScriptedProvider(look) as provider, httpx2.AsyncClient() as client:
        answer = await client.post(provider.url + path, json=body)
    assert answer.status_code == 200


def test_the_address_of_a_provider_that_does_not_run_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="async with"):
        _ = ScriptedProvider([]).url


async def test_it_runs_as_a_process_of_its_own(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"a": ["about a"], "b": ["about b"]}), encoding="utf-8")
    command = [sys.executable, "-W", "error", "-m", "nacre.testing.scripted_provider"]

    def ask() -> tuple[list[str], int]:
        with subprocess.Popen(
            [*command, "--script", str(script), "--marker", "[ab]"],
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                assert process.stdout is not None
                url = process.stdout.readline().strip()
                with openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0) as client:
                    answers = [
                        client.responses.create(model="m", input=prompt).output_text
                        for prompt in ("a", "b")
                    ]
            finally:
                process.terminate()
            return answers, process.wait(timeout=60)

    assert await anyio.to_thread.run_sync(ask) == (["about a", "about b"], 0)


def test_a_script_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text('[{"sya": "x"}]', encoding="utf-8")
    done = run_command("--script", str(script))
    assert done.returncode == 2
    assert f"{script}: turn 1: a part is text or an object with one of: say," in done.stderr


def test_conversations_of_a_file_need_a_marker(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text('{"cats": ["meow"]}', encoding="utf-8")
    done = run_command("--script", str(script))
    assert done.returncode == 2
    assert f"{script} has several conversations: `--marker` is required" in done.stderr


def test_a_marker_that_is_no_regular_expression_is_named(tmp_path: Path) -> None:
    done = run_command("--script", str(tmp_path), "--marker", "[")
    assert done.returncode == 2
    assert "argument --marker: '[' is not a regular expression: unterminated" in done.stderr


def run_command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "nacre.testing.scripted_provider", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
