"""What the debug switches log of requests and streams, and what they never log."""

import logging

import pytest

from nacre.config.models import ProviderApi, ProviderConfig
from nacre.providers import pydantic_ai_provider
from nacre.providers.http_client import WireLog
from nacre.providers.provider_secrets import ProviderSecrets
from nacre.telemetry.debug_flags import DebugFlags
from nacre.testing import Fail, Say
from tests.providers.asking import API_KEY, SCRIPTED_APIS, WEATHER, scripted

every_api = pytest.mark.parametrize("api", SCRIPTED_APIS)
HEADER_SECRET = "header-secret-98765"
TYPED_SECRET = "sk-abcdefghijklmnop0123"


async def lines_of(
    api: ProviderApi,
    flags: DebugFlags,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> list[str]:
    """What is logged while a provider that fails once answers a question."""
    monkeypatch.setattr(pydantic_ai_provider, "debug_flags", lambda: flags)
    turns = [Fail(500, f"trouble with {API_KEY}"), Say(f"Good morning {TYPED_SECRET} to you all")]
    headers = {"x-secret": HEADER_SECRET}
    with caplog.at_level(logging.INFO, logger="nacre.debug"):
        async with scripted(api, turns, max_retries=1, headers=headers) as test:
            await test.ask(f"my token is {TYPED_SECRET}, a b c", tools=[WEATHER])
    return [
        f"{record.name}: {record.getMessage()}"
        for record in caplog.records
        if record.name.startswith("nacre.debug")
    ]


ALL_FLAGS = [
    DebugFlags(model_transport=True),
    DebugFlags(model_payload="tools"),
    DebugFlags(model_payload="full-redacted"),
    DebugFlags(sse="events"),
    DebugFlags(sse="peek"),
]


@every_api
@pytest.mark.parametrize("flags", ALL_FLAGS)
async def test_no_secret_is_ever_logged(
    api: ProviderApi,
    flags: DebugFlags,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    lines = await lines_of(api, flags, monkeypatch, caplog)

    assert lines
    for secret in (API_KEY, HEADER_SECRET, TYPED_SECRET):
        assert secret not in "\n".join(lines)


async def test_without_a_switch_nothing_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert await lines_of("openai-completions", DebugFlags(), monkeypatch, caplog) == []


@every_api
async def test_the_transport_switch_tells_attempts_statuses_and_bytes(
    api: ProviderApi, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    flags = DebugFlags(model_transport=True)
    lines = await lines_of(api, flags, monkeypatch, caplog)

    assert all(line.startswith("nacre.debug.model_transport: POST http://1") for line in lines)
    log = "\n".join(lines)
    assert "attempt 1, " in log
    assert "status 500" in log
    assert "attempt 2, " in log
    assert "status 200" in log
    assert "bytes received" in lines[-1]


@every_api
async def test_the_payload_switch_names_the_tools_on_the_wire(
    api: ProviderApi, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lines = await lines_of(api, DebugFlags(model_payload="tools"), monkeypatch, caplog)

    assert len(lines) == 2
    assert "tools: weather (" in lines[0]


@every_api
async def test_the_payload_switch_can_show_the_whole_body(
    api: ProviderApi, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    flags = DebugFlags(model_payload="full-redacted")
    lines = await lines_of(api, flags, monkeypatch, caplog)

    assert '"The weather of a town."' in lines[0]
    assert "my token is [redacted]" in lines[0]


@every_api
async def test_the_stream_switch_tells_the_kind_and_size_of_each_event(
    api: ProviderApi, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lines = await lines_of(api, DebugFlags(sse="events"), monkeypatch, caplog)

    assert len(lines) > 5
    assert lines[0].startswith("nacre.debug.sse: 1: ")
    assert all(line.endswith(" bytes") for line in lines)
    assert "Good" not in "\n".join(lines)


@every_api
async def test_the_stream_switch_can_show_the_first_five_events(
    api: ProviderApi, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lines = await lines_of(api, DebugFlags(sse="peek"), monkeypatch, caplog)

    assert [line.split(":")[1] for line in lines] == [" 1", " 2", " 3", " 4", " 5"]
    assert "{" in lines[0]


def test_a_large_body_is_shown_in_part(caplog: pytest.LogCaptureFixture) -> None:
    secrets = ProviderSecrets(ProviderConfig(name="p", api="openai-completions"))
    log = WireLog(DebugFlags(model_payload="full-redacted"), secrets)
    body = b'{"messages":[%b"end"]}' % (b'"%b",' % (b"x" * 1000) * 1000)
    with caplog.at_level(logging.INFO, logger="nacre.debug"):
        log.request(method="POST", url="http://a/b", body=body, attempt=1)

    assert 1000 < len(caplog.records[0].getMessage()) < 50_000


def test_a_body_that_cannot_be_read_is_said_to_be_so(caplog: pytest.LogCaptureFixture) -> None:
    secrets = ProviderSecrets(ProviderConfig(name="p", api="openai-completions"))
    log = WireLog(DebugFlags(model_payload="tools"), secrets)
    with caplog.at_level(logging.INFO, logger="nacre.debug"):
        log.request(method="POST", url="http://a/b", body=b"\xff\x00", attempt=1)

    assert "cannot be shown" in caplog.records[0].getMessage()


def test_an_address_is_shown_without_user_and_query() -> None:
    secrets = ProviderSecrets(ProviderConfig(name="p", api="openai-completions", api_key="k" * 20))
    shown = secrets.url(f"https://me:pass@host:81/v1/{'k' * 20}/chat?key=abc#d")
    assert shown == "https://host:81/v1/[redacted]/chat"
    assert secrets.url("http://[broken") == "[not a URL]"
