"""`/diagnostics` over HTTP: the approval, and what the bundle has of a running gateway."""

import logging
import zipfile
from pathlib import Path

from nacre.testing import Say
from tests.contract.requirements import requirement
from tests.gateway.worlds import TOKEN, open_gateway


@requirement("codex:diagnostics-bundle")
async def test_a_bundle_of_a_gateway_has_its_log_and_metrics_and_no_token(tmp_path: Path) -> None:
    async with open_gateway(tmp_path, [Say("Hello.")]) as world:
        world.system.diagnostics.folder = tmp_path / "bundles"
        session_id = (await world.finished("hi"))["sessionId"]
        logging.getLogger("nacre.gateway").warning("the token is %s", f"Bearer {TOKEN}")
        started = await world.start("/diagnostics slow", sessionId=session_id)
        path = f"/api/runs/{started['runId']}/events"
        async for event in world.follow(path):
            if event.kind == "approval.requested":
                break
        [asked] = (await world.get("/api/approvals"))["pending"]
        assert asked["toolName"] == "diagnostics"
        answer = await world.client.post(
            f"/api/approvals/{asked['approvalId']}", json={"answer": "allow-once"}
        )
        assert answer.status_code == 200
        await world.end_of(started["runId"])
        run = await world.get(f"/api/runs/{started['runId']}")
        [bundle] = (tmp_path / "bundles").iterdir()
    assert str(bundle) in run["result"]["text"]
    with zipfile.ZipFile(bundle) as archive:
        files = {name: archive.read(name).decode() for name in archive.namelist()}
    assert "nacre_runs_total" in files["metrics.txt"]
    assert "WARNING nacre.gateway: the token is" in files["log.txt"]
    assert not any(TOKEN in text for text in files.values())
