"""Progress messages about the nested calls of an `exec` or `wait`."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import anyio

from nacre.display import one_line
from nacre.json_types import NotJsonError, encode_json
from nacre.mcp_client.upstream import MAX_QUESTIONS_PER_CALL
from nacre.tools import OPERATION_MARK

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from nacre.json_types import JsonValue
    from nacre.trajectory import TrajectoryEvent

_MAX_QUEUED: Final = 100
_MAX_MESSAGE_CHARACTERS: Final = 300


@dataclass(kw_only=True, slots=True)
class _NestedCall:
    name: str
    owner: str
    parent_id: str
    question_count: int = 0


class NestedCalls:
    """The running nested calls, and descriptions of their events."""

    def __init__(self) -> None:
        self._running: dict[str, _NestedCall] = {}

    def is_running(self, owner: str, *, parent_id: str) -> bool:
        """Whether a nested call of this parent runs on this server."""
        return bool(self._running_on(owner, parent_id))

    def may_ask(self, owner: str, *, parent_id: str) -> bool:
        """Count a question for one of the running calls. Returns False if all are at the limit."""
        for call in self._running_on(owner, parent_id):
            if call.question_count < MAX_QUESTIONS_PER_CALL:
                call.question_count += 1
                return True
        return False

    def describe_event(self, event: TrajectoryEvent) -> str | None:
        """Describe an event of a nested call for a person. Returns None for other events."""
        if not event.parent_id:
            return None
        if event.kind == "call.started":
            self._running[event.call_id] = _nested_call(event)
        call = self._running.get(event.call_id)
        if event.kind == "call.ended":
            self._running.pop(event.call_id, None)
        state = _describe_state(event)
        if call is None or state is None:
            return None
        return one_line(f"{call.name} {state}", most_characters=_MAX_MESSAGE_CHARACTERS)

    def _running_on(self, owner: str, parent_id: str) -> list[_NestedCall]:
        running = self._running.values()
        return [it for it in running if it.owner == owner and it.parent_id == parent_id]


class ProgressFeed:
    """A bounded queue of progress messages for one client. Dropped messages are counted."""

    def __init__(self, before: ProgressFeed | None = None) -> None:
        """Start with the unsent messages of the feed `before`."""
        self._queued: deque[str] = deque() if before is None else before._queued
        self._skipped = 0 if before is None else before._skipped
        self._number = 0
        self._is_closed = False
        self._wake = anyio.Event()

    def add(self, message: str) -> None:
        """Add a message. If the queue is full, the oldest one is dropped."""
        if len(self._queued) >= _MAX_QUEUED:
            self._queued.popleft()
            self._skipped += 1
        self._queued.append(message)
        self._wake.set()

    def close(self) -> None:
        """Make `send_all` return when all messages are sent."""
        self._is_closed = True
        self._wake.set()

    async def send_all(self, send: Callable[[int, str], Awaitable[None]]) -> None:
        while True:
            while self._queued:
                self._number += 1
                await send(self._number, self._next_message())
            if self._is_closed:
                return
            self._wake = anyio.Event()
            await self._wake.wait()

    def _next_message(self) -> str:
        message, skipped = self._queued.popleft(), self._skipped
        self._skipped = 0
        return f"{message} ({skipped} earlier messages were dropped)" if skipped else message


def _nested_call(started: TrajectoryEvent) -> _NestedCall:
    tool = str(started.data.get("toolName", "")).removeprefix(OPERATION_MARK)
    owner = str(started.data.get("owner", ""))
    return _NestedCall(
        name=f"{owner}: {tool}" if started.data.get("source") == "mcp" else tool,
        owner=owner,
        parent_id=started.parent_id,
    )


def _describe_state(event: TrajectoryEvent) -> str | None:
    match event.kind:
        case "call.started":
            return "(running)"
        case "call.updated":
            return f"({_format_update(event.data.get('update'))})"
        case "call.ended" if event.data.get("outcome") == "completed":
            return "(done)"
        case "call.ended":
            return f"(failed: {event.data.get('error', '')})"
        case "approval.requested":
            return "(needs an approval)"
        case "approval.answered":
            return "(approved)" if event.data.get("answer") == "allow" else "(not approved)"
        case _:
            return None


def _format_update(update: JsonValue) -> str:
    if isinstance(update, str):
        return update
    if isinstance(update, dict) and "progress" in update:
        done, total, message = (update.get(key) for key in ("progress", "total", "message"))
        amount = str(done) if total is None else f"{done}/{total}"
        return f"{amount} {message}" if message else amount
    try:
        return encode_json(update).decode()
    except NotJsonError:
        return "update"
