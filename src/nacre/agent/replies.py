"""What the user of a run sees: which texts, and files that are checked, stored and announced."""

from __future__ import annotations

import binascii
import hashlib
import logging
import os
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import anyio

from nacre.config import choose_runtime
from nacre.errors import MediaError, StorageError
from nacre.messages import MAX_MEDIA_BYTES
from nacre.storage import MediaRecord
from nacre.tools import CORE_OWNER, effective_tools, policy_for
from nacre.trajectory import MAX_RUN_EVENTS, RunEventLog

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nacre.agent.run import AgentRun
    from nacre.agent.turn_request import TurnRequest
    from nacre.config import AgentConfig, SystemConfig, VisibleReplies
    from nacre.json_types import JsonObject, JsonValue
    from nacre.run_context import RunContext
    from nacre.storage import Store, Visibility
    from nacre.tools import Tool
    from nacre.trajectory import RunEventKind

logger = logging.getLogger(__name__)

SILENT_REPLIES: Final = ("NO_REPLY", "HEARTBEAT_OK")
"""An answer that is one of these is not shown to anybody."""
MESSAGE_TOOL: Final = "message"

REPLY_RULE: Final = (
    "Your answer at the end of the turn is private: the user does not see it. To tell the user "
    f"something, call the tool `{MESSAGE_TOOL}` with the action `send`. If there is nothing to "
    "tell, do not call it."
)
"""For the instructions of a turn whose answer is private."""

_MAX_MEDIA: Final = 50
_MAX_RUN_BYTES: Final = 64 * 1024 * 1024
_MAX_NAME_CHARACTERS: Final = 200
_MEDIA_ID_BYTES: Final = 16
_UNKNOWN_TYPE: Final = "application/octet-stream"
_TEXT_TYPE: Final = "text/plain"

# Only types that a browser shows without running anything; SVG and HTML can contain scripts.
_SIGNATURES: Final[tuple[tuple[str, int, bytes], ...]] = (
    ("image/png", 0, b"\x89PNG\r\n\x1a\n"),
    ("image/jpeg", 0, b"\xff\xd8\xff"),
    ("image/gif", 0, b"GIF87a"),
    ("image/gif", 0, b"GIF89a"),
    ("image/webp", 8, b"WEBP"),
    ("audio/wav", 8, b"WAVE"),
    ("audio/mpeg", 0, b"ID3"),
    ("audio/mpeg", 0, b"\xff\xfb"),
    ("audio/ogg", 0, b"OggS"),
    ("video/mp4", 4, b"ftyp"),
    ("video/webm", 0, b"\x1a\x45\xdf\xa3"),
    ("application/pdf", 0, b"%PDF-"),
)
_CONTAINERS: Final = frozenset(("image/webp", "audio/wav"))
_TEXT_CONTROLS: Final = frozenset(b"\t\n\r\f\x1b")


def choose_reply_mode(
    config: SystemConfig,
    *,
    agent: AgentConfig,
    request: TurnRequest,
    identity: RunContext,
    tools: Sequence[Tool],
    model: str,
) -> VisibleReplies:
    """`messages.visibleReplies` for a turn. Without the tool `message`, answers are visible: the
    user would never see anything."""
    if config.visible_replies == "automatic" or request.tools_disabled:
        return "automatic"
    permitted = effective_tools(tools, policy_for(agent.tools, identity))
    is_available = any(tool.name == MESSAGE_TOOL and tool.owner == CORE_OWNER for tool in permitted)
    runtime = choose_runtime(model, agent, config.models, config.codex)
    is_excluded = runtime.id == "codex" and MESSAGE_TOOL in config.codex.tools_exclude
    return "message_tool" if is_available and not is_excluded else "automatic"


class ReplyEventLog(RunEventLog):
    """The events of a run, in which text that is not for the user is marked.

    Harnesses add `text.delta` and `message.completed` as the model answers. If the answer is
    private, they become `private.delta`, and the text of a message becomes `privateText`. Text that
    may still become a silent reply, or repeat a sent message, is held back until it is known.
    """

    def __init__(self, *, max_events: int = MAX_RUN_EVENTS) -> None:
        super().__init__(max_events=max_events)
        self.is_private = False
        """Whether answers are not for the user; set before the model is asked."""
        self.sent: list[str] = []
        """The texts that were sent to the user during the turn."""
        self._held: list[str] = []
        self._is_passing = False

    def add(self, kind: RunEventKind, data: JsonObject | None = None) -> None:
        data = data or {}
        text = data.get("text")
        match kind:
            case "text.delta" if isinstance(text, str):
                self._add_delta(text)
            case "message.completed" if isinstance(text, str):
                self._add_message(text, data)
            case "message.sent" if isinstance(text, str):
                if text.strip():
                    self.sent.append(text)
                super().add(kind, data)
            case "model.started" | "run.completed" | "run.failed" | "run.aborted":
                self._start_message()
                super().add(kind, data)
            case _:
                super().add(kind, data)

    def start_message(self) -> None:
        """Another message of the model begins, before `message.completed` of the last one."""
        held = "".join(self._held)
        if held and not self._is_hidden(held):
            super().add("text.delta", {"text": held})
        self._start_message()

    def visibility_of(self, text: str) -> Visibility:
        """Whether the user sees an answer with this text."""
        if self.is_private:
            return "private"
        return "silent" if self._is_hidden(text) else "visible"

    def _add_delta(self, text: str) -> None:
        if self.is_private:
            super().add("private.delta", {"text": text})
            return
        if not self._is_passing:
            self._held.append(text)
            if self._may_be_hidden("".join(self._held)):
                return
            self._is_passing = True
            text = "".join(self._held)
            self._held = []
        super().add("text.delta", {"text": text})

    def _add_message(self, text: str, data: JsonObject) -> None:
        rest = {key: value for key, value in data.items() if key != "text"}
        match self.visibility_of(text):
            case "private":
                super().add("message.completed", {**rest, "privateText": text})
            case "silent" if text.strip() and not self._is_passing:
                super().add("message.completed", {**rest, "text": "", "isSilent": True})
            case _:
                if self._held:
                    super().add("text.delta", {"text": "".join(self._held)})
                super().add("message.completed", data)
        self._start_message()

    def _start_message(self) -> None:
        self._held, self._is_passing = [], False

    def _hidden_texts(self) -> list[str]:
        return [*SILENT_REPLIES, *(text.strip() for text in self.sent)]

    def _is_hidden(self, text: str) -> bool:
        return text.strip() in self._hidden_texts()

    def _may_be_hidden(self, text: str) -> bool:
        start = text.strip()
        return any(hidden.startswith(start) for hidden in self._hidden_texts())


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplyMedia:
    """A file of a reply in a run that is in memory."""

    record: MediaRecord
    path: str = ""
    """Where the file came from on this machine; empty if it was not a file."""
    data: bytes | None = field(default=None, repr=False)
    """The bytes, if the session of the run is not stored."""


class RunMedia:
    """The media of one run. The same content is added once."""

    def __init__(
        self, *, run_id: str, session_id: str, store: Store | None, events: RunEventLog
    ) -> None:
        """Without a store, the bytes stay in memory with the run."""
        self.items: list[ReplyMedia] = []
        self._run_id = run_id
        self._session_id = session_id
        self._store = store
        self._events = events
        self._by_key: dict[str, MediaRecord] = {}
        self._lock = anyio.Lock()

    @property
    def records(self) -> tuple[MediaRecord, ...]:
        return tuple(item.record for item in self.items)

    @property
    def bytes_held(self) -> int:
        """The memory of bytes that are not in the store."""
        return sum(len(item.data or b"") for item in self.items)

    def get(self, media_id: str) -> ReplyMedia | None:
        return next((item for item in self.items if item.record.id == media_id), None)

    async def add(self, data: bytes, *, name: str, path: str = "", key: str = "") -> MediaRecord:
        """Store a file and announce it. A second call with the same content or `key` returns the
        first record. Raises MediaError for a file that is too large, StorageError.
        """
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        async with self._lock:
            known = (key and self._by_key.get(key)) or self._by_key.get(digest)
            record = known or await self._store_file(data, name=name, path=path)
            self._by_key[digest] = record
            if key:
                self._by_key[key] = record
            return record

    async def _store_file(self, data: bytes, *, name: str, path: str) -> MediaRecord:
        self._check_limits(data, name)
        record = MediaRecord(
            id=f"media_{os.urandom(_MEDIA_ID_BYTES).hex()}",
            session_id=self._session_id,
            run_id=self._run_id,
            name=clean_media_name(name),
            type=detect_media_type(data),
            size=len(data),
            created=time.time(),
        )
        if self._store is not None:
            await self._store.media.add(record, data)
        kept = None if self._store is not None else data
        self.items.append(ReplyMedia(record=record, path=path, data=kept))
        self._events.add("media.added", media_to_json(record))
        return record

    def _check_limits(self, data: bytes, name: str) -> None:
        if not data:
            raise MediaError(f"{name} is empty; there is nothing to send")
        if len(data) > MAX_MEDIA_BYTES:
            raise MediaError(
                f"{name} has {len(data)} bytes; a file of a reply may have {MAX_MEDIA_BYTES}"
            )
        if len(self.items) >= _MAX_MEDIA:
            raise MediaError(f"{name} is not sent: a run may send {_MAX_MEDIA} files")
        if sum(item.record.size for item in self.items) + len(data) > _MAX_RUN_BYTES:
            raise MediaError(
                f"{name} is not sent: the files of a run may have {_MAX_RUN_BYTES} bytes together"
            )


async def add_user_images(run: AgentRun, result: JsonValue) -> None:
    """Add to a run the images of an MCP result whose `annotations.audience` names the user.

    A tool says with it that the image is for the user, not only for the model. An image that
    cannot be added is left out: the model has its result.
    """
    content = result.get("content") if isinstance(result, dict) else None
    if not isinstance(content, list):
        return
    for part in content:
        match part:
            case {
                "type": "image",
                "data": str(encoded),
                "annotations": {"audience": list(audience)},
            } if "user" in audience:
                await _add_image(run.media, encoded)
            case _:
                pass


async def _add_image(media: RunMedia, encoded: str) -> None:
    try:
        if len(encoded) > 2 * MAX_MEDIA_BYTES:
            raise MediaError(f"an image has more than {MAX_MEDIA_BYTES} bytes")
        data = binascii.a2b_base64(encoded.encode(), strict_mode=True)
        kind, _, ending = detect_media_type(data).partition("/")
        if kind != "image":
            raise MediaError("an image of a tool is not a PNG, JPEG, GIF or WebP file")
        await media.add(data, name=f"image.{ending}")
    except (MediaError, StorageError, ValueError) as error:
        logger.warning("an image of a tool is not shown to the user: %s", error)


def media_to_json(record: MediaRecord) -> JsonObject:
    """The file as events and results list it."""
    return {**record.to_json(), "url": media_url(record.id)}


def media_url(media_id: str) -> str:
    """The path of the file at the gateway."""
    return f"/api/media/{media_id}"


def detect_media_type(data: bytes) -> str:
    """The type by the content: one of a short list that is safe to show, text, or unknown."""
    for media_type, offset, mark in _SIGNATURES:
        is_container = media_type not in _CONTAINERS or data.startswith(b"RIFF")
        if data[offset : offset + len(mark)] == mark and is_container:
            return media_type
    return _TEXT_TYPE if _is_text(data) else _UNKNOWN_TYPE


def _is_text(data: bytes) -> bool:
    if any(byte < 0x20 and byte not in _TEXT_CONTROLS for byte in data[:65_536]):
        return False
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def clean_media_name(name: str) -> str:
    """The last part of a path, without characters that terminals or headers interpret."""
    last = name.replace("\\", "/").rstrip("/").rpartition("/")[2]
    shown = "".join(character if character.isprintable() else "_" for character in last)
    if len(shown) > _MAX_NAME_CHARACTERS:
        stem, dot, ending = shown.rpartition(".")
        is_short = dot and len(ending) <= 10
        kept = _MAX_NAME_CHARACTERS - (len(ending) + 1 if is_short else 0)
        shown = f"{(stem if is_short else shown)[:kept]}{dot + ending if is_short else ''}"
    return shown or "file"
