"""What a scripted model does: turns, and the parts that they are made of."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    import anyio

    from nacre.json_types import JsonObject, JsonValue
    from nacre.messages import Usage
    from nacre.testing.recorded_request import RecordedRequest

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


Spoken: TypeAlias = Say | Think | Call
Part: TypeAlias = Say | Think | Call | Fail | Cut | Stall | Raw | End
PlainTurn: TypeAlias = Part | Sequence[Part]
Turn: TypeAlias = Part | Sequence[Part] | Callable[["RecordedRequest"], PlainTurn]
"""One answer: a part, several in a row, or a function of the request."""
Script: TypeAlias = Sequence[Turn] | Callable[["RecordedRequest"], PlainTurn]
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
