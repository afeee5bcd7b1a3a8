"""Tools that the caller of a turn runs itself: their calls wait for the result of the client."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast

import anyio

from nacre.errors import SessionError, ToolAbortedError, ToolDefinitionError, ToolFailedError
from nacre.json_types import copy_json
from nacre.tools import Tool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from nacre.json_types import JsonObject, JsonValue
    from nacre.tools import ToolCall

_EXPIRY_SECONDS: Final = 900.0
_OWNER: Final = "client"
_MAX_ANSWERED_REMEMBERED: Final = 1024
_MAX_SHOWN_ID: Final = 80


def _any_object() -> JsonObject:
    return {"type": "object", "properties": {}}


@dataclass(frozen=True, kw_only=True, slots=True)
class ClientTool:
    """A tool that the caller of a turn runs itself."""

    name: str
    description: str = ""
    parameters: JsonObject = field(default_factory=_any_object)


@dataclass(frozen=True, kw_only=True, slots=True)
class PendingClientCall:
    """A call that waits for the client's result."""

    call_id: str
    parent_id: str
    """The call of `exec` that it is nested in; empty for a call of the model."""
    name: str
    arguments: JsonObject

    def to_json(self) -> JsonObject:
        wire: JsonObject = {
            "callId": self.call_id,
            "name": self.name,
            "arguments": self.arguments,
        }
        if self.parent_id:
            wire["parentToolCallId"] = self.parent_id
        return wire


@dataclass(kw_only=True, slots=True)
class _OpenCall:
    call: PendingClientCall
    opened: float
    """By the clock of the event loop."""
    is_answered: anyio.Event = field(default_factory=anyio.Event)
    content: JsonValue = None
    is_error: bool = False


class ClientCalls:
    """The open client calls of one run. Each is answered once, or expires."""

    def __init__(
        self,
        *,
        expiry_seconds: float = _EXPIRY_SECONDS,
        on_opened: Callable[[PendingClientCall], None],
        on_closed: Callable[[PendingClientCall, str], None],
    ) -> None:
        self.expiry_seconds = expiry_seconds
        """For new calls."""
        self._on_opened = on_opened
        self._on_closed = on_closed
        self._open: dict[str, _OpenCall] = {}
        self._closed: dict[str, str] = {}

    @property
    def pending(self) -> tuple[PendingClientCall, ...]:
        """Oldest first."""
        return tuple(each.call for each in self._open.values())

    def deliver(self, call_id: str, content: JsonValue, *, is_error: bool = False) -> None:
        """Answer a call. Raises SessionError if it is not open."""
        waiting = self._open.get(call_id)
        if waiting is None:
            raise self._not_open_error(call_id)
        waiting.content, waiting.is_error = content, is_error
        # Close it now, so that a second answer is refused before the call continues.
        self._close(waiting, "answered")
        waiting.is_answered.set()

    def seconds_left(self, call_ids: Iterable[str]) -> float:
        """How long until the first of these calls expires, as far as they are open here."""
        opened = [self._open[call_id].opened for call_id in call_ids if call_id in self._open]
        now = anyio.current_time()
        return self.expiry_seconds - (now - min(opened, default=now))

    def was_closed(self, *call_ids: str) -> bool:
        """Whether one of these calls was closed recently."""
        return any(call_id in self._closed for call_id in call_ids)

    def as_tools(self, tools: Sequence[ClientTool]) -> list[Tool]:
        """Convert client tools. Raises ToolDefinitionError for an invalid one, and a second one
        of a name."""
        names: set[str] = set()
        for tool in tools:
            if tool.name in names:
                raise ToolDefinitionError(f"there are two client tools named {tool.name!r}")
            names.add(tool.name)
        return [self._as_tool(tool) for tool in tools]

    def _as_tool(self, tool: ClientTool) -> Tool:
        async def execute(given: dict[str, Any], call: ToolCall) -> object:
            return await self._wait_for_result(tool.name, cast("JsonObject", given), call)

        return Tool(
            name=tool.name,
            description=tool.description,
            parameters=tool.parameters,
            execute=execute,
            owner=_OWNER,
            source="client",
        )

    async def _wait_for_result(self, name: str, given: JsonObject, call: ToolCall) -> JsonValue:
        tool_id = f"client:{_OWNER}:{name}"
        if call.id in self._open:
            raise ToolFailedError(
                f"a call of {name} with the id {call.id!r} is open already",
                code="tool_failed",
                tool_id=tool_id,
            )
        waiting = _OpenCall(
            call=PendingClientCall(
                call_id=call.id, parent_id=call.parent_id, name=name, arguments=copy_json(given)
            ),
            opened=anyio.current_time(),
        )
        with call.pause_timeout():
            self._open[call.id] = waiting
            self._closed.pop(call.id, None)
            self._on_opened(waiting.call)
            try:
                with anyio.move_on_after(self.expiry_seconds):
                    await waiting.is_answered.wait()
            finally:
                if call.id in self._open and self._open[call.id] is waiting:
                    ending = "given up" if call.abort.is_aborted else "expired"
                    self._close(waiting, ending)
        return self._result_value(waiting, call, tool_id)

    def _result_value(self, waiting: _OpenCall, call: ToolCall, tool_id: str) -> JsonValue:
        if not waiting.is_answered.is_set():
            if call.abort.is_aborted:
                raise ToolAbortedError(call.abort.reason, tool_id=tool_id)
            raise ToolFailedError(
                f"the client gave no result within {self.expiry_seconds:g} seconds",
                code="tool_failed",
                tool_id=tool_id,
            )
        if waiting.is_error:
            said = waiting.content
            raise ToolFailedError(
                said if isinstance(said, str) and said else "the client's tool failed",
                code="tool_failed",
                tool_id=tool_id,
                details={} if said is None or isinstance(said, str) else {"structured": said},
            )
        return waiting.content

    def _close(self, waiting: _OpenCall, ending: str) -> None:
        call_id = waiting.call.call_id
        del self._open[call_id]
        self._closed[call_id] = ending
        if len(self._closed) > _MAX_ANSWERED_REMEMBERED:
            del self._closed[next(iter(self._closed))]
        self._on_closed(waiting.call, ending)

    def _not_open_error(self, call_id: str) -> SessionError:
        shown = repr(call_id[:_MAX_SHOWN_ID])
        ending = self._closed.get(call_id)
        if ending is None:
            known = ", ".join(call.call_id for call in self.pending) or "none"
            return SessionError(
                f"there is no open client call {shown}; open: {known}", code="not_found"
            )
        return SessionError(
            f"the client call {shown} is over: it was {ending}; the result was not taken",
            code="ended",
        )
