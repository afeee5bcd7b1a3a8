"""`/diagnostics`: asked each time, local first, and nothing without an approval."""

import json
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import pytest

from nacre.agent import OWNER_RIGHTS, CommandCall, Diagnostics, FeedbackThread
from nacre.agent.diagnostics import BundleContent
from nacre.config import McpServerConfig
from nacre.errors import ApprovalError, CodexError
from nacre.tools import AllowAlways, AllowEdited, AllowOnce, ApprovalDecision, Deny
from tests.agent.agent_setup import AgentSetup, event_of
from tests.agent.conftest import OpenAgent
from tests.contract.requirements import requirement


@dataclass
class FakeFeedback:
    """Two threads; the upload of the second fails."""

    uploads: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])

    async def list_threads(self, call: CommandCall, /) -> Sequence[FeedbackThread]:
        assert call.session
        return [
            FeedbackThread(
                thread_id=name,
                session_id=call.session.id,
                channel=call.request.channel,
                resume_command=f"codex resume {name}",
            )
            for name in ("thread-1", "thread-2")
        ]

    async def upload(self, call: CommandCall, thread: FeedbackThread, /, *, note: str) -> None:
        self.uploads.append((thread.thread_id, note))
        if thread.thread_id == "thread-2":
            raise CodexError("sending feedback is disabled by configuration")


async def diagnose(setup: AgentSetup, session_id: str, answer: ApprovalDecision) -> tuple[Any, str]:
    """The approval request, and the reply to `/diagnostics`."""
    run = await setup.start(
        "/diagnostics it hangs", session_id=session_id, rights=OWNER_RIGHTS, channel="web"
    )
    asked = await event_of(run, "approval.requested")
    setup.approvals.answer(str(asked.data["approvalId"]), answer)
    with anyio.fail_after(30):
        result = await run.wait()
    assert not result.error
    return asked.data, result.text


@requirement("codex:diagnostics-approval", "codex:diagnostics-bundle")
async def test_diagnostics_are_written_and_sent_only_after_an_approval_each_time(
    open_service: OpenAgent, tmp_path: Path
) -> None:
    folder = tmp_path / "bundles"
    feedback = FakeFeedback()
    diagnostics = Diagnostics(
        feedback=feedback, folder=folder, sources={"log.txt": lambda: b"a line\n"}
    )
    async with open_service() as setup:
        setup.service.commands.add(diagnostics.as_command())
        session_id = (await setup.turn()).session_id

        asked, text = await diagnose(setup, session_id, Deny())
        assert "sends its feedback" in asked["reason"]
        assert "OpenAI" in asked["reason"]
        assert "thread-1" not in f"{asked}{text}"
        assert text.startswith("Nothing was collected, and nothing was sent")
        assert not folder.exists()
        assert feedback.uploads == []

        _, text = await diagnose(setup, session_id, AllowAlways())
        # "Always" is not remembered: the second time waits for an answer too.
        _, text = await diagnose(setup, session_id, AllowOnce())
        bundles = list(folder.iterdir())
    assert len(bundles) == 2
    assert feedback.uploads == [("thread-1", "it hangs"), ("thread-2", "it hangs")] * 2
    with zipfile.ZipFile(bundles[0]) as archive:
        names = set(archive.namelist())
        manifest = json.loads(archive.read("manifest.json"))
    assert {"config.json", "log.txt", "manifest.json"} < names
    assert any(name.startswith("trajectories/") for name in names)
    assert manifest["note"] == "it hangs"
    assert str(folder) in text
    assert f"channel web, session {session_id}, thread thread-1; `codex resume thread-1`" in text
    assert "- thread thread-2: sending feedback is disabled by configuration" in text


@requirement("codex:diagnostics-approval")
async def test_an_aborted_or_edited_question_does_nothing(
    open_service: OpenAgent, tmp_path: Path
) -> None:
    folder = tmp_path / "bundles"
    async with open_service() as setup:
        setup.service.commands.add(Diagnostics(folder=folder).as_command())
        run = await setup.start("/diagnostics", rights=OWNER_RIGHTS)
        asked = await event_of(run, "approval.requested")
        assert "OpenAI" not in str(asked.data["reason"])
        with pytest.raises(ApprovalError, match="cannot be edited"):
            setup.approvals.answer(str(asked.data["approvalId"]), AllowEdited({}))
        await run.abort("never mind")
        assert setup.approvals.pending == ()
    assert not folder.exists()


@requirement("codex:diagnostics-owner")
async def test_diagnostics_are_for_the_owner(open_service: OpenAgent, tmp_path: Path) -> None:
    async with open_service() as setup:
        setup.service.commands.add(Diagnostics(folder=tmp_path).as_command())
        run = await setup.turn("/diagnostics")
        result = await run.wait()
        assert "owner" in result.text
        assert setup.approvals.pending == ()


@requirement("codex:diagnostics-bundle")
async def test_values_of_a_server_are_hidden_in_logs_and_events(tmp_path: Path) -> None:
    server = McpServerConfig(
        name="reef",
        transport="http",
        url="http://x/",
        env={"PHRASE": 'open "sesame"', "LEVEL": "debug"},
        headers={"X-Team": "Bearer coral-reef"},
        looked_up=("swordfish",),
    )
    content = BundleContent(note="swordfish")
    content.hide_values_of([server])
    content.add_text("log.txt", 'DEBUG reef: open "sesame", sent coral-reef')
    content.add_json("events.json", {"result": 'open "sesame"', "level": "debug"})
    bundle = await content.write(tmp_path)
    with zipfile.ZipFile(bundle.path) as archive:
        files = {name: archive.read(name).decode() for name in archive.namelist()}
    assert files["log.txt"] == "DEBUG reef: ***, sent ***"
    assert json.loads(files["events.json"]) == {"result": "***", "level": "debug"}
    manifest = json.loads(files["manifest.json"])
    assert (manifest["note"], manifest["files"]["log.txt"]) == ("***", len(files["log.txt"]))
