"""A request that a scripted provider got: what it holds, and how it ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import anyio

from nacre.json_types import NotJsonError, decode_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nacre.json_types import JsonObject, JsonValue
    from nacre.testing.wire.base import SeenMessage, Wire

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
