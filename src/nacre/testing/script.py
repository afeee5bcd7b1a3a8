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

EndReason = Literal["stop", "tool_calls", "length", "content_filter"]


@dataclass(frozen=True, slots=True)
class Say:
    """The model says something; it is streamed word by word."""

    text: str


@dataclass(frozen=True, slots=True)
class Think:
    """The model thinks, where the format shows that."""

    text: str
    signature: str = "signed-by-the-script"
    """What a provider wants back with it, unread."""


@dataclass(frozen=True, slots=True)
class Call:
    """The model calls a tool."""

    name: str
    arguments: JsonObject | str = field(default_factory=dict[str, "JsonValue"])
    """An object; or text, sent as it is, for a model that writes broken JSON."""
    call_id: str = ""
    """Made up where there is none."""


@dataclass(frozen=True, slots=True)
class Fail:
    """The provider refuses with this status; after the first words, an error in the stream."""

    status: int = 500
    message: str = "the script says that this request fails"
    retry_after: float | None = None
    """Seconds, as a `Retry-After` header."""
    code: str = ""
    """OpenAI's finer name, such as `context_length_exceeded`."""
    is_final: bool = False
    """Whether the SDKs are told not to try again, by a header."""


@dataclass(frozen=True, slots=True)
class Cut:
    """The connection breaks, here and without a word."""


@dataclass(frozen=True, slots=True)
class Stall:
    """Nothing comes until the event is set; without one, until the client goes away."""

    until: anyio.Event | None = None


@dataclass(frozen=True, slots=True)
class Raw:
    """These very characters, be they sound or not."""

    text: str


@dataclass(frozen=True, slots=True)
class End:
    """How the turn ends, where it is not plain: a reason, or tokens that were counted."""

    reason: EndReason | None = None
    usage: Usage | None = None


RequestOutcome = Literal["open", "answered", "refused", "cut", "abandoned"]
"""`refused` is what a `Fail` does; `abandoned` means that the client went away before the end."""


@dataclass(kw_only=True, slots=True)
class RecordedRequest:
    """One request, and what became of it."""

    number: int
    """From 1, in the order of arrival."""
    path: str
    headers: Mapping[str, str]
    """By lower-case name."""
    body: JsonObject
    body_bytes: int
    """As it came over the wire."""
    wire: Wire = field(repr=False)
    key: str = ""
    """The conversation that it belongs to, as `script_for` says."""
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
        """The tools that the model was shown."""
        return tuple(self.wire.tool_names(self.body))

    @property
    def messages(self) -> tuple[SeenMessage, ...]:
        """Who said what, whatever the format."""
        return tuple(self.wire.messages(self.body))

    @property
    def instructions(self) -> str:
        return "\n".join(each.text for each in self.messages if each.role == "system")

    @property
    def prompt(self) -> str:
        """What a person said last."""
        said = [each.text for each in self.messages if each.role == "user"]
        return said[-1] if said else ""

    @property
    def tool_results(self) -> tuple[str, ...]:
        """What all calls so far returned, as the model reads it."""
        return tuple(each.text for each in self.messages if each.role == "tool")

    @property
    def last_result(self) -> JsonValue:
        """What the last call returned: read as JSON where it is JSON; None before any call."""
        if not self.tool_results:
            return None
        text = self.tool_results[-1]
        try:
            return decode_json(text.encode(errors="replace"))
        except NotJsonError:
            return text

    @property
    def last_object(self) -> JsonObject:
        """The last result, for scripts that go on from an `exec`; raises TypeError for others."""
        result = self.last_result
        if not isinstance(result, dict):
            raise TypeError(f"the last result is {str(result)[:200]!r}, not an object")
        return result

    async def wait_until_over(self) -> RequestOutcome:
        """Wait until the answer is out, or cannot be finished any more."""
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
"""One answer: a part, several in a row, or a function of the request."""
Script: TypeAlias = Sequence[Turn] | Callable[[RecordedRequest], PlainTurn]
"""The answers in order; or one function that answers everything."""


def script_fault(problem: str) -> Fail:
    """The answer where the script itself is wrong, rather than what it tells.

    A status that no client tries again: a test that is a turn short fails at once.
    """
    return Fail(400, problem, is_final=True)


def parts_of(turn: Turn, request: RecordedRequest) -> tuple[Part, ...]:
    plain = turn(request) if callable(turn) else turn
    return tuple(plain) if isinstance(plain, Sequence) else (plain,)


def by_marker(pattern: str) -> Callable[[RecordedRequest], str]:
    """For `script_for`: conversations are told apart by what the pattern finds in their prompts.

    The first match in what people said counts, so that a later turn cannot change it.
    """
    compiled = re.compile(pattern)

    def key_of(request: RecordedRequest) -> str:
        said = "\n".join(each.text for each in request.messages if each.role == "user")
        found = compiled.search(said)
        return found.group() if found else ""

    return key_of
