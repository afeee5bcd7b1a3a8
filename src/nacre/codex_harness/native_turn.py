"""The native turn of a thread: start, answer its requests, steer, interrupt, take its images."""

from __future__ import annotations

import binascii
import itertools
import logging
import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from nacre.agent import detect_media_type
from nacre.codex_harness.approvals import APPROVAL_METHODS
from nacre.codex_harness.client import refuse_request
from nacre.codex_harness.mirror import MIN_ID_VERSION, PROMPT, make_client_id
from nacre.codex_harness.prompt import build_turn_input
from nacre.errors import (
    AbortedError,
    AppServerError,
    AppServerTimeoutError,
    CodexError,
    MediaError,
    StorageError,
)
from nacre.json_types import get_text
from nacre.messages import MAX_MEDIA_BYTES, UserMessage

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from nacre.agent import TurnContext
    from nacre.codex_harness.approvals import ApprovalBridge
    from nacre.codex_harness.client import AppServerClient
    from nacre.codex_harness.dynamic_tools import DynamicTools
    from nacre.codex_harness.native_hooks import NativeHooks
    from nacre.codex_harness.observations import Observations
    from nacre.codex_harness.projector import Projector
    from nacre.codex_harness.threads import LiveThread
    from nacre.codex_harness.user_input import UserInputBridge
    from nacre.json_types import JsonObject, JsonValue

logger = logging.getLogger(__name__)


class NativeTurn:
    """Listens to one turn of Codex, from its start to its end."""

    def __init__(
        self,
        turn: TurnContext,
        *,
        client: AppServerClient,
        projector: Projector,
        tools: DynamicTools,
        native: NativeHooks,
        approvals: ApprovalBridge,
        user_input: UserInputBridge,
        observations: Observations,
        note_request: Callable[[str, JsonObject], None],
    ) -> None:
        self._turn = turn
        self._client = client
        self._projector = projector
        self._tools = tools
        self._native = native
        self._approvals = approvals
        self._user_input = user_input
        self._observations = observations
        self._note_request = note_request
        self._steering = Steering(turn, projector, has_ids=client.version >= MIN_ID_VERSION)
        self._subagents = SubagentThreads(client, observe=approvals.observe, answer=self._answer)

    async def run(self, live: LiveThread, params: JsonObject) -> None:
        """Start the turn with these parameters and follow it to its end.

        Raises AbortedError, and the error of the turn if it has failed.
        """
        turn = self._turn
        live.turn_listener = self
        self._projector.thread_id = live.id
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._watch_connection)
                tasks.start_soon(self._client.watch)
                tasks.start_soon(self._native.observe_items)
                tasks.start_soon(self._observations.run)
                await self._start(live, params)
                tasks.start_soon(self._interrupt_when_stopped, live)
                tasks.start_soon(self._steer, live)
                await self._projector.ended.wait()
                self._observations.close()
                with turn.stop.cancelling():
                    await self._observations.is_done.wait()
                tasks.cancel_scope.cancel()
        finally:
            turn.queue.stop_steering()
            self._steering.close(is_connected=not self._client.is_closed)
            live.turn_listener = None
            live.interrupt()
            self._native.close()
            self._subagents.close(is_interrupted=turn.stop.is_aborted)
        await self._native.finish()
        await _add_generated_images(turn, self._projector.images.values())
        turn.stop.raise_if_aborted()
        if self._projector.error is not None:
            raise self._projector.error

    async def _start(self, live: LiveThread, params: JsonObject) -> None:
        def interrupt(answer: JsonValue) -> None:
            # The turn was aborted before Codex had started it.
            live.note_started(_turn_id(answer))
            live.interrupt()

        self._note_request("turn/start", params)
        try:
            answer = await self._client.request(
                "turn/start", params, abort=self._turn.stop, on_late=interrupt
            )
        except (AbortedError, CodexError) as error:
            if isinstance(error, AbortedError | AppServerTimeoutError):
                # Codex may start it all the same: the next turn must not become a part of it.
                live.expect_turn()
            if isinstance(error, CodexError):
                data: JsonObject = {"phase": "turn_start_failed", "problem": str(error)}
                self._turn.run.events.add("codex_app_server.lifecycle", data)
            raise
        if not self._projector.turn_id:
            self._projector.turn_id = _turn_id(answer)
            live.note_started(self._projector.turn_id)
        messages = self._turn.output.messages
        if messages and isinstance(messages[0], UserMessage):
            messages[0] = replace(messages[0], identity=self._projector.identity_of(PROMPT))

    async def _watch_connection(self) -> None:
        self._projector.fail(await self._client.wait_closed())

    async def _interrupt_when_stopped(self, live: LiveThread) -> None:
        await self._turn.stop.wait()
        live.interrupt()

    @property
    def has_steered(self) -> bool:
        """Whether the turn has taken messages after its first one."""
        return self._steering.has_taken

    async def _steer(self, live: LiveThread) -> None:
        """Send messages that arrive during the turn, those of one quiet window in one request."""
        queue = self._turn.queue
        while True:
            await queue.wait_for_steered()
            messages = queue.take_steered()
            if not messages:
                continue
            client_id = self._steering.add(messages)
            params: JsonObject = {
                "threadId": live.id,
                "expectedTurnId": self._projector.turn_id,
                "input": [item for message in messages for item in build_turn_input(message)],
                "clientUserMessageId": client_id,
            }
            self._note_request("turn/steer", params)
            try:
                await self._client.request("turn/steer", params)
            except AppServerError:
                # Codex takes none now, such as during a compaction: they run afterwards.
                self._steering.refuse(client_id)
                return
            except AppServerTimeoutError:
                # It may take them all the same.
                pass
            self._steering.accept(client_id)

    # What the app-server sends.

    def is_active(self, thread_id: str, turn_id: str) -> bool:
        """Whether a thread and a turn of Codex are those of this turn."""
        live = self._client.find_listener(thread_id)
        if live is self._subagents:
            return self._subagents.is_active(thread_id, turn_id)
        is_listening = getattr(live, "turn_listener", None) is self
        return is_listening and turn_id in ("", self._projector.turn_id)

    def on_notification(self, method: str, params: JsonObject, /) -> None:
        self._approvals.observe(method, params)
        self._subagents.find_new(params)
        if method == "item/completed":
            self._steering.see_item(params.get("item"))
        self._observations.see(method, params)
        self._projector.take(method, params)

    async def on_request(self, method: str, params: JsonObject, /) -> JsonValue:
        if method == "item/tool/call" and params.get("turnId") != self._projector.turn_id:
            return refuse_request(method)
        return await self._answer(method, params)

    async def _answer(self, method: str, params: JsonObject) -> JsonValue:
        match method:
            case "item/tool/call":
                return await self._tools.call(params)
            case "item/tool/requestUserInput":
                return await self._user_input.ask(params)
            case _ if method in APPROVAL_METHODS:
                return await self._approvals.answer(method, params)
            case _:
                return refuse_request(method)


class Steering:
    """The messages that were sent to a running turn, and whether Codex has taken them.

    The answer to the request says only that Codex has accepted them. It has taken them when it
    reports the item of the user with their id.
    """

    def __init__(self, turn: TurnContext, projector: Projector, *, has_ids: bool) -> None:
        """`has_ids` says whether Codex reports the ids; if not, it takes what it accepts."""
        self.has_taken = False
        self._turn = turn
        self._projector = projector
        self._numbers = itertools.count(1)
        self._has_ids = has_ids
        self._open: dict[str, Sequence[UserMessage]] = {}

    def add(self, messages: Sequence[UserMessage]) -> str:
        """Messages are about to be sent; returns their id for Codex."""
        client_id = make_client_id(self._turn.run.id, f"steer-{next(self._numbers)}")
        self._open[client_id] = messages
        return client_id

    def see_item(self, item: JsonValue) -> None:
        """An item of the turn is complete; never blocks."""
        if isinstance(item, dict) and item.get("type") == "userMessage":
            self._take(get_text(item, "clientId"))

    def accept(self, client_id: str) -> None:
        """Codex has accepted the messages, or may have."""
        if not self._has_ids:
            self._take(client_id)

    def refuse(self, client_id: str) -> None:
        """Codex has refused the messages: they run after the turn, unless it has them."""
        messages = self._open.pop(client_id, None)
        if messages is not None:
            self._turn.queue.put_back(messages)

    def close(self, *, is_connected: bool) -> None:
        """The turn has ended: messages that Codex did not take run afterwards.

        If that is not known, they are not run again, because nothing may be done twice.
        """
        # The last first: each is put in front.
        for client_id in reversed([*self._open]):
            if is_connected:
                self.refuse(client_id)
            else:
                self._take(client_id)

    def _take(self, client_id: str) -> None:
        messages = self._open.pop(client_id, ())
        kind = client_id.rpartition(":")[2]
        for number, message in enumerate(messages):
            identity = self._projector.identity_of(f"{kind}-{number}" if number else kind)
            self._turn.output.messages.append(replace(message, identity=identity))
            self.has_taken = True


class SubagentThreads:
    """The threads of the agents that Codex starts by itself in a turn.

    They have the tools of the turn, and people are asked about their calls like about its own. What
    they say stays inside of Codex.
    """

    def __init__(
        self,
        client: AppServerClient,
        *,
        observe: Callable[[str, JsonObject], None],
        answer: Callable[[str, JsonObject], Awaitable[JsonValue]],
    ) -> None:
        self._client = client
        self._observe = observe
        self._answer = answer
        self._unsubscribers: list[Callable[[], None]] = []
        self._active_turns: dict[str, str] = {}

    def find_new(self, params: JsonObject) -> None:
        """Listen to the agents that an item has started."""
        item = params.get("item")
        if not isinstance(item, dict):
            return
        receivers = item.get("receiverThreadIds")
        for thread_id in (item.get("agentThreadId"), *_as_list(receivers)):
            is_text = isinstance(thread_id, str) and bool(thread_id)
            if is_text and self._client.find_listener(str(thread_id)) is None:
                self._unsubscribers.append(self._client.subscribe(str(thread_id), self))

    def is_active(self, thread_id: str, turn_id: str) -> bool:
        return turn_id in ("", self._active_turns.get(thread_id))

    def on_notification(self, method: str, params: JsonObject, /) -> None:
        thread_id = str(params.get("threadId"))
        if method == "turn/started":
            self._active_turns[thread_id] = _turn_id(params)
        elif method == "turn/completed":
            self._active_turns.pop(thread_id, None)
        self._observe(method, params)
        self.find_new(params)

    async def on_request(self, method: str, params: JsonObject, /) -> JsonValue:
        if not self.is_active(str(params.get("threadId")), str(params.get("turnId") or "")):
            return refuse_request(method)
        return await self._answer(method, params)

    def close(self, *, is_interrupted: bool) -> None:
        """Stop listening; an abort of the turn ends its agents, too."""
        if is_interrupted:
            for thread_id, turn_id in self._active_turns.items():
                self._client.post("turn/interrupt", {"threadId": thread_id, "turnId": turn_id})
        for unsubscribe in self._unsubscribers:
            unsubscribe()
        self._unsubscribers.clear()


def _as_list(value: JsonValue) -> list[JsonValue]:
    return value if isinstance(value, list) else []


def _turn_id(answer: JsonValue) -> str:
    turn = answer.get("turn") if isinstance(answer, dict) else None
    found = turn.get("id") if isinstance(turn, dict) else None
    return found if isinstance(found, str) else ""


async def _add_generated_images(turn: TurnContext, items: Iterable[JsonObject]) -> None:
    """Add the file of each `imageGeneration` item to the reply, once per item.

    The file is that of `savedPath`, or else the base64 text of `result`. A turn without an answer
    and one whose answer is private deliver it as well. An image that cannot be read is left out.
    """
    for item in items:
        try:
            await _add_image(turn, item)
        except (MediaError, StorageError, OSError, ValueError) as error:
            logger.warning("an image of Codex is not shown to the user: %s", error)


async def _add_image(turn: TurnContext, item: JsonObject) -> None:
    item_id, path, encoded = (item.get(key) for key in ("id", "savedPath", "result"))
    name = "image"
    if isinstance(path, str) and path:
        data = await anyio.to_thread.run_sync(_read_file, Path(path))
        name = Path(path).name
    elif isinstance(encoded, str) and encoded:
        if len(encoded) > 2 * MAX_MEDIA_BYTES:
            raise MediaError(f"it has more than {MAX_MEDIA_BYTES} bytes")
        data = binascii.a2b_base64(encoded.encode())
    else:
        return
    kind, _, ending = detect_media_type(data).partition("/")
    if kind != "image":
        # A saved path must not lead to other files.
        raise MediaError(f"{name} is not a PNG, JPEG, GIF or WebP file")
    await turn.run.media.add(
        data,
        name=name if "." in name else f"{name}.{ending}",
        path=path if isinstance(path, str) else "",
        key=f"codex:{item_id}" if isinstance(item_id, str) and item_id else "",
    )


def _read_file(path: Path) -> bytes:
    # Non-blocking, because opening a named pipe would block.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise MediaError(f"{path} is not a file")
        return file.read(MAX_MEDIA_BYTES + 1)
