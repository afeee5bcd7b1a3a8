"""Runs that fail are in the log, once each; those that are aborted are not."""

from pathlib import Path

import pytest

from nacre.testing import Call, Fail, Say
from tests.gateway.worlds import CODE_MODE, open_gateway

LOGGER = "nacre.gateway.app"


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
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
    ((level, line),) = lines(caplog)
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
    assert lines(caplog) == []
