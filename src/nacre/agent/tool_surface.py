"""The tools that a model sees in a run: protocol, call results, tool specs and payload check."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, Protocol, cast

from nacre.errors import ToolPayloadError
from nacre.json_types import NotJsonError, decode_json, encode_json
from nacre.messages import SentPayload, ToolSpec
from nacre.tools import Tool, part_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence, Set

    from nacre.json_types import JsonObject, JsonValue
    from nacre.messages import ToolCallPart
    from nacre.trajectory import TrajectoryRecorder


SurfaceKind = Literal["direct", "tool_search", "code_mode"]


class ToolSurface(Protocol):
    """What one run shows its model. Its methods may be called concurrently."""

    @property
    def kind(self) -> SurfaceKind: ...

    @property
    def specs(self) -> Sequence[ToolSpec]:
        """The tools of every request of the run."""
        ...

    @property
    def trajectory(self) -> TrajectoryRecorder: ...

    def verify(self, sent: SentPayload) -> None:
        """Raises when a request is about to show other tools than `specs`; counts it otherwise."""
        ...

    async def call(self, call: ToolCallPart) -> CallResult:
        """Do what the model asked for. A call that fails has a result, too.

        Returns when there is something for the model: what waits for a person or a client is
        waited for here.
        """
        ...

    def is_held(self, call: ToolCallPart, *, open_ids: Set[str]) -> bool:
        """Whether the call, which runs, goes on only when somebody answers one of the questions
        about the calls with these ids."""
        ...

    async def abort(self, reason: str) -> None:
        """End everything that runs. It takes no more calls."""
        ...

    def telemetry(self) -> JsonObject:
        """What was found and called so far, for the record of the turn."""
        ...


MAX_RESULT_BYTES: Final = 256 * 1024
_MAX_LISTED_NAMES: Final = 40


@dataclass(frozen=True, kw_only=True, slots=True)
class CallResult:
    """As the model reads it."""

    content: str
    is_error: bool = False


def format_result(value: JsonValue, *, is_mcp: bool = False) -> CallResult:
    """A text as it is, anything else as JSON; of an MCP result its parts."""
    if is_mcp and isinstance(value, dict):
        parts = value.get("content")
        if isinstance(parts, list):
            return _format_mcp_parts(value, parts)
    return CallResult(content=truncate_result(_format_value(value)))


def format_error_result(message: str) -> CallResult:
    return CallResult(content=truncate_result(message), is_error=True)


def parse_arguments(text: str) -> JsonObject | CallResult:
    """The arguments that a model wrote, or the result that tells it what is wrong with them."""
    if not text.strip():
        return {}
    try:
        arguments = decode_json(text.encode(errors="replace"))
    except NotJsonError as error:
        return format_error_result(f"the arguments are not JSON: {error}; nothing was called")
    if not isinstance(arguments, dict):
        kind = type(arguments).__name__
        return format_error_result(f"the arguments are a {kind}; they have to be an object")
    return arguments


def unknown_tool(name: str, known: Sequence[str]) -> CallResult:
    shown = ", ".join(known[:_MAX_LISTED_NAMES]) or "none"
    more = len(known) - _MAX_LISTED_NAMES
    rest = f" and {more} more" if more > 0 else ""
    return format_error_result(f"there is no tool {name[:120]!r}; there are: {shown}{rest}")


def truncate_result(text: str) -> str:
    """At most so many bytes; a longer one says how long it was."""
    sound = text.encode(errors="replace")
    if len(sound) <= MAX_RESULT_BYTES:
        return text if text.isascii() else sound.decode()
    kept = sound[:MAX_RESULT_BYTES].decode(errors="ignore")
    return f"{kept}\n[cut: the whole result has {len(sound)} bytes; ask for less at a time]"


def _format_value(value: JsonValue) -> str:
    return value if isinstance(value, str) else encode_json(value).decode()


def _format_mcp_parts(result: JsonObject, parts: list[JsonValue]) -> CallResult:
    texts = [part_text(cast("JsonObject", part)) for part in parts if isinstance(part, dict)]
    structured = result.get("structuredContent")
    if not texts and structured is not None:
        texts = [_format_value(structured)]
    return CallResult(
        content=truncate_result("\n".join(texts)), is_error=result.get("isError") is True
    )


_MAX_SHOWN_NAMES: Final = 10


def verify_names(sent: Sequence[str], *, expected: Sequence[str]) -> None:
    """Fail closed: a model may see just the tools of its run. Raises ToolPayloadError."""
    too_many = Counter(sent) - Counter(expected)
    missing = Counter(expected) - Counter(sent)
    if too_many or missing:
        raise ToolPayloadError(
            "the model request does not hold exactly the tools of the run; "
            f"too many: {_join_names(too_many)}; missing: {_join_names(missing)}. Nothing was sent"
        )


def _join_names(names: Counter[str]) -> str:
    listed = list(names.elements())
    more = len(listed) - _MAX_SHOWN_NAMES
    shown = ", ".join(listed[:_MAX_SHOWN_NAMES]) or "none"
    return f"{shown} and {more} more" if more > 0 else shown


_MAX_NAME_CHARACTERS: Final = 64
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_-]+")


def make_tool_specs(definitions: Sequence[JsonObject]) -> list[ToolSpec]:
    """Specs of definitions in Anthropic's shape, which is the plainest."""
    return [
        ToolSpec(
            name=str(each["name"]),
            description=str(each["description"]),
            parameters=cast("JsonObject", each["input_schema"]),
        )
        for each in definitions
    ]


def assign_tool_names(tools: Iterable[Tool]) -> dict[str, Tool]:
    """Each tool under a name of its own: its name where that is free and one that providers take,
    else a name with its owner in it."""
    shown: dict[str, Tool] = {}
    for tool in tools:
        is_fine = _NAME.fullmatch(tool.name) and tool.name not in shown
        shown[tool.name if is_fine else _free_name(tool, shown)] = tool
    return shown


def _free_name(tool: Tool, taken: dict[str, Tool]) -> str:
    wanted = _NOT_IN_NAMES.sub("_", f"{tool.owner}__{tool.name}")
    name, count = wanted[:_MAX_NAME_CHARACTERS], 1
    while name in taken:
        count += 1
        ending = f"_{count}"
        name = wanted[: _MAX_NAME_CHARACTERS - len(ending)] + ending
    return name
