"""Reading the tools of a request body, and checks that stop a request."""

import pytest

from nacre.config.models import ProviderApi
from nacre.errors import ProviderError, ToolPayloadError
from nacre.json_types import JsonObject, encode_json
from nacre.messages import SentPayload
from nacre.providers.http_client import (
    Exchange,
    UnreadableToolsError,
    current_exchange,
    sent_payload,
)
from nacre.testing import Fail, Say
from tests.providers.asking import SCRIPTED_APIS, WEATHER, scripted

every_api = pytest.mark.parametrize("api", SCRIPTED_APIS)


BODIES: list[tuple[JsonObject, tuple[str, ...]]] = [
    ({}, ()),
    ({"tools": None}, ()),
    ({"tools": [{"type": "function", "function": {"name": "exec"}}]}, ("exec",)),
    ({"tools": [{"type": "function", "name": "exec"}, {"name": "wait"}]}, ("exec", "wait")),
    ({"tools": [{"functionDeclarations": [{"name": "a"}, {"name": "b"}]}]}, ("a", "b")),
    ({"tools": [{"function_declarations": [{"name": "a"}]}]}, ("a",)),
    ({"tools": [{"functionDeclarations": [], "googleSearch": {}}]}, ("googleSearch",)),
    ({"tools": [{"type": "web_search"}]}, ("web_search",)),
    ({"tools": [{"googleSearch": {}}]}, ("googleSearch",)),
    ({"functions": [{"name": "old"}]}, ("old",)),
    ({"input": [{"type": "additional_tools", "tools": [{"name": "late"}]}]}, ("late",)),
    ({"input": [{"role": "user", "content": "x", "tools": "my words"}]}, ()),
    (
        {"input": [{"type": "additional_tools", "role": "developer", "tools": [{"name": "late"}]}]},
        ("late",),
    ),
    ({"input": [{"type": "message", "role": "user", "tools": "my words"}]}, ()),
    ({"tools": [{"name": "exec"}, {"name": "exec"}]}, ("exec", "exec")),
    # A tool of the provider's own is not one of ours because it is called so.
    ({"tools": [{"type": "bash_20250124", "name": "exec"}]}, ("bash_20250124",)),
    ({"tools": [{"type": "mcp", "name": "exec", "server_url": "https://x"}]}, ("mcp",)),
    ({"tools": [{"type": "namespace", "name": "exec", "tools": []}]}, ("namespace",)),
    ({"tools": [{"type": "web_search", "function": {"name": "exec"}}]}, ("web_search",)),
    ({"tools": [{"type": "custom", "name": "exec"}]}, ("exec",)),
    ({"mcp_servers": [{"type": "url", "name": "exec"}]}, ("mcp_servers",)),
    ({"web_search_options": {}}, ("web_search_options",)),
    ({"web_search_options": None, "mcp_servers": []}, ()),
    ({"tools": [{"name": "exec"}], "plugins": [{"id": "web"}]}, ("exec", "plugins")),
    ({"cachedContent": "cachedContents/1"}, ("cachedContent",)),
]


@pytest.mark.parametrize(("body", "names"), BODIES)
def test_the_names_of_tools_are_read_in_every_wire_format(
    body: JsonObject, names: tuple[str, ...]
) -> None:
    assert sent_payload(encode_json(body)).tool_names == names


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff",
        b"{",
        b"[]",
        b"null",
        b'{"tools": {}}',
        b'{"tools": "exec"}',
        b'{"tools": [null]}',
        b'{"tools": [{}]}',
        b'{"tools": [[{"name": "exec"}]]}',
        b'{"tools": [{"name": 1}]}',
        b'{"tools": [{"function": null}]}',
        b'{"tools": [{"function": {"name": null}}]}',
        b'{"tools": [{"functionDeclarations": {"name": "a"}}]}',
        b'{"tools": [{"functionDeclarations": [{}]}]}',
        b'{"functions": 1}',
        b'{"input": [{"tools": 1}]}',
        b'{"a":' * 300 + b"1" + b"}" * 300,
    ],
)
def test_a_body_whose_tools_cannot_be_told_is_not_taken_for_one_without(body: bytes) -> None:
    with pytest.raises(UnreadableToolsError):
        sent_payload(body)


def test_the_weight_of_tools_and_body_is_what_goes_over_the_wire() -> None:
    tools = b'[{"name":"exec"}]'
    body = b'{"model":"m","tools":%b}' % tools
    assert sent_payload(body) == SentPayload(
        tool_names=("exec",), tool_bytes=len(tools), payload_bytes=len(body)
    )


def test_an_unreadable_body_is_not_sent_when_there_is_a_check() -> None:
    def check(_payload: SentPayload) -> None:
        pytest.fail("there is nothing to check")

    exchange = Exchange(check)
    with pytest.raises(ProviderError, match="was not sent: `tools` in its body is not a list"):
        exchange.inspect(b'{"tools": 1}')
    Exchange(None).inspect(b'{"tools": 1}')


def test_what_was_refused_once_is_refused_again_without_asking() -> None:
    asked: list[SentPayload] = []

    def check(payload: SentPayload) -> None:
        asked.append(payload)
        raise ToolPayloadError("no")

    exchange = Exchange(check)
    for _ in range(3):
        with pytest.raises(ToolPayloadError):
            exchange.inspect(b"{}")
    assert len(asked) == 1


def test_a_request_of_nobody_is_not_sent() -> None:
    with pytest.raises(ProviderError, match="belongs to no exchange"):
        current_exchange()


@every_api
async def test_the_check_sees_what_the_provider_gets(api: ProviderApi) -> None:
    seen: list[SentPayload] = []
    async with scripted(api, [Say("ok")]) as test:
        await test.ask(tools=[WEATHER], check=seen.append)

    request = test.server.requests[0]
    assert [payload.tool_names for payload in seen] == [("weather",)] == [request.tool_names]
    assert seen[0].payload_bytes == request.body_bytes
    assert 0 < seen[0].tool_bytes < seen[0].payload_bytes


@every_api
async def test_every_attempt_is_checked(api: ProviderApi) -> None:
    seen: list[SentPayload] = []
    turns = [Fail(500), Fail(500), Say("ok")]
    async with scripted(api, turns, max_retries=2) as test:
        await test.ask(tools=[WEATHER], check=seen.append)

    assert len(seen) == 3


@every_api
@pytest.mark.parametrize("raised", [ToolPayloadError("not these tools"), ValueError("mine")])
async def test_what_the_check_raises_comes_out_as_it_is_and_nothing_is_sent(
    api: ProviderApi, raised: Exception
) -> None:
    asked: list[SentPayload] = []

    def check(payload: SentPayload) -> None:
        asked.append(payload)
        raise raised

    async with scripted(api, [Say("never")], max_retries=3) as test:
        with pytest.raises(type(raised)) as caught:
            await test.ask(tools=[WEATHER], check=check)

    assert caught.value is raised
    assert test.server.requests == []
    assert len(asked) == 1
    assert test.events == []


async def test_a_later_attempt_that_is_refused_ends_it() -> None:
    asked: list[SentPayload] = []

    def check(payload: SentPayload) -> None:
        asked.append(payload)
        if len(asked) == 2:
            raise ToolPayloadError("changed meanwhile")

    async with scripted("openai-responses", [Fail(500), Say("never")], max_retries=3) as test:
        with pytest.raises(ToolPayloadError):
            await test.ask(tools=[WEATHER], check=check)

    assert len(test.server.requests) == 1


async def test_a_check_that_raises_a_provider_error_is_not_asked_twice() -> None:
    asked: list[SentPayload] = []

    def check(payload: SentPayload) -> None:
        asked.append(payload)
        raise ProviderError("mine", is_retryable=True)

    async with scripted("openai-completions", [Say("never")], max_retries=3) as test:
        with pytest.raises(ProviderError, match="mine"):
            await test.ask(check=check)

    assert len(asked) == 1
