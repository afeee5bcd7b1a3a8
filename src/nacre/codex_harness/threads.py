"""Threads of Codex: which one a session has, when it gets a new one, and those that are open."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import anyio

from nacre.codex_harness.client import is_unsupported, refuse_request
from nacre.errors import AppServerError, CodexError
from nacre.json_types import get_objects, get_text
from nacre.storage import ThreadRecord

if TYPE_CHECKING:
    from collections.abc import Callable

    from nacre.codex_harness.client import AppServerClient, ThreadListener
    from nacre.codex_harness.dynamic_tools import DynamicTools
    from nacre.json_types import JsonObject, JsonValue
    from nacre.run_context import AbortSignal
    from nacre.storage import Store

logger = logging.getLogger(__name__)

# How long an aborted turn may take to end before the next one fails.
_SETTLE_SECONDS: Final = 20.0
# How long Codex may take to report the start of a compaction or a review.
_START_SECONDS: Final = 5.0
# For the answer and for the output of tools, in a thread that is used again.
_RESERVED_TOKENS: Final = 20_000
_HAS_WRITER: Final = "active writer"
# The context window of a model that Codex does not report.
_UNKNOWN_WINDOW_TOKENS: Final = 300_000


@dataclass(frozen=True, kw_only=True, slots=True)
class ThreadBinding:
    """The thread of a session, and what it was started with.

    Model, effort, approval policy, sandbox, service tier and working directory are sent with each
    turn: they can change without a new thread.
    """

    thread_id: str
    tools_fingerprint: str
    relay_generation: str
    """Of the native hooks; a thread keeps it as long as it lives."""
    engine: JsonValue = None
    """The identity of the context engine."""
    provider: str | None = None
    """The key of the model provider; None if it is not known."""
    model: str = ""
    cwd: str = ""
    last_run_id: str = ""
    """The last run of the session that has succeeded on the thread."""
    used_tokens: int = 0
    """The size of the thread after that run."""
    window_tokens: int = 0
    """The context window of the model as Codex knows it; 0 if it is not known."""
    seen_prompt: JsonObject = field(default_factory=dict[str, "JsonValue"])
    created: float = field(default_factory=time.time)

    def to_json(self) -> JsonObject:
        return {
            "toolsFingerprint": self.tools_fingerprint,
            "relayGeneration": self.relay_generation,
            "engine": self.engine,
            "provider": self.provider,
            "model": self.model,
            "cwd": self.cwd,
            "lastRunId": self.last_run_id,
            "usedTokens": self.used_tokens,
            "windowTokens": self.window_tokens,
            "seenPrompt": self.seen_prompt,
        }

    def to_record(self, session_id: str) -> ThreadRecord:
        return ThreadRecord(
            session_id=session_id,
            thread_id=self.thread_id,
            data=self.to_json(),
            created=self.created,
            updated=time.time(),
        )

    @classmethod
    def from_record(cls, record: ThreadRecord) -> ThreadBinding:
        data = record.data
        seen, provider = data.get("seenPrompt"), data.get("provider")
        return cls(
            thread_id=record.thread_id,
            tools_fingerprint=get_text(data, "toolsFingerprint"),
            relay_generation=get_text(data, "relayGeneration"),
            engine=data.get("engine"),
            provider=provider if isinstance(provider, str) else None,
            model=get_text(data, "model"),
            cwd=get_text(data, "cwd"),
            last_run_id=get_text(data, "lastRunId"),
            used_tokens=_get_count(data, "usedTokens"),
            window_tokens=_get_count(data, "windowTokens"),
            seen_prompt=seen if isinstance(seen, dict) else {},
            created=record.created,
        )

    def has_room(self, new_tokens: int, *, window_tokens: int | None) -> bool:
        """Whether a turn with so many new tokens fits into the configured window.

        Codex compacts the thread for the window that it knows; only a smaller one counts here.
        """
        if window_tokens is None or window_tokens >= (self.window_tokens or _UNKNOWN_WINDOW_TOKENS):
            return True
        most = window_tokens - _RESERVED_TOKENS - new_tokens
        # If even an empty thread would be too large, another one does not help.
        return most <= 0 or self.used_tokens < most


def _get_count(data: JsonObject, key: str) -> int:
    value = data.get(key)
    return value if isinstance(value, int) else 0


class ThreadBindings:
    """The threads of sessions, in the store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def find(self, session_id: str) -> ThreadBinding | None:
        record = await self._store.thread(session_id)
        return None if record is None else ThreadBinding.from_record(record)

    async def put(self, session_id: str, binding: ThreadBinding) -> None:
        await self._store.put_thread(binding.to_record(session_id))

    async def clear(self, session_id: str) -> bool:
        """Forget the thread: the next turn of the session starts a new one."""
        return await self._store.delete_thread(session_id)


class LiveThread:
    """A thread that an app-server has open. It stays the listener of the thread between turns."""

    def __init__(
        self, client: AppServerClient, thread_id: str, *, params: JsonObject | None = None
    ) -> None:
        """`params` are those that the thread was started or resumed with."""
        self.id = thread_id
        self.settings = _find_settings(params or {})
        """What Codex changes only when it loads a thread: its provider and native hooks."""
        self.turn_listener: ThreadListener | None = None
        """The listener of the running turn."""
        self.on_idle_notification: Callable[[str, JsonObject], None] = _ignore
        """Called with notifications between turns, such as those of a compaction."""
        self._client = client
        self._active_turns: set[str] = set()
        self._is_interrupted = False
        self._is_expecting = False
        self._change = anyio.Event()
        self._unsubscribe = client.subscribe(thread_id, self)

    @classmethod
    def find(cls, client: AppServerClient, thread_id: str) -> LiveThread | None:
        """The thread if the app-server has it open."""
        found = client.find_listener(thread_id)
        return found if isinstance(found, cls) else None

    def on_notification(self, method: str, params: JsonObject, /) -> None:
        turn = params.get("turn")
        # A review has two ids: it starts with its own, and ends with that of its root.
        ids = turn if isinstance(turn, dict) else {}
        turn_id = get_text(ids, "rootTurnId") or get_text(ids, "id")
        if turn_id:
            if method == "turn/started":
                self.note_started(turn_id)
                if self._is_interrupted:
                    # Codex ignores the interrupt of a turn that it has accepted but not started.
                    self.interrupt()
            elif method == "turn/completed":
                self._note_ended(turn_id)
        if self.turn_listener is not None:
            self.turn_listener.on_notification(method, params)
        else:
            self.on_idle_notification(method, params)

    async def on_request(self, method: str, params: JsonObject, /) -> JsonValue:
        if self.turn_listener is None:
            return refuse_request(method)
        return await self.turn_listener.on_request(method, params)

    def expect_turn(self) -> None:
        """Codex has accepted a compaction or a review, and reports its start later."""
        self._is_expecting = True

    def note_started(self, turn_id: str) -> None:
        self._active_turns.add(turn_id)
        self._is_expecting = False
        self._notify_change()

    def _note_ended(self, turn_id: str) -> None:
        if turn_id in self._active_turns:
            self._active_turns.remove(turn_id)
        else:
            # In old versions a review ends with an id that its start did not have. A thread runs
            # one turn at a time, so none is left.
            self._active_turns.clear()
        self._is_interrupted &= self.is_active
        self._notify_change()

    @property
    def is_active(self) -> bool:
        """Whether a turn, a compaction or a review runs on the thread."""
        return bool(self._active_turns)

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs on the thread, and nothing is about to start."""
        return not self.is_active and not self._is_expecting

    async def wait_until_idle(self) -> None:
        """Wait for the end of a turn, compaction or review: a new turn would be added to it.

        Raises CodexError if a turn that was interrupted does not end.
        """
        with anyio.move_on_after(_START_SECONDS):
            while self._is_expecting:
                await self._change.wait()
        self._is_expecting = False
        while self.is_active and not self._is_interrupted:
            await self._change.wait()
        if self.is_active:
            self._client.check_alive()
        with anyio.move_on_after(_SETTLE_SECONDS):
            while self.is_active:
                await self._change.wait()
            return
        raise CodexError(
            f"the thread {self.id} still runs an earlier turn; wait for it, or start a new session"
        )

    def has_settings_of(self, params: JsonObject) -> bool:
        """Whether the thread has the settings that it would get with these parameters."""
        return self.settings == _find_settings(params)

    async def unload(self, *, stop: AbortSignal) -> None:
        """Close the thread when it is idle, so that it can be resumed with other parameters.

        Raises AbortedError, and CodexError if a turn does not end.
        """
        with stop.cancelling():
            await self.wait_until_idle()
        stop.raise_if_aborted()
        await self._client.request("thread/unsubscribe", {"threadId": self.id}, abort=stop)
        self.close()

    def interrupt(self) -> None:
        """Ask Codex to end the turns that run on the thread."""
        self._is_interrupted = self.is_active
        self._notify_change()
        for turn_id in self._active_turns:
            self._client.post("turn/interrupt", {"threadId": self.id, "turnId": turn_id})

    async def list_commands(self) -> list[str]:
        """The commands that run in the background; empty if this version does not list them."""
        try:
            answer = await self._client.request(
                "thread/backgroundTerminals/list", {"threadId": self.id}
            )
        except AppServerError as error:
            if is_unsupported(error):
                return []
            raise
        listed = get_objects(answer, "data") if isinstance(answer, dict) else []
        return [get_text(it, "command") for it in listed]

    def end_commands(self) -> None:
        """End the commands that run in the background; a turn can leave some."""
        self._client.post("thread/backgroundTerminals/clean", {"threadId": self.id})

    def _notify_change(self) -> None:
        change, self._change = self._change, anyio.Event()
        change.set()

    def close(self) -> None:
        """The thread is not used any more."""
        self._unsubscribe()


def _ignore(_method: str, _params: JsonObject) -> None:
    pass


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenThread:
    """The thread of one turn."""

    live: LiveThread
    binding: ThreadBinding
    is_new: bool
    is_transient: bool = False
    """Whether it is for this turn only; the session keeps the thread that it has."""
    resumed: JsonObject = field(default_factory=dict[str, "JsonValue"])
    """The thread with its turns as Codex has stored them, if Codex has loaded it for this turn."""
    replaced: str = ""
    """Why the session could not continue the thread that it had; empty if it could."""


class ThreadOpener:
    """Finds the thread of a turn: that of its session if it fits, otherwise a new one."""

    def __init__(
        self,
        client: AppServerClient,
        *,
        bindings: ThreadBindings,
        session_id: str,
        title: str,
        tools: DynamicTools,
        engine: JsonValue,
        provider_key: str,
        window_tokens: int | None,
        new_tokens: int,
        stop: AbortSignal,
        note_request: Callable[[str, JsonObject], None],
    ) -> None:
        """`title` is what lists of threads show for a new one. `window_tokens` is the configured
        window of the model, `new_tokens` the size of the message. `note_request` is given each
        request that is sent."""
        self._client = client
        self._bindings = bindings
        self._session_id = session_id
        self._title = title
        self._tools = tools
        self._engine = engine
        self._provider_key = provider_key
        self._window_tokens = window_tokens
        self._new_tokens = new_tokens
        self._stop = stop
        self._note_request = note_request

    def is_transient(self, binding: ThreadBinding | None, *, is_stored: bool) -> bool:
        """Whether the turn has a thread of its own, so that a special turn does not cost the
        session its thread: sessions that are not stored, and turns without tools."""
        return not is_stored or (binding is not None and self._tools.is_without_tools)

    def find_mismatch(self, binding: ThreadBinding) -> str:
        """Why the thread of a session does not fit this turn; empty if it does."""
        # A thread that was bound by hand has no fingerprint, and was not started for an engine.
        if binding.tools_fingerprint and binding.engine != self._engine:
            return "the context engine has changed"
        if binding.provider not in (None, self._provider_key):
            return "the provider of the model has changed"
        if not self._tools.can_resume:
            return "the tools have changed"
        if not binding.has_room(self._new_tokens, window_tokens=self._window_tokens):
            return f"it has {binding.used_tokens} tokens, too many for the window of the model"
        return ""

    async def open(
        self,
        params: JsonObject,
        binding: ThreadBinding | None,
        *,
        relay_generation: str,
        is_transient: bool,
    ) -> OpenThread:
        """Use the bound thread, or start one with `params`."""
        replaced = ""
        if binding is not None and not is_transient:
            opened = await self._continue(binding, params)
            if isinstance(opened, OpenThread):
                await self._settle(opened.live)
                return opened
            replaced = (
                f"The session has a new Codex thread instead of {binding.thread_id}: {opened}."
            )
            logger.info("%s: %s", self._session_id, replaced)
        live = await self._start({**params, "ephemeral": is_transient})
        new = ThreadBinding(
            thread_id=live.id,
            tools_fingerprint=self._tools.fingerprint,
            relay_generation=relay_generation,
            engine=self._engine,
            provider=self._provider_key,
        )
        if not is_transient:
            await self._bindings.put(self._session_id, new)
            if self._title:
                # Codex would show the beginning of the input, which may be reference material.
                self._client.post("thread/name/set", {"threadId": live.id, "name": self._title})
        return OpenThread(
            live=live, binding=new, is_new=True, is_transient=is_transient, replaced=replaced
        )

    async def _continue(self, binding: ThreadBinding, params: JsonObject) -> OpenThread | str:
        """Open the thread of the session; returns why it cannot be used, if it cannot."""
        if mismatch := self.find_mismatch(binding):
            return mismatch
        opened = await self._find_live(binding, params)
        try:
            return opened or await self._resume(binding, params)
        except AppServerError as error:
            if _HAS_WRITER in error.message:
                return (
                    "another process has it open, such as a second Nacre with the same sessions or "
                    "`codex resume`; end that process, or work in a session of its own"
                )
            return f"Codex cannot resume it ({error.message})"

    async def _find_live(self, binding: ThreadBinding, params: JsonObject) -> OpenThread | None:
        """The thread if the app-server has it open, with the provider and hooks of this turn."""
        live = LiveThread.find(self._client, binding.thread_id)
        if live is None:
            return None
        if live.has_settings_of(params):
            return OpenThread(live=live, binding=binding, is_new=False)
        await self._settle(live)
        await self._request("thread/unsubscribe", {"threadId": live.id})
        live.close()
        return None

    async def forget(self, thread: OpenThread) -> None:
        """The thread cannot be used any more: the next turn gets a new one."""
        if not thread.is_transient:
            await self._bindings.clear(self._session_id)

    async def _settle(self, live: LiveThread) -> None:
        if live.is_idle:
            return
        with self._stop.cancelling():
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_raise_when_closed, self._client)
                await live.wait_until_idle()
                tasks.cancel_scope.cancel()
        self._stop.raise_if_aborted()

    async def _resume(self, binding: ThreadBinding, params: JsonObject) -> OpenThread:
        """Raises AppServerError if Codex cannot resume the thread."""
        live = LiveThread(self._client, binding.thread_id, params=params)
        try:
            answer = await self._request("thread/resume", {"threadId": binding.thread_id, **params})
        except BaseException:
            live.close()
            raise
        thread = answer.get("thread") if isinstance(answer, dict) else None
        resumed = thread if isinstance(thread, dict) else {}
        return OpenThread(live=live, binding=binding, is_new=False, resumed=resumed)

    async def _start(self, params: JsonObject) -> LiveThread:
        while True:
            specs: list[JsonValue] = [*self._tools.specs()]
            try:
                answer = await self._request("thread/start", {**params, "dynamicTools": specs})
                break
            except AppServerError as error:
                # One tool that Codex refuses must not cost the turn.
                if not self._tools.drop_refused(error.message):
                    raise
        thread = answer.get("thread") if isinstance(answer, dict) else None
        thread_id = thread.get("id") if isinstance(thread, dict) else None
        if not isinstance(thread_id, str):
            raise CodexError("Codex started a thread without an id")
        return LiveThread(self._client, thread_id, params=params)

    async def _request(self, method: str, params: JsonObject) -> JsonValue:
        self._note_request(method, params)
        return await self._client.request(method, params, abort=self._stop)


def _find_settings(params: JsonObject) -> JsonObject:
    return {key: params.get(key) for key in ("modelProvider", "config")}


async def _raise_when_closed(client: AppServerClient) -> None:
    raise await client.wait_closed()
