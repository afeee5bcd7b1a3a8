"""The chat command `/diagnostics`: a support bundle, and feedback about the threads of Codex."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from nacre.agent.chat_commands import ChatCommand
from nacre.config import default_diagnostics_folder
from nacre.errors import NacreError, ToolInputError
from nacre.tools import ApprovalMemory, Approvals, Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from nacre.agent.chat_commands import CommandCall
    from nacre.agent.support_bundle import SupportBundle
    from nacre.json_types import JsonObject

_TOOL_NAME: Final = "diagnostics"
_TOOL_ID: Final = f"openclaw:core:{_TOOL_NAME}"
_ANSWER_SECONDS: Final = 600.0
_REASON: Final = (
    "Write a support bundle on this machine: the configuration without secrets, versions, logs, "
    "metrics and the recorded events of this session."
)
_FEEDBACK_REASON: Final = (
    "If the session uses Codex, Codex then sends its feedback about the session, with logs and the "
    "conversation, to OpenAI's servers."
)
_NOTHING_DONE: Final = "Nothing was collected, and nothing was sent"


@dataclass(frozen=True, kw_only=True, slots=True)
class FeedbackThread:
    """A thread of another runtime that belongs to a session."""

    thread_id: str
    session_id: str
    channel: str
    resume_command: str
    """A command that opens the thread on this machine."""

    def describe(self) -> str:
        channel = self.channel or "none"
        return (
            f"channel {channel}, session {self.session_id}, thread {self.thread_id}; "
            f"`{self.resume_command}`"
        )


class ThreadFeedback(Protocol):
    """Sends feedback about threads to the vendor of their runtime."""

    async def list_threads(self, call: CommandCall, /) -> Sequence[FeedbackThread]:
        """The threads of the session that the command is used in."""
        ...

    async def upload(self, call: CommandCall, thread: FeedbackThread, /, *, note: str) -> None:
        """Send the feedback, with logs; raises NacreError."""
        ...


@dataclass(kw_only=True, slots=True)
class Diagnostics:
    """What support bundles of this process contain, besides what the store has."""

    sources: dict[str, Callable[[], bytes]] = field(
        default_factory=dict["str", "Callable[[], bytes]"]
    )
    """Further files by name, such as the logs and the metrics; secrets are removed from them."""
    feedback: ThreadFeedback | None = None
    folder: Path | None = None
    """Where bundles are written; by default, in the user's state directory."""

    def as_command(self) -> ChatCommand:
        return ChatCommand(
            name="diagnostics",
            description="Write a support bundle, after an approval",
            handler=self._handle,
            arguments="[note]",
            right="owner",
        )

    async def _handle(self, call: CommandCall) -> str:
        refused = await self._ask(call)
        if refused is not None:
            # No id of a thread: nobody agreed to show it.
            return f"{_NOTHING_DONE}: {refused.reason}."
        bundle = await self._write_bundle(call)
        described = _describe_bundle(bundle)
        if self.feedback is None:
            return described
        threads = await self.feedback.list_threads(call)
        return "\n\n".join((described, *await send_feedback(self.feedback, call, threads)))

    async def _ask(self, call: CommandCall) -> Refused | None:
        def refuse_edit(edited: JsonObject) -> JsonObject:
            if edited != given:
                raise ToolInputError(
                    "diagnostics cannot be edited; allow or deny them", tool_id=_TOOL_ID
                )
            return edited

        given: JsonObject = {"command": "/diagnostics", "note": call.arguments}
        reasons = (_REASON,) if self.feedback is None else (_REASON, _FEEDBACK_REASON)
        # With a memory of its own, so that it is asked each time.
        approvals = Approvals(
            call.service.approvals, ttl_seconds=_ANSWER_SECONDS, memory=ApprovalMemory()
        )
        answer = await approvals.request(
            tool_id=_TOOL_ID,
            tool_name=_TOOL_NAME,
            input=given,
            reason=" ".join(reasons),
            context=call.identity,
            call_id=f"diagnostics_{call.run.id}",
            check=refuse_edit,
        )
        return answer if isinstance(answer, Refused) else None

    async def _write_bundle(self, call: CommandCall) -> SupportBundle:
        # Imported here, because no turn needs it.
        from nacre.agent.support_bundle import BundleContent

        content = BundleContent(note=call.arguments)
        content.add_config(call.service.config.document)
        content.hide_values_of(call.service.config.mcp_servers)
        for name, read in self.sources.items():
            content.add_text(name, read().decode("utf-8", "replace"))
        session_id = None if call.session is None else call.session.id
        await content.add_trajectories(call.service.store, session_id=session_id)
        return await content.write(self.folder or default_diagnostics_folder(os.environ))


async def send_feedback(
    feedback: ThreadFeedback,
    call: CommandCall,
    threads: Sequence[FeedbackThread],
    *,
    note: str = "",
) -> list[str]:
    """Send the feedback about each thread; returns what was sent and what was not, as text."""
    sent: list[str] = []
    failed: list[str] = []
    for thread in threads:
        try:
            await feedback.upload(call, thread, note=note or call.arguments)
        except NacreError as error:
            failed.append(f"- thread {thread.thread_id}: {error}")
        else:
            sent.append(f"- {thread.describe()}")
    paragraphs: dict[str, list[str]] = {
        "Codex feedback was sent to OpenAI:": sent,
        "Codex feedback was not sent:": failed,
    }
    return ["\n".join((title, *lines)) for title, lines in paragraphs.items() if lines]


def _describe_bundle(bundle: SupportBundle) -> str:
    files = f"{len(bundle.files)} files, {bundle.size_bytes // 1000 + 1} kB"
    missing = "".join(f"\n- missing: {problem}" for problem in bundle.problems)
    return f"Support bundle: {bundle.path} ({files}). It stays on this machine.{missing}"
