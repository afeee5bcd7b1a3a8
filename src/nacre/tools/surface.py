"""The tool surface of a run: its protocol, and the rules that all surfaces share."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Final, Literal, Protocol, cast

from nacre.errors import CatalogError, NacreError, ToolPayloadError
from nacre.json_types import NotJsonError, decode_json, describe_json_type, encode_json
from nacre.large_json import encode_large, is_plain, is_small, run_in_json_thread
from nacre.lazy_dataclasses import dataclass, replace
from nacre.lazy_exports import lazy_pattern
from nacre.messages import ToolSpec
from nacre.tools.catalog import is_control_tool
from nacre.tools.definition import part_text, take_images
from nacre.tools.executor import CallSite

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence, Set

    from nacre.errors import ToolError
    from nacre.json_types import JsonObject, JsonValue
    from nacre.messages import ImagePart, SentPayload, ToolCallPart
    from nacre.run_context import AbortSignal
    from nacre.tools.definition import Tool

SurfaceKind = Literal["direct", "tool_search", "code_mode"]

MAX_RESULT_BYTES: Final = 256 * 1024
# A value with more members is cut as a whole.
_MAX_CUT_MEMBERS: Final = 32
_MAX_LISTED_TOOLS: Final = 40
_MAX_LISTED_DIFFERENCES: Final = 10
_MAX_SHOWN_NAME: Final = 120
_MAX_NAME_CHARACTERS: Final = 64
_CALL_ID_BYTES: Final = 8
_NAME: Final = lazy_pattern(r"[A-Za-z0-9_-]{1,64}")
_NOT_IN_NAMES: Final = lazy_pattern(r"[^A-Za-z0-9_-]+")


class ToolSurface(Protocol):
    """The tools that a model sees in one run. Its methods may be called concurrently."""

    @property
    def kind(self) -> SurfaceKind: ...

    @property
    def specs(self) -> Sequence[ToolSpec]:
        """The tools of every model request of the run."""
        ...

    def verify_payload(self, sent: SentPayload) -> None:
        """Count a model request, just before it is sent. Raises ToolPayloadError unless it has
        exactly the tools of `specs`."""
        ...

    async def execute_call(self, call: ToolCallPart, waits: CallWaits) -> CallResult:
        """Execute a call of the model. A call that fails has a result, too.

        Calls that wait for a person or a client return when they have been answered.
        """
        ...

    def is_held(self, call: ToolCallPart, *, open_ids: Set[str]) -> bool:
        """Whether a running call can continue only when one of `open_ids` is answered. These are
        the ids of all calls that wait for a person or a client."""
        ...

    async def abort(self, reason: str) -> None:
        """Abort everything that runs, and take no more calls."""
        ...

    def telemetry(self) -> SurfaceTelemetry:
        """Counts of the searches and calls so far."""
        ...


class SurfaceTelemetry(Protocol):
    """The counts of a surface at one moment."""

    def to_json(self) -> JsonObject: ...


class CallWaits(Protocol):
    """The calls of a run that wait for a person or a client."""

    @property
    def closed_count(self) -> int:
        """The number of calls that have been answered or withdrawn."""
        ...

    async def any_closed(self, call_ids: Set[str], /) -> None:
        """Return when one of these calls does not wait any more."""
        ...

    async def note_begun(self, call_id: str, /) -> None:
        """A call of the model is permitted, and is about to have effects. Raises StorageError."""
        ...


# The call of a model.


class InvalidCall(NacreError):
    """A call of a model that cannot be executed. The message is for the model."""

    def __init__(
        self, message: str, *, code: Literal["invalid_input", "unknown_tool"] = "invalid_input"
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code: Literal["invalid_input", "unknown_tool"] = code


def parse_call(name: str, arguments: object, *, known: Sequence[str]) -> JsonObject:
    """Return the arguments of a call; providers pass them as an object or as JSON text.

    Raises InvalidCall if `name` is not one of `known`, or if the arguments are not an object.
    """
    if name not in known:
        raise InvalidCall(_describe_unknown_tool(name, known), code="unknown_tool")
    if arguments is None:
        return {}
    if isinstance(arguments, str):
        if not arguments.strip():
            return {}
        try:
            arguments = decode_json(arguments.encode(errors="replace"))
        except NotJsonError as error:
            problem = str(error).removeprefix("$ is not JSON: ")
            raise InvalidCall(f"the arguments are not JSON: {problem}") from error
    if not isinstance(arguments, Mapping):
        kind = describe_json_type(arguments)
        raise InvalidCall(f"the arguments are {kind}; they have to be an object")
    return dict(cast("Mapping[str, JsonValue]", arguments))


def _describe_unknown_tool(name: str, known: Sequence[str]) -> str:
    shown = ", ".join(known[:_MAX_LISTED_TOOLS]) or "none"
    more = len(known) - _MAX_LISTED_TOOLS
    rest = f" and {more} more" if more > 0 else ""
    return f"there is no tool {name[:_MAX_SHOWN_NAME]!r}; there are: {shown}{rest}"


def make_call_site(call_id: str, abort: AbortSignal) -> CallSite:
    """Return the site of a call by a model. A call without an id gets a new one."""
    return CallSite(call_id=call_id or f"call_{os.urandom(_CALL_ID_BYTES).hex()}", abort=abort)


# The result, as the model reads it.


@dataclass(frozen=True, kw_only=True, slots=True)
class CallResult:
    """The result of a call as the model reads it: text, and images if it takes any."""

    content: str
    is_error: bool = False
    images: tuple[ImagePart, ...] = ()
    """The text has a marker for each."""


def format_result(
    value: JsonValue,
    *,
    is_mcp: bool = False,
    is_error: bool = False,
    images: tuple[ImagePart, ...] = (),
) -> CallResult:
    """Text stays text, and other values become JSON. An MCP result becomes its content parts.

    The images of MCP results become images of the result.
    """
    value, found = take_images(value)
    images = (*images, *found)
    if is_mcp and isinstance(value, dict):
        parts = value.get("content")
        if isinstance(parts, list):
            return replace(_format_mcp_parts(value, parts), images=images)
    return CallResult(content=_truncate(_format_value(value)), is_error=is_error, images=images)


async def format_direct_result(result: DirectResult, *, is_mcp: bool = False) -> CallResult:
    """Format the result of a direct call, in a thread if it is large."""
    if result.is_error:
        return format_error(result.error)

    def work() -> CallResult:
        return format_result(result.json_value, is_mcp=is_mcp)

    return work() if is_small(result.value) else await run_in_json_thread(work)


def format_error(message: str) -> CallResult:
    return CallResult(content=_truncate(message), is_error=True)


def _truncate(text: str) -> str:
    """Limit the size of a text, and replace characters that JSON cannot encode."""
    encoded = text.encode(errors="replace")
    if len(encoded) <= MAX_RESULT_BYTES:
        return text if text.isascii() else encoded.decode()
    kept = encoded[:MAX_RESULT_BYTES].decode(errors="ignore")
    return f"{kept}\n[cut: the whole result has {len(encoded)} bytes; ask for less at a time]"


def _format_value(value: JsonValue) -> str:
    if isinstance(value, str):
        return value
    encoded = _encode(value)
    if len(encoded) > MAX_RESULT_BYTES:
        encoded = encode_json(_cut_members(value, len(encoded)))
    return encoded.decode()


def _encode(value: JsonValue) -> bytes:
    return encode_json(value) if is_small(value) else encode_large(value)


def _can_keep_names(value: JsonObject) -> bool:
    # A member named `cut` would replace the note.
    is_free = "cut" not in value and len(value) <= _MAX_CUT_MEMBERS
    return is_free and all(len(name) <= _MAX_SHOWN_NAME for name in value)


def _cut_members(value: JsonValue, size: int) -> JsonObject:
    """Replace large members of a value by the start of their JSON, so that it is JSON and fits."""
    members = value if isinstance(value, dict) and _can_keep_names(value) else {"value": value}
    cut: JsonObject = {
        "cut": f"the whole result has {size} bytes; large members are only the start of their "
        "JSON, as text; ask for less at a time"
    }
    left = MAX_RESULT_BYTES - len(encode_json(cut))
    # The smallest first: what they do not use is left for the others.
    by_size = sorted((len(_encode({name: each})), name) for name, each in members.items())
    for count, (bytes_needed, name) in zip(range(len(by_size), 0, -1), by_size, strict=True):
        share = left // count
        if bytes_needed <= share:
            cut[name] = members[name]
        else:
            # As text in JSON, each quote and each backslash takes two bytes.
            room = (share - len(encode_json({name: ""}))) // 2
            cut[name] = _encode(members[name])[: max(room, 0)].decode(errors="ignore")
        left -= min(bytes_needed, share)
    return {name: cut[name] for name in (*members, "cut")}


def _format_mcp_parts(result: JsonObject, parts: list[JsonValue]) -> CallResult:
    texts = [part_text(cast("JsonObject", part)) for part in parts if isinstance(part, dict)]
    structured = result.get("structuredContent")
    if not texts and structured is not None:
        texts = [_format_value(structured)]
    return CallResult(content=_truncate("\n".join(texts)), is_error=result.get("isError") is True)


@dataclass(frozen=True, kw_only=True, slots=True)
class DirectResult:
    """The result of a tool that the model called by its own name, beside or without `exec`.

    It is no result of a program, which has a position, output and a closed set of errors.
    """

    value: object = None
    """JSON. A direct-only tool may return any object."""
    error: str = ""
    code: str = ""
    details: Mapping[str, object] = field(default_factory=dict[str, object])
    """Further members of an error."""

    @classmethod
    def from_error(cls, error: ToolError) -> DirectResult:
        """Convert the error of a tool, with its details."""
        details = {"toolId": error.tool_id, **error.details}
        return cls(error=error.message, code=error.code, details=details)

    @property
    def is_error(self) -> bool:
        return bool(self.code)

    @property
    def json_value(self) -> JsonValue:
        """The value; if it is not JSON, the name of its type."""
        try:
            if is_small(self.value) or not is_plain(self.value):
                encode_json(self.value)
        except NotJsonError:
            return {"type": type(self.value).__name__}
        return cast("JsonValue", self.value)

    def for_model(self) -> JsonObject:
        """The result for the model. It is the whole result: there is no telemetry."""
        return self.to_json()

    def to_json(self) -> JsonObject:
        if not self.is_error:
            return {"status": "completed", "value": self.json_value}
        details = cast("JsonObject", dict(self.details))
        return {**details, "status": "failed", "error": self.error, "code": self.code}


# The tools of a surface.


def verify_payload(sent: SentPayload, *, expected: Sequence[str]) -> None:
    """Raise ToolPayloadError unless a model request has exactly the expected tools."""
    extra = Counter(sent.tool_names) - Counter(expected)
    missing = Counter(expected) - Counter(sent.tool_names)
    if extra or missing:
        raise ToolPayloadError(
            "the model request does not have exactly the tools of the run; "
            f"too many: {_list_names(extra)}; missing: {_list_names(missing)}. Nothing was sent"
        )


def _list_names(names: Counter[str]) -> str:
    listed = list(names.elements())
    more = len(listed) - _MAX_LISTED_DIFFERENCES
    shown = ", ".join(listed[:_MAX_LISTED_DIFFERENCES]) or "none"
    return f"{shown} and {more} more" if more > 0 else shown


def make_tool_specs(definitions: Sequence[JsonObject]) -> list[ToolSpec]:
    """Convert definitions in Anthropic's format to specs."""
    return [
        ToolSpec(
            name=str(each["name"]),
            description=str(each["description"]),
            parameters=cast("JsonObject", each["input_schema"]),
        )
        for each in definitions
    ]


def split_direct_tools(
    tools: Sequence[Tool], *, controls: Sequence[str], owner: str
) -> tuple[tuple[Tool, ...], tuple[Tool, ...]]:
    """Return the direct-only tools, which the model sees beside `controls`, and the tools for the
    catalog. Control tools of any surface are in neither.

    Raises CatalogError if a direct-only tool has the name of another one, or of a control.
    """
    usable = [tool for tool in tools if not is_control_tool(tool)]
    direct = tuple(tool for tool in usable if tool.catalog_mode == "direct-only")
    taken = dict.fromkeys(controls, owner)
    for tool in direct:
        if tool.name in taken:
            raise CatalogError(
                f"the direct-only tool {tool.id} cannot be shown to the model: its name "
                f"{tool.name!r} belongs to {taken[tool.name]}"
            )
        taken[tool.name] = tool.id
    return direct, tuple(tool for tool in usable if tool.catalog_mode != "direct-only")


def assign_tool_names(tools: Iterable[Tool]) -> dict[str, Tool]:
    """Give each tool a unique name that providers accept. A tool keeps its own name if it can;
    otherwise its owner becomes part of the name."""
    assigned: dict[str, Tool] = {}
    for tool in tools:
        is_usable = _NAME.fullmatch(tool.name) and tool.name not in assigned
        assigned[tool.name if is_usable else _find_free_name(tool, assigned)] = tool
    return assigned


def _find_free_name(tool: Tool, taken: Mapping[str, Tool]) -> str:
    wanted = _NOT_IN_NAMES.sub("_", f"{tool.owner}__{tool.name}")
    name, count = wanted[:_MAX_NAME_CHARACTERS], 1
    while name in taken:
        count += 1
        ending = f"_{count}"
        name = wanted[: _MAX_NAME_CHARACTERS - len(ending)] + ending
    return name
