"""Diagnostics for the people who help: support bundles, `/diagnostics`, feedback about Codex."""

from __future__ import annotations

import os
import platform
import re
import sys
import time
import zipfile
from dataclasses import dataclass, field
from functools import partial
from importlib import metadata
from typing import TYPE_CHECKING, Final, Protocol

import anyio.to_thread

import nacre
from nacre.agent.chat_commands import ChatCommand
from nacre.config import default_diagnostics_folder
from nacre.errors import NacreError, StorageError, ToolInputError
from nacre.json_types import encode_json
from nacre.private_files import replace_private
from nacre.telemetry import remove_secrets
from nacre.telemetry.config_redaction import HIDDEN, find_secrets, redact_secrets
from nacre.tools import ApprovalMemory, Approvals, Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from nacre.agent.chat_commands import CommandCall
    from nacre.config import McpServerConfig
    from nacre.json_types import JsonObject, JsonValue
    from nacre.storage import Store

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


_MAX_SESSIONS: Final = 10
_MAX_RUNS: Final = 20
_MAX_RUN_BYTES: Final = 2 << 20
_MAX_FILE_BYTES: Final = 4 << 20
_MAX_BUNDLE_BYTES: Final = 24 << 20
_MAX_NOTE_CHARACTERS: Final = 2_048
_PAGE_EVENTS: Final = 500
# Shorter values are words such as `true` and `debug`, which are everywhere.
_MIN_SECRET_CHARACTERS: Final = 6


@dataclass(frozen=True, kw_only=True, slots=True)
class SupportBundle:
    """A bundle that was written."""

    path: Path
    size_bytes: int
    files: tuple[str, ...]
    problems: tuple[str, ...]
    """What is missing in the bundle, and why."""

    def to_json(self) -> JsonObject:
        return {
            "path": str(self.path),
            "sizeBytes": self.size_bytes,
            "files": [*self.files],
            "problems": [*self.problems],
        }


@dataclass(kw_only=True, slots=True)
class BundleContent:
    """The files of a bundle, up to a limit."""

    note: str = ""
    files: dict[str, bytes] = field(default_factory=dict[str, bytes])
    problems: list[str] = field(default_factory=list[str])
    _total_bytes: int = 0
    _secrets: set[str] = field(default_factory=set[str])
    """Hidden in all files, whatever they look like."""

    def add_json(self, name: str, value: JsonValue) -> None:
        self.add(name, encode_json(value))

    def add_text(self, name: str, text: str) -> None:
        """Add a text without its secrets."""
        self.add(name, remove_secrets(text).encode())

    def add_config(self, document: Mapping[str, object], misplaced: Collection[str] = ()) -> None:
        """Add the configuration. Values at `misplaced` paths are hidden whatever they are."""
        self.add_json("config.json", redact_secrets(document, misplaced=misplaced))
        self._secrets.update(find_secrets(document, misplaced=misplaced))

    def hide_values_of(self, servers: Iterable[McpServerConfig]) -> None:
        """Hide the environment and the headers of MCP servers in all files, such as in what a
        server has logged."""
        for server in servers:
            self._secrets.update((*server.looked_up, *server.env.values()))
            for header in server.headers.values():
                # Others may have the token without `Bearer`.
                self._secrets.update((header, header.rpartition(" ")[2]))

    def add(self, name: str, data: bytes) -> bool:
        """Add a file; the end of a long one is kept. False if the bundle is full."""
        if len(data) > _MAX_FILE_BYTES:
            self.problems.append(f"{name}: only the last {_MAX_FILE_BYTES} of {len(data)} bytes")
            data = data[-_MAX_FILE_BYTES:]
        if self._total_bytes + len(data) > _MAX_BUNDLE_BYTES:
            self.problems.append(f"{name}: left out, because the bundle is full")
            return False
        self._total_bytes += len(data)
        self.files[name] = data
        return True

    async def add_trajectories(self, store: Store, *, session_id: str | None = None) -> None:
        """Add the events of the latest runs, of one session or of all."""
        try:
            for run_id in await _list_runs(store, session_id):
                if not self.add(f"trajectories/{run_id}.jsonl", await _read_run(store, run_id)):
                    break
        except StorageError as error:
            self.problems.append(f"trajectories: {error}")

    async def write(self, folder: Path) -> SupportBundle:
        """Write the bundle into this folder, which is created and private."""
        return await anyio.to_thread.run_sync(partial(self._write, folder))

    def _write(self, folder: Path) -> SupportBundle:
        # The random part keeps two bundles of one second apart.
        now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        path = folder / f"nacre-diagnostics-{now}-{os.urandom(3).hex()}.zip"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        files = {name: self._hide_secrets(data) for name, data in self.files.items()}
        manifest: JsonObject = {
            "createdAt": now,
            "note": remove_secrets(self.note[:_MAX_NOTE_CHARACTERS]),
            "versions": _list_versions(),
            "files": {name: len(data) for name, data in files.items()},
            "problems": [*self.problems],
        }
        files = {"manifest.json": self._hide_secrets(encode_json(manifest)), **files}
        with (
            replace_private(path) as file,
            zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive,
        ):
            for name, data in files.items():
                archive.writestr(name, data)
        return SupportBundle(
            path=path,
            size_bytes=path.stat().st_size,
            files=tuple(files),
            problems=tuple(self.problems),
        )

    def _hide_secrets(self, data: bytes) -> bytes:
        """Replace the secrets, also where they are part of a JSON text."""
        known = [it for it in self._secrets if len(it) >= _MIN_SECRET_CHARACTERS]
        forms = {form for it in known for form in (it.encode(), encode_json(it)[1:-1])}
        if not forms:
            return data
        # The longest first: one may be the beginning of another.
        longest_first = sorted(forms, key=len, reverse=True)
        return re.sub(b"|".join(map(re.escape, longest_first)), HIDDEN.encode(), data)


async def _list_runs(store: Store, session_id: str | None) -> list[str]:
    """The newest runs first."""
    if session_id is None:
        sessions = [session.id for session in await store.sessions(limit=_MAX_SESSIONS)]
    else:
        sessions = [session_id]
    found = [turn for each in sessions for turn in await store.turns(each, limit=_MAX_RUNS)]
    found.sort(key=lambda turn: turn.started, reverse=True)
    return [turn.run_id for turn in found[:_MAX_RUNS]]


async def _read_run(store: Store, run_id: str) -> bytes:
    """The first events of a run, one on each line."""
    lines: list[bytes] = []
    total, after = 0, -1
    while page := await store.events(run_id=run_id, after=after, limit=_PAGE_EVENTS):
        after = page[-1].number
        for stored in page:
            line = encode_json(stored.event) + b"\n"
            total += len(line)
            if total > _MAX_RUN_BYTES:
                return b"".join(lines)
            lines.append(line)
        if len(page) < _PAGE_EVENTS:
            break
    return b"".join(lines)


def _list_versions() -> JsonObject:
    return {
        "nacre": nacre.__version__,
        "python": sys.version,
        "platform": platform.platform(),
        "packages": dict(sorted(_list_packages())),
    }


def _list_packages() -> Iterator[tuple[str, JsonValue]]:
    for distribution in metadata.distributions():
        name = distribution.metadata["Name"]
        if name:
            yield name, distribution.version
