"""The script of a scripted model: turns and their parts, and the recorded requests."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

import anyio

from nacre.json_types import NotJsonError, decode_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nacre.json_types import JsonObject, JsonValue
    from nacre.messages import Usage
    from nacre.testing.wire.base import SeenMessage, Wire

CallKind = Literal["function", "custom", "tool_search"]
EndReason = Literal["stop", "tool_calls", "length", "content_filter"]


@dataclass(frozen=True, slots=True)
class Say:
    """Text of the model, streamed word by word."""

    text: str


@dataclass(frozen=True, slots=True)
class Think:
    """Thinking of the model, if the wire format supports it."""

    text: str
    signature: str = "signed-by-the-script"
    """The signature that the client must send back."""


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call of the model."""

    name: str
    arguments: JsonObject | str = field(default_factory=dict[str, "JsonValue"])
    """An object, or text that is sent unchanged: invalid JSON, or the input of a custom tool."""
    call_id: str = ""
    """Generated if it is empty."""
    kind: CallKind = "function"
    """Other kinds exist only in the Responses API; the arguments of `custom` are its input."""
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class Fail:
    """An error response with this status, or an error event if the stream has started."""

    status: int = 500
    message: str = "the script says that this request fails"
    retry_after: float | None = None
    """The seconds in a `Retry-After` header."""
    code: str = ""
    """OpenAI's error code, such as `context_length_exceeded`."""
    is_final: bool = False
    """Whether a header tells the SDKs not to retry."""


@dataclass(frozen=True, slots=True)
class Cut:
    """The connection is closed here."""


@dataclass(frozen=True, slots=True)
class Stall:
    """A pause until the event is set, or without one until the client disconnects."""

    until: anyio.Event | None = None


@dataclass(frozen=True, slots=True)
class Raw:
    """Text that is sent unchanged, valid or not."""

    text: str


@dataclass(frozen=True, slots=True)
class End:
    """The finish reason and the usage of a turn, if the defaults are not right."""

    reason: EndReason | None = None
    usage: Usage | None = None


RequestOutcome = Literal["open", "answered", "refused", "cut", "abandoned"]
"""`refused` is the outcome of a `Fail`; `abandoned` means that the client disconnected early."""


@dataclass(kw_only=True, slots=True)
class RecordedRequest:
    """One request and its outcome."""

    number: int
    """From 1, in the order of arrival."""
    path: str
    headers: Mapping[str, str]
    """By lower-case name."""
    body: JsonObject
    body_bytes: int
    """The size of the body."""
    wire: Wire = field(repr=False)
    key: str = ""
    """The name of its conversation, from `script_for`."""
    outcome: RequestOutcome = "open"
    _ended: anyio.Event = field(default_factory=anyio.Event, init=False, repr=False)

    @property
    def model(self) -> str:
        return str(self.body.get("model", ""))

    @property
    def is_streaming(self) -> bool:
        return self.body.get("stream") is True

    @property
    def tool_names(self) -> tuple[str, ...]:
        """The names of the tools in the request."""
        return tuple(self.wire.tool_names(self.body))

    @property
    def messages(self) -> tuple[SeenMessage, ...]:
        """The messages with their roles, in any wire format."""
        return tuple(self.wire.messages(self.body))

    @property
    def instructions(self) -> str:
        return "\n".join(each.text for each in self.messages if each.role == "system")

    @property
    def prompt(self) -> str:
        """The last message of the user."""
        texts = [each.text for each in self.messages if each.role == "user"]
        return texts[-1] if texts else ""

    @property
    def tool_results(self) -> tuple[str, ...]:
        """The results of all tool calls, as text."""
        return tuple(each.text for each in self.messages if each.role == "tool")

    @property
    def last_result(self) -> JsonValue:
        """The result of the last call, parsed if it is JSON; None if there is no call."""
        if not self.tool_results:
            return None
        text = self.tool_results[-1]
        try:
            return decode_json(text.encode(errors="replace"))
        except NotJsonError:
            return text

    @property
    def last_object(self) -> JsonObject:
        """The result of the last call, which must be an object; raises TypeError."""
        result = self.last_result
        if not isinstance(result, dict):
            raise TypeError(f"the last result is {str(result)[:200]!r}, not an object")
        return result

    async def wait_until_over(self) -> RequestOutcome:
        """Wait until the response is complete or has failed."""
        await self._ended.wait()
        return self.outcome

    def end(self, outcome: RequestOutcome) -> None:
        if self.outcome == "open":
            self.outcome = outcome
            self._ended.set()


Spoken: TypeAlias = Say | Think | Call
Part: TypeAlias = Say | Think | Call | Fail | Cut | Stall | Raw | End
PlainTurn: TypeAlias = Part | Sequence[Part]
Turn: TypeAlias = Part | Sequence[Part] | Callable[[RecordedRequest], PlainTurn]
"""One response: a part, a sequence of parts, or a function of the request."""
Script: TypeAlias = Sequence[Turn] | Callable[[RecordedRequest], PlainTurn]
"""The turns in order, or one function for all requests."""


def script_fault(problem: str) -> Fail:
    """The response for a mistake in the script.

    Clients do not retry its status, so that a test with too few turns fails at once.
    """
    return Fail(400, problem, is_final=True)


def parts_of(turn: Turn, request: RecordedRequest) -> tuple[Part, ...]:
    plain = turn(request) if callable(turn) else turn
    return tuple(plain) if isinstance(plain, Sequence) else (plain,)


def by_marker(pattern: str) -> Callable[[RecordedRequest], str]:
    """A function for `script_for`: the first match of the pattern in the user's messages.

    Later turns do not change the first match.
    """
    compiled = re.compile(pattern)

    def find_key(request: RecordedRequest) -> str:
        text = "\n".join(each.text for each in request.messages if each.role == "user")
        match = compiled.search(text)
        return match.group() if match else ""

    return find_key
