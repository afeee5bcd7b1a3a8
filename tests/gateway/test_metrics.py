"""Metrics, counted exactly and with few names, and the logs of requests and failed runs."""

from pathlib import Path

import anyio
import pytest
from prometheus_client.parser import text_string_to_metric_families

from nacre.gateway import ACCESS_LOG
from nacre.gateway.metrics import Metrics
from nacre.telemetry import LoopStall
from nacre.testing import Call, Fail, Say, Stall
from tests.gateway.worlds import CODE_MODE, World, open_gateway


async def measured(world: World) -> dict[tuple[str, ...], float]:
    """By name and the values of the labels, in the order of the labels' names."""
    answer = await world.client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


async def test_runs_calls_cells_tokens_and_bytes_are_counted(tmp_path: Path) -> None:
    cell = "await tools.list({}); try { await tools.read({path: 'no'}) } catch {} return 1"
    script = [Call("exec", {"code": cell}), Say("done"), Fail(400, "no")]
    async with open_gateway(tmp_path, script, CODE_MODE) as world:
        run = await world.finished()
        await world.finished()
        found = await measured(world)
    usage = run["result"]["usage"]
    assert found["nacre_runs_total", "completed"] == 1
    assert found["nacre_runs_total", "failed"] == 1
    assert found["nacre_tool_calls_total", "no", "completed", "openclaw"] == 1
    assert found["nacre_tool_calls_total", "yes", "completed", "openclaw"] == 1
    assert found["nacre_tool_calls_total", "yes", "failed", "openclaw"] == 1
    assert found["nacre_cells_total", "completed"] == 1
    assert found["nacre_tokens_total", "input", "scripted/model"] == usage["inputTokens"]
    assert found["nacre_tokens_total", "output", "scripted/model"] == usage["outputTokens"]
    assert found["nacre_model_requests_total", "scripted/model"] == 3
    payload = found["nacre_model_sent_bytes_total", "payload"]
    assert payload == sum(request.body_bytes for request in world.model.requests)
    assert 0 < found["nacre_model_sent_bytes_total", "tools"] < payload
    assert found["nacre_run_duration_seconds_count",] == 2
    assert found["nacre_run_first_text_seconds_count",] == 1
    assert found["nacre_runs_active", "running"] == 0


async def test_what_goes_on_is_counted_when_it_is_asked_for(tmp_path: Path) -> None:
    code = "await tools.write({path: 'a', content: 'b'})"
    async with open_gateway(tmp_path, [Call("exec", {"code": code})], CODE_MODE) as world:
        started = await world.start()
        await world.run(started["runId"]).waiting_or_ended()
        found = await measured(world)
        await world.client.post(f"/api/runs/{started['runId']}/abort")
        after = await measured(world)
    assert (found["nacre_runs_active", "waiting"], found["nacre_approvals_pending",]) == (1, 1)
    assert found["nacre_cells_live",] == 1
    assert (after["nacre_runs_active", "waiting"], after["nacre_approvals_pending",]) == (0, 0)
    assert after["nacre_runs_total", "aborted"] == 1


async def test_requests_are_counted_by_route_and_not_by_path(tmp_path: Path) -> None:
    async with open_gateway(tmp_path) as world:
        for n in range(3):
            await world.client.get(f"/api/sessions/{n}")
            await world.client.get(f"/nowhere/{n}")
            await world.client.get(f"/v1/models/{n}")
        await world.client.request("BREW", "/api/sessions")
        await world.client.get("/api/agents", headers={"authorization": ""})
        found = await measured(world)
    assert found["nacre_http_requests_total", "GET", "/api/sessions/{session_id}", "404"] == 3
    assert found["nacre_http_requests_total", "GET", "/v1/models/{model:path}", "404"] == 3
    assert found["nacre_http_requests_total", "GET", "unmatched", "404"] == 3
    assert found["nacre_http_requests_total", "GET", "unmatched", "401"] == 1
    assert not any("/nowhere" in part or part == "BREW" for key in found for part in key)


async def test_models_that_callers_make_up_do_not_make_series_without_end(tmp_path: Path) -> None:
    async with open_gateway(tmp_path) as world:
        metrics = Metrics(world.system)
        with_controls = metrics.model_label("openai/a\x1b[31m")
        labels = {metrics.model_label(f"openai/{n}") for n in range(1000)}
        metrics.close()
    assert with_controls == "other"
    assert len(labels) == 101
    assert "other" in labels


async def test_when_a_series_began_is_not_told(tmp_path: Path) -> None:
    async with open_gateway(tmp_path) as world:
        await world.client.get("/api/agents")
        found = await measured(world)
    assert any(name == "nacre_http_requests_total" for name, *_ in found)
    assert not any(name.endswith("_created") for name, *_ in found)


async def test_requests_are_logged_for_who_asks_for_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_gateway(tmp_path) as world:
        await world.client.get("/api/agents")
        with caplog.at_level("INFO", ACCESS_LOG):
            await world.client.get("/api/a%0Ab?secret=1")
    [line] = [record.getMessage() for record in caplog.records if record.name == ACCESS_LOG]
    assert line.startswith("GET /api/a%0Ab 404 ")


async def test_a_stream_is_logged_when_its_last_byte_is_sent(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def lines() -> list[str]:
        return [record.getMessage() for record in caplog.records if record.name == ACCESS_LOG]

    release = anyio.Event()
    script = [[Say("a "), Stall(release), Say("b")]]
    with caplog.at_level("INFO", ACCESS_LOG):
        async with open_gateway(tmp_path, script) as world:
            run_id = (await world.start())["runId"]
            seen_before_end: list[str] = []
            async for event in world.follow(f"/api/runs/{run_id}/events"):
                if event.kind == "text.delta" and not release.is_set():
                    seen_before_end = lines()
                    release.set()
    assert not any("/events" in line for line in seen_before_end)
    assert any(line.startswith(f"GET /api/runs/{run_id}/events 200 ") for line in lines())


LOGGER = "nacre.gateway.metrics"


def failures(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [
        (record.levelname, record.getMessage())
        for record in caplog.records
        if record.name == LOGGER
    ]


async def test_a_run_that_fails_is_a_warning_with_its_id_its_model_and_the_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    script = [Say("fine"), Fail(400, "no such\nthing 2026-01-01 ERROR nacre: all is lost")]
    async with open_gateway(tmp_path, script) as world:
        await world.finished()
        failed = await world.finished()
    ((level, line),) = failures(caplog)
    assert level == "WARNING"
    assert line.startswith(f"the run {failed['runId']} failed: scripted/model: ")
    assert "all is lost" in line and "\n" not in line


async def test_a_run_that_somebody_aborts_has_not_failed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    code = "await tools.write({path: 'a', content: 'b'})"
    async with open_gateway(tmp_path, [Call("exec", {"code": code})], CODE_MODE) as world:
        run_id = (await world.start())["runId"]
        await world.run(run_id).waiting_or_ended()
        await world.client.post(f"/api/runs/{run_id}/abort")
        assert world.run(run_id).state == "aborted"
    assert failures(caplog) == []


async def test_stalls_of_the_event_loop_are_counted(tmp_path: Path) -> None:
    async with open_gateway(tmp_path) as world:
        metrics: Metrics = world.app.state.gateway.metrics
        metrics.observe_stall(LoopStall(seconds=0.3, cpu_seconds=0.3, stack=""))
        found = await measured(world)
    assert found["nacre_loop_stall_seconds_count",] == 1
    assert found["nacre_loop_stall_seconds_sum",] == 0.3
