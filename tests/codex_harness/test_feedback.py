"""Feedback to OpenAI: `/diagnostics` in a session of Codex, and `/codex diagnostics`."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import anyio

from nacre.agent import OWNER_RIGHTS, ChatCommand, CommandCall
from nacre.codex_harness import AppServerClient, CodexFeedback, FeedbackCommand
from nacre.codex_harness.threads import ThreadBinding, ThreadBindings
from nacre.config import CodexConfig
from nacre.json_types import JsonObject, JsonValue
from nacre.testing import Say
from tests.agent.agent_setup import AgentSetup, event_of
from tests.agent.conftest import OpenAgent
from tests.codex_harness.test_harness import open_setup
from tests.contract.requirements import requirement


@requirement("codex:feedback-upload", "codex:diagnostics-bundle")
async def test_diagnostics_of_a_codex_session_ask_codex_to_send_its_feedback(
    tmp_path: Path,
) -> None:
    # Disabled, so that nothing leaves this machine: Codex itself refuses.
    args = ["app-server", "-c", "feedback.enabled=false"]
    async with open_setup(tmp_path, [Say("Hello.")], codex={"appServer": {"args": args}}) as setup:
        setup.system.diagnostics.folder = tmp_path / "bundles"
        session_id = (await setup.turn("hi")).session_id
        thread = await setup.system.store.thread(session_id)
        assert thread
        replies: list[str] = []
        for answer in ("deny", "allow-once"):
            run = await setup.start("/diagnostics it hangs", rights=OWNER_RIGHTS)
            asked = await event_of(run, "approval.requested")
            assert "OpenAI" in str(asked.data["reason"])
            assert thread.thread_id not in str(asked.data)
            setup.system.approvals.answer(str(asked.data["approvalId"]), answer)
            with anyio.fail_after(60):
                replies.append((await run.wait()).text)
        bundles = list((tmp_path / "bundles").iterdir())
    assert thread.thread_id not in replies[0]
    assert len(bundles) == 1
    assert str(bundles[0]) in replies[1]
    assert f"- thread {thread.thread_id}: " in replies[1]
    assert "sending feedback is disabled" in replies[1]


@dataclass
class AcceptingServer:
    """An app-server whose uploads succeed; no real one can do that without OpenAI."""

    uploads: list[JsonObject] = field(default_factory=list["JsonObject"])

    @asynccontextmanager
    async def use(
        self, _codex: CodexConfig, _agent_id: str, _provider_key: str | None, /
    ) -> AsyncGenerator[AppServerClient]:
        yield cast("AppServerClient", self)

    async def request(self, method: str, params: JsonObject, **_options: Any) -> JsonValue:
        assert method == "feedback/upload"
        self.uploads.append(params)
        return {"threadId": params["threadId"]}


class CodexDiagnostics:
    """`/codex diagnostics` in a service, at a time that the test sets."""

    def __init__(self, setup: AgentSetup) -> None:
        self.now = 0.0
        self.server = AcceptingServer()
        self.session_id = ""
        self._setup = setup
        command = FeedbackCommand(CodexFeedback(self.server), clock=lambda: self.now)

        async def handle(call: CommandCall) -> str:
            return await command.handle(call, call.arguments.removeprefix("diagnostics").strip())

        setup.service.commands.add(
            ChatCommand(name="codex", description="Codex", handler=handle, right="owner")
        )

    async def bind(self, thread_id: str) -> None:
        binding = ThreadBinding(thread_id=thread_id, tools_fingerprint="", relay_generation="")
        await ThreadBindings(self._setup.store).put(self.session_id, binding)

    async def say(self, arguments: str = "", sender: str = "ada") -> str:
        run = await self._setup.turn(
            f"/codex diagnostics {arguments}".strip(),
            session_id=self.session_id,
            sender=sender,
            channel="web",
            rights=OWNER_RIGHTS,
        )
        assert run.result
        return run.result.text

    async def propose(self, note: str = "") -> str:
        """The token of a question."""
        reply = await self.say(note)
        assert "OpenAI" in reply
        assert "thread-" not in reply
        return reply.split("confirm ")[1].split("`")[0]


@requirement("codex:codex-diagnostics")
async def test_the_feedback_of_a_thread_is_sent_after_a_confirmation(
    open_service: OpenAgent,
) -> None:
    async with open_service() as setup:
        codex = CodexDiagnostics(setup)
        codex.session_id = (await setup.turn()).session_id
        assert "no Codex thread" in await codex.say("a note")
        await codex.bind("thread-1")

        # A token is for its sender, for five minutes, and for the thread that was meant.
        token = await codex.propose()
        assert "no open question" in await codex.say(f"confirm {token}", sender="eve")
        assert await codex.say(f"cancel {token}") == "Nothing was sent."
        assert "no open question" in await codex.say(f"confirm {token}")
        token = await codex.propose()
        codex.now += 301
        assert "no open question" in await codex.say(f"confirm {token}")
        token = await codex.propose()
        await codex.bind("thread-2")
        assert "another Codex thread" in await codex.say(f"confirm {token}")
        assert codex.server.uploads == []

        token = await codex.propose("the answer is wrong")
        reply = await codex.say(f"confirm {token}")
        assert f"channel web, session {codex.session_id}, thread thread-2" in reply
        assert "`codex resume thread-2`" in reply
        assert "no open question" in await codex.say(f"confirm {token}")

        assert "less than 60 seconds ago" in await codex.say()
        codex.now += 61
        await codex.propose()
    (upload,) = codex.server.uploads
    assert upload["includeLogs"] is True
    assert upload["reason"] == "the answer is wrong"
    assert (upload["classification"], upload["threadId"]) == ("bug", "thread-2")
