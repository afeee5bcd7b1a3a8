"""The inboxes of sessions: handles what other processes send to the sessions of this one."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, cast

import anyio

from nacre.agent.turn_request import request_from_json
from nacre.errors import ApprovalError, LeaseLostError, NacreError, SessionError, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from anyio.abc import TaskGroup

    from nacre.agent.run import AgentRun
    from nacre.agent.turn_request import TurnRequest
    from nacre.json_types import JsonObject
    from nacre.storage import Cluster, InboxItem, TurnState
    from nacre.trajectory import RunEvent

logger = logging.getLogger(__name__)

_POLL_SECONDS: Final = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Placed:
    """A message that this process runs."""

    run_id: str
    items: tuple[int, ...] = ()
    """Where it is in the inbox of its session."""
    seen: Sequence[RunEvent] | None = None
    """The known events of the run in a process that was to begin it."""


class SessionServer(Protocol):
    """Serves the sessions of this process; the agent service."""

    async def start_here(self, request: TurnRequest, placed: Placed, /) -> AgentRun:
        """Start a turn or a command in this process."""
        ...

    async def continue_here(
        self, state: TurnState, later: Sequence[RunEvent], /
    ) -> AgentRun | None:
        """Continue a turn of another process, with its events after the state; None if that is not
        possible."""
        ...

    async def handle(self, item: InboxItem, /) -> JsonObject:
        """Handle an abort or an answer; returns the result."""
        ...

    def drop(self, session_id: str, /) -> None:
        """Another process serves the session now."""
        ...

    def is_serving(self, session_id: str, /) -> bool: ...

    def is_command(self, request: TurnRequest, /) -> bool:
        """Whether the message is a chat command, which no turn takes."""
        ...


class InboxReader:
    """Handles messages and requests of other processes. Their results go back through the inbox."""

    def __init__(
        self, cluster: Cluster, server: SessionServer, *, is_adopting: Callable[[str], bool]
    ) -> None:
        """`is_adopting` tells whether the turns of a session are being taken over: what is sent to
        it waits for them."""
        self._cluster = cluster
        self._server = server
        self._is_adopting = is_adopting
        self._handling: set[int] = set()
        self._news = anyio.Event()
        self._is_leaving = False

    def wake(self) -> None:
        """There may be new items."""
        self._news.set()

    def leave(self) -> None:
        """Take no more messages: they stay in the inbox for the next owner."""
        self._is_leaving = True

    async def run(self, tasks: TaskGroup) -> None:
        """Handle the items for this process until it is cancelled."""
        while True:
            with anyio.move_on_after(_POLL_SECONDS):
                await self._news.wait()
            self._news = anyio.Event()
            leases = self._cluster.leases
            try:
                for item in await self._cluster.inbox.open_items():
                    if item.session_id not in leases.held:
                        # Another process has given the session to this one.
                        await leases.take(item.session_id)
                    if not self._is_adopting(item.session_id):
                        await self.handle(item, tasks)
            except StorageError as error:
                logger.warning("the inbox cannot be read yet: %s", error)

    async def handle(self, item: InboxItem, tasks: TaskGroup) -> None:
        """Handle an item, unless that happens already; a request in a task of its own."""
        if item.number in self._handling or item.session_id not in self._cluster.leases.held:
            return
        if item.kind == "message" and self._is_leaving:
            return
        self._handling.add(item.number)
        if item.kind == "message":
            # In order: the next one may join the run of this one.
            await self.start_turn(item, run_id=item.run_id)
        else:
            tasks.start_soon(self._handle_request, item)

    async def start_turn(
        self, item: InboxItem, *, run_id: str, seen: Sequence[RunEvent] | None = None
    ) -> None:
        """Start the turn of a message, and tell the process that has accepted it."""
        run, is_command = None, False
        try:
            request = request_from_json(item.payload, session_id=item.session_id)
            is_command = self._server.is_command(request)
            placed = Placed(run_id=run_id, items=(item.number,), seen=seen)
            run = await self._server.start_here(request, placed)
            result: JsonObject = {
                "runId": run.id,
                "sessionId": run.session_id,
                "state": run.state,
                "data": {
                    **describe_run(run.agent_id, run.session_key),
                    "isStored": run.is_stored,
                    "command": run.command,
                },
            }
        except (NacreError, KeyError, TypeError, ValueError) as error:
            result = _describe_error(error)
        is_done = run is None or is_command
        await self._answer(item, result, state="done" if is_done else "accepted", run=run)

    async def _handle_request(self, item: InboxItem) -> None:
        try:
            result = await self._server.handle(item)
        except (NacreError, KeyError, TypeError, ValueError) as error:
            result = _describe_error(error)
        await self._answer(item, {"ok": True, **result})

    async def _answer(
        self,
        item: InboxItem,
        result: JsonObject,
        *,
        state: Literal["accepted", "done"] = "done",
        run: AgentRun | None = None,
    ) -> None:
        try:
            await self._cluster.inbox.answer(
                item, result, state=state, run_id="" if run is None else run.id
            )
        except LeaseLostError:
            logger.info("another gateway handles the inbox item %d", item.number)
        except StorageError as error:
            logger.warning("the inbox item %d is not answered: %s", item.number, error)
        finally:
            self._handling.discard(item.number)


def describe_run(agent_id: str, session_key: str) -> JsonObject:
    """The data of the run of a message, for the process that has accepted it."""
    return {"agentId": agent_id, "sessionKey": session_key, "isStored": True, "command": ""}


def check_result(result: JsonObject) -> JsonObject:
    """Return the result of an item; raises the error that another process has described."""
    match result.get("error"):
        case {"kind": "approval", "message": str(message)}:
            raise ApprovalError(message)
        case {"message": str(message), "code": str(code)}:
            raise SessionError(message, code=cast("Any", code))
        case _:
            return result


def _describe_error(error: Exception) -> JsonObject:
    match error:
        case ApprovalError():
            return {"error": {"kind": "approval", "message": str(error)}}
        case SessionError():
            return {"error": {"message": error.message, "code": error.code}}
        case NacreError():
            return {"error": {"message": str(error), "code": "invalid"}}
        case _:
            return {"error": {"message": f"the message is damaged: {error}", "code": "invalid"}}
