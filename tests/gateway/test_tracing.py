"""Traces of a gateway: a turn is below the request that began it, and that below its caller."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from nacre.testing import Say, ScriptedProvider
from tests.agent.traces import Traces, attributes_of, recording_traces, trace_id
from tests.gateway.worlds import World, open_gateway, open_world

TRACE_ID, SPAN_ID = 0x0123456789ABCDEF0123456789ABCDEF, 0x0123456789ABCDEF
CALLER = {"traceparent": f"00-{TRACE_ID:032x}-{SPAN_ID:016x}-01"}


@pytest.fixture
def traces(monkeypatch: pytest.MonkeyPatch) -> Traces:
    return recording_traces(monkeypatch)


async def run_started(world: World, headers: Mapping[str, str]) -> None:
    answer = await world.client.post("/api/runs", json={"text": "private"}, headers=headers)
    await world.end_of(answer.json()["runId"])


async def test_a_turn_is_in_the_trace_of_who_started_it(tmp_path: Path, traces: Traces) -> None:
    async with open_gateway(tmp_path, [Say("private")]) as world:
        await run_started(world, CALLER)
    assert traces.tree(below=SPAN_ID) == ["POST /api/runs", "  agent turn", "    chat model"]
    assert {trace_id(each) for each in traces.spans} == {TRACE_ID}
    assert "private" not in traces.text()


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_a_client_of_openai_is_followed_as_well(
    tmp_path: Path, traces: Traces, is_streamed: bool
) -> None:
    message = {"role": "user", "content": "private"}
    asked = {"model": "nacre", "messages": [message], "stream": is_streamed}
    async with open_gateway(tmp_path, [Say("private")]) as world:
        answer = await world.client.post("/v1/chat/completions", json=asked, headers=CALLER)
    assert answer.status_code == 200
    assert traces.tree(below=SPAN_ID) == [
        "POST /v1/chat/completions",
        "  agent turn",
        "    chat model",
    ]
    assert "private" not in traces.text()


@pytest.mark.parametrize("header", ["", "00-0-0-01", f"00-{0:032x}-{0:016x}-01"])
async def test_a_request_that_names_no_trace_begins_one(
    tmp_path: Path, traces: Traces, header: str
) -> None:
    async with open_gateway(tmp_path, [Say("one")]) as world:
        await run_started(world, {"traceparent": header, "tracestate": "=,=" * 500})
    assert traces.tree() == ["POST /api/runs", "  agent turn", "    chat model"]


async def test_a_caller_that_does_not_sample_is_not_sampled(tmp_path: Path, traces: Traces) -> None:
    async with open_gateway(tmp_path, [Say("one")]) as world:
        await run_started(world, {"traceparent": CALLER["traceparent"][:-1] + "0"})
    assert traces.spans == []


async def test_probes_are_not_traced(tmp_path: Path, traces: Traces) -> None:
    async with open_gateway(tmp_path) as world:
        for path in ("/healthz", "/readyz", "/metrics"):
            assert (await world.client.get(path)).status_code == 200
    assert traces.spans == []


@pytest.mark.parametrize("api", ["openai-completions", "openai-responses", "anthropic-messages"])
async def test_a_model_call_has_one_span_whatever_its_client_would_add(
    tmp_path: Path, traces: Traces, api: str
) -> None:
    async with ScriptedProvider([Say("private")]) as model:
        url = model.url if api == "anthropic-messages" else model.openai_url
        scripted = {"baseUrl": url, "apiKey": "x", "maxRetries": 0, "api": api}
        document = {"models": {"providers": {"scripted": scripted}}}
        async with open_world(tmp_path, model, document) as world:
            await run_started(world, {})
    assert traces.tree() == ["POST /api/runs", "  agent turn", "    chat model"]
    chat = attributes_of(traces.one("chat model"))
    assert chat["gen_ai.provider.name"] == "scripted"
    assert chat["gen_ai.response.model"] == "model"
    assert chat["gen_ai.response.finish_reasons"] == ("stop",)
    used = "gen_ai.usage.output_tokens"
    assert attributes_of(traces.one("agent turn"))[used] == chat[used] != 0
    # Providers are not told which trace it is.
    assert "traceparent" not in model.requests[0].headers
    assert "private" not in traces.text()
