"""The messages of a turn: stored, repaired for providers and measured; and its trajectory."""

from __future__ import annotations

import asyncio
import logging
import threading
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, assert_never, cast

import anyio

from nacre.errors import LeaseLostError, SessionError, StorageError
from nacre.messages import (
    AssistantMessage,
    ImagePart,
    Message,
    SystemMessage,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolMessage,
    Usage,
    UserMessage,
)
from nacre.trajectory import CALL_EVENT_KINDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence, Set

    from nacre.json_types import JsonObject, JsonValue
    from nacre.storage import BegunTurn, Store, StoredMessage, ThreadRecord, TurnStatus
    from nacre.trajectory import CallEventKind, RunEventLog, TrajectoryEvent, TrajectoryRecorder


logger = logging.getLogger(__name__)

_FIRST_KINDS: Final = frozenset(("call.started", "cell.started", "approval.requested"))
_BATCH_EVENTS: Final = 200
_MAX_PENDING_EVENTS: Final = 10_000
_BATCH_SECONDS: Final = 1.0
_WRITE_SECONDS: Final = 10.0
_FIRST_WAIT_SECONDS: Final = 0.5
_MAX_WAIT_SECONDS: Final = 15.0
NO_RESULT: Final = "[no result: the call was cut off]"
_BYTES_PER_TOKEN: Final = 4
# Providers count images by their size, which a URL does not tell.
_TOKENS_PER_IMAGE: Final = 1_500
_TOKENS_PER_MESSAGE: Final = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnEnd:
    """The end of a turn, as it is stored."""

    status: TurnStatus
    messages: Sequence[Message] = ()
    usage: Usage = field(default_factory=Usage)
    error: str = ""
    data: JsonObject = field(default_factory=dict[str, "JsonValue"])
    thread: ThreadRecord | None = None
    """Replaces the thread of the session."""


class Transcript:
    """The messages of one turn in its session. Without a store, nothing is stored."""

    def __init__(
        self,
        store: Store | None,
        *,
        session_id: str,
        run_id: str,
        given_history: Sequence[Message] | None,
    ) -> None:
        self.session_id = session_id
        self._store = store
        self._run_id = run_id
        self._given = given_history
        self._stored: list[StoredMessage] = []
        self._is_loaded = False
        self.begun: BegunTurn | None = None
        """The session and its thread when the turn began; None if nothing is stored."""
        self.assembled: list[Message] | None = None
        """The messages of a context engine instead of those of the session."""
        # None if it is not known, because the response of the store was lost.
        self._is_begun: bool | None = False

    @property
    def history(self) -> list[Message]:
        """The messages before this turn, without the images of tools and programs.

        Their markers stay. Images would be paid for in every turn, and one that a provider cannot
        read would end every later turn of the session, not only its own.
        """
        messages = self._given if self.assembled is None else self.assembled
        if messages is None:
            messages = [stored.message for stored in self._stored]
        return list(map(_without_images, messages))

    @property
    def stored(self) -> Sequence[StoredMessage]:
        """The messages of the session; empty if the caller keeps the history."""
        return self._stored

    @property
    def is_begun(self) -> bool:
        """Whether the turn is, or may be, in the store."""
        return self._is_begun is not False

    async def load(self) -> None:
        """Read the messages of the session from the store."""
        self.assembled = None
        if self._store is not None and self._given is None:
            self._stored = await self._store.messages(self.session_id)
            self._is_loaded = True

    async def ensure_loaded(self) -> None:
        """Read the messages of the session unless `begin` or `load` has done so."""
        if not self._is_loaded:
            await self.load()

    async def begin(
        self,
        *,
        prompt: Message | None,
        model: str,
        surface: str,
        title: str = "",
        loads_messages: bool = True,
        items: Sequence[int] = (),
    ) -> None:
        """Store the start of the turn, and load the messages of the session; a session without a
        title gets this one. `items` are the messages in its inbox that the turn begins with."""
        if self._store is None:
            return
        # A turn in the store has to be ended there, so this must not be cancelled half-way.
        with anyio.CancelScope(shield=True):
            try:
                self.begun = await self._store.begin_turn(
                    run_id=self._run_id,
                    session_id=self.session_id,
                    prompt=prompt,
                    model=model,
                    surface=surface,
                    title=title,
                    loads_messages=loads_messages and self._given is None,
                    items=items,
                )
            except StorageError as error:
                self._is_begun = None if error.is_uncertain else False
                raise
            self._is_begun = True
        if self.begun is not None:
            self._stored = await self._store.decode_messages(self.begun)
            self._is_loaded = loads_messages

    async def begin_again(self) -> None:
        """Load the messages of the session for a turn that another process has begun."""
        self._is_begun = True
        await self.load()

    async def end(
        self, end: TurnEnd, events: Sequence[JsonObject], *, items: Sequence[int] = ()
    ) -> None:
        """Store the whole turn at once, with the last events of its trajectory. `items` are the
        messages in the inbox that the turn has taken."""
        if self._store is None or self._is_begun is False:
            return
        try:
            await self._store.end_turn(
                self._run_id,
                status=end.status,
                messages=end.messages,
                usage=end.usage,
                error=end.error,
                data=end.data,
                events=events,
                thread=end.thread,
                items=items,
            )
        except SessionError as error:
            # The turn was not in the store after all.
            if self._is_begun or error.code != "not_found":
                raise

    async def replace_by_summary(self, *, up_to_sequence: int, summary: str) -> None:
        """Replace all messages up to this one by the summary."""
        assert self._store is not None
        await self._store.add_compaction(
            self.session_id, up_to_sequence=up_to_sequence, summary=summary
        )
        await self.load()

    def older_than(self, keep_turns: int) -> list[StoredMessage]:
        """The messages before the last `keep_turns` turns, with an earlier summary; empty if
        there is only that summary."""
        runs = list(dict.fromkeys(each.run_id for each in self._stored if not each.is_summary))
        kept = set(runs[max(0, len(runs) - keep_turns) :])
        older = [each for each in self._stored if each.is_summary or each.run_id not in kept]
        return older if any(not each.is_summary for each in older) else []

    def estimate_tokens(self, new: Sequence[Message], *, keep_turns: int) -> int:
        """Estimate the tokens that the model would read."""
        runs = {each.run_id for each in self._stored if not each.is_summary}
        has_summary = any(each.is_summary for each in self._stored)
        # Usage that was counted before the summary does not hold for the shorter session.
        trusts_usage = (not has_summary or len(runs) > keep_turns) and self.assembled is None
        return estimate_tokens([*self.history, *new], trusts_usage=trusts_usage)


class TrajectoryWriter:
    """Writes the events of a trajectory to the run's log at once, and to the store in batches.

    A tool runs only after the start of its call is stored. If the store fails, the events are
    written later, and the log says how many are lost.
    """

    def __init__(
        self,
        recorder: TrajectoryRecorder,
        *,
        event_log: RunEventLog,
        store: Store | None,
        on_call: Callable[[], None],
        known_calls: Set[str] = frozenset(),
    ) -> None:
        """`known_calls` are calls whose start another process has recorded."""
        self._known_calls = known_calls
        self._event_log = event_log
        self._store = store
        self._context = recorder.context
        self._on_call = on_call
        self._pending: list[JsonObject] = []
        self._taken_count = 0
        self._settled_count = 0
        """How many events are stored or lost."""
        self._is_due = anyio.Event()
        self._attempted = anyio.Event()
        """Set after the next attempt to write; `_problem` says why it failed."""
        self._problem = ""
        self._loop = asyncio.get_running_loop()
        self._thread_id = threading.get_ident()
        for event in recorder.events:
            self._take(event)
        self._unsubscribe = recorder.subscribe(self._receive)
        recorder.wait_until_stored = self.wait_until_stored

    async def write(self) -> None:
        """Write each batch when a call waits for it, or it is full or a second old; run this as a
        task."""
        while True:
            with anyio.move_on_after(_BATCH_SECONDS):
                await self._is_due.wait()
            await self.flush()

    async def wait_until_stored(self) -> None:
        """Return when all events so far are stored; calls that wait at the same time share a
        transaction. Raises StorageError."""
        if self._store is None:
            return
        wanted = self._taken_count
        while self._settled_count < wanted:
            self._is_due.set()
            await self._attempted.wait()
            if self._problem:
                raise StorageError(self._problem)

    async def flush(self) -> None:
        """Write the pending events; a cancellation does not interrupt it."""
        batch = self._take_batch()
        if not batch or self._store is None:
            return
        context, problem, is_uncertain = self._context, "the store did not answer", False
        with anyio.move_on_after(_WRITE_SECONDS, shield=True):
            try:
                await self._store.add_events(context.run_id, context.session_id, batch)
                problem = ""
            except StorageError as error:
                problem, is_uncertain = str(error), error.is_uncertain
        if problem:
            self._keep_or_drop(batch, problem, is_uncertain=is_uncertain)
        else:
            self._settled_count += len(batch)
        self._problem = problem
        attempted, self._attempted = self._attempted, anyio.Event()
        attempted.set()

    def _keep_or_drop(self, batch: list[JsonObject], problem: str, *, is_uncertain: bool) -> None:
        """Write the events with the next batch, unless they are too many or may be stored."""
        if not is_uncertain and len(batch) + len(self._pending) <= _MAX_PENDING_EVENTS:
            self._pending = [*batch, *self._pending]
            return
        self._settled_count += len(batch)
        logger.error(
            "%d events of the run %s are lost: %s", len(batch), self._context.run_id, problem
        )

    def close(self) -> list[JsonObject]:
        """Stop listening; returns the events that are not written."""
        self._unsubscribe()
        self._settled_count = self._taken_count
        # A call that still waits does not run.
        self._problem = "the turn has ended"
        self._attempted.set()
        return self._take_batch()

    def _take_batch(self) -> list[JsonObject]:
        batch, self._pending = self._pending, []
        self._is_due = anyio.Event()
        return batch

    def _receive(self, event: TrajectoryEvent) -> None:
        # Tools may report progress from other threads.
        if threading.get_ident() == self._thread_id:
            self._take(event)
        else:
            self._loop.call_soon_threadsafe(self._take, event)

    def _take(self, event: TrajectoryEvent) -> None:
        if event.kind in _FIRST_KINDS and event.call_id in self._known_calls:
            return
        self._pending.append(event.to_json())
        self._taken_count += 1
        if len(self._pending) % _BATCH_EVENTS == 0:
            self._is_due.set()
        if event.kind in CALL_EVENT_KINDS:
            self._event_log.add(cast("CallEventKind", event.kind), _log_data(event))
        elif event.kind == "approval.answered" and event.data.get("how") == "always":
            # Allowed by an earlier "always". All other answers come from the approval queue.
            self._event_log.add("approval.answered", {**_log_data(event), "how": "remembered"})
        # A suspended cell may wait for fewer calls than before.
        if event.kind.startswith("call.") or event.kind == "cell.suspended":
            self._on_call()


def _log_data(event: TrajectoryEvent) -> JsonObject:
    data: JsonObject = {"toolCallId": event.call_id, **event.data}
    return {**data, "parentToolCallId": event.parent_id} if event.parent_id else data


class FailedTurnWrites:
    """Retries recording turns whose final write failed. The next start finds those still open."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._ends: dict[str, TurnEnd] = {}
        self._added = anyio.Event()
        self._scope = anyio.CancelScope()

    def add(self, run_id: str, end: TurnEnd) -> None:
        """Add a turn; `end` has no messages."""
        self._ends[run_id] = end
        self._added.set()

    async def write(self) -> None:
        """Write the turns that are added, until `close`; run this as a task."""
        with self._scope:
            while True:
                await self._added.wait()
                self._added = anyio.Event()
                await self._retry_until_written()

    def close(self) -> None:
        self._scope.cancel()

    async def _retry_until_written(self) -> None:
        wait_seconds = _FIRST_WAIT_SECONDS
        while self._ends:
            await anyio.sleep(wait_seconds)
            wait_seconds = min(2 * wait_seconds, _MAX_WAIT_SECONDS)
            await self._write_all()

    async def _write_all(self) -> None:
        """Stop at the first that fails, and try it last the next time."""
        for run_id, end in list(self._ends.items()):
            try:
                await self._write_one(run_id, end)
            except StorageError:
                self._ends[run_id] = self._ends.pop(run_id)
                return
            del self._ends[run_id]

    async def _write_one(self, run_id: str, end: TurnEnd) -> None:
        try:
            await self._store.end_turn(
                run_id,
                status=end.status,
                messages=end.messages,
                usage=end.usage,
                error=end.error,
                data=end.data,
            )
        except (SessionError, LeaseLostError) as error:
            # The session was deleted, the turn never began, the write succeeded after all, or
            # another gateway serves the session now.
            logger.warning("the turn %s is left as it is: %s", run_id, error)
        else:
            logger.warning("the store answers again: the turn %s is noted as failed", run_id)


def _without_images(message: Message) -> Message:
    return replace(message, images=()) if isinstance(message, ToolMessage) else message


def repair_history(messages: Iterable[Message], *, missing: str = NO_RESULT) -> list[Message]:
    """Make messages valid for providers: each call has exactly one result, right after it, and no
    answer is empty."""
    sound: list[Message] = []
    open_calls: dict[str, ToolCallPart] = {}
    for message in messages:
        if isinstance(message, ToolMessage):
            # Drop results without a call, and second results.
            if open_calls.pop(message.call_id, None) is not None:
                sound.append(message)
            continue
        sound.extend(_make_missing_results(open_calls, missing))
        open_calls = {}
        if isinstance(message, AssistantMessage):
            if not _has_content(message):
                continue
            open_calls = {call.call_id: call for call in message.tool_calls}
        sound.append(message)
    sound.extend(_make_missing_results(open_calls, missing))
    return sound


def estimate_tokens(messages: Sequence[Message], *, trusts_usage: bool = True) -> int:
    """Estimate the tokens of messages. The usage of an answer covers all messages before it, unless
    they have changed since."""
    tokens = 0
    for message in reversed(messages):
        if trusts_usage and isinstance(message, AssistantMessage) and message.usage.total_tokens:
            return tokens + message.usage.total_tokens
        tokens += _estimate_message_tokens(message)
    return tokens


def _make_missing_results(calls: dict[str, ToolCallPart], text: str) -> list[ToolMessage]:
    return [
        ToolMessage(call_id=call.call_id, name=call.name, content=text, is_error=True)
        for call in calls.values()
    ]


def _has_content(message: AssistantMessage) -> bool:
    return bool(message.tool_calls) or bool(message.text.strip())


def message_size(message: Message) -> int:
    """The size of the text in bytes, with the URLs of images."""
    match message:
        case SystemMessage():
            return _count_bytes(message.text)
        case UserMessage() | AssistantMessage():
            return sum(map(_part_size, message.parts))
        case ToolMessage():
            return _count_bytes(message.content) + sum(map(_part_size, message.images))
        case _:
            assert_never(message)


def _estimate_message_tokens(message: Message) -> int:
    images = _images_of(message)
    size = message_size(message) - sum(map(_part_size, images))
    image_tokens = len(images) * _TOKENS_PER_IMAGE
    return size // _BYTES_PER_TOKEN + image_tokens + _TOKENS_PER_MESSAGE


def _images_of(message: Message) -> Sequence[ImagePart]:
    match message:
        case UserMessage():
            return [part for part in message.parts if isinstance(part, ImagePart)]
        case ToolMessage():
            return message.images
        case _:
            return ()


def _part_size(part: TextPart | ImagePart | ThinkingPart | ToolCallPart) -> int:
    match part:
        case ToolCallPart():
            return _count_bytes(part.name) + _count_bytes(part.arguments)
        case ImagePart():
            return _count_bytes(part.url)
        case TextPart() | ThinkingPart():
            return _count_bytes(part.text)


def _count_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode(errors="replace"))
