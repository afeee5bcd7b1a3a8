"""The specs of Nacre's tools for Codex: which tools, their names, schemas and fingerprint."""

from __future__ import annotations

import hashlib
import re
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, cast

from nacre.codex_harness.native_tools import is_native_name
from nacre.config import fold_tool_name
from nacre.json_types import NotJsonError, decode_json, encode_json
from nacre.tools import CORE_OWNER, is_control_tool

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from nacre.json_types import JsonObject, JsonValue
    from nacre.tools import Tool

NAMESPACE: Final = "openclaw"
"""The namespace of the tools that Codex's `tool_search` finds."""
_NAMESPACE_DESCRIPTION: Final = "Tools of the application that this conversation belongs to."
# Versions before accept the flat form alone; this one and later ones accept both.
_FIRST_TAGGED_VERSION: Final = (0, 163, 0)

_NATIVE_DUPLICATES: Final = frozenset(
    {"read", "write", "edit", "apply_patch", "exec", "process", "update_plan"}
)
_ALIASES: Final = {"bash": "exec", "apply-patch": "apply_patch"}
# Codex drops a tool that has one of these names without a word, or shows the name twice.
_CODEX_NAMES: Final = frozenset(
    {
        "apply_patch",
        "clock",
        "collaboration",
        "create_goal",
        "exec",
        "exec_command",
        "functions",
        "get_goal",
        "image_gen",
        "list_mcp_resource_templates",
        "list_mcp_resources",
        "multi_agent_v1",
        "read_mcp_resource",
        "request_permissions",
        "request_user_input",
        "shell",
        "shell_command",
        "tool_search",
        "update_goal",
        "update_plan",
        "view_image",
        "wait",
        "web_search",
        "write_stdin",
    }
)
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,128}")
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_-]+")
_MAX_NAME_CHARACTERS: Final = 128
_HASH_CHARACTERS: Final = 8

# The parser of the app-server gives up at a depth of 128, and then does not answer the request.
_MAX_SCHEMA_DEPTH: Final = 100
_DIGEST_CHARACTERS: Final = 16

ToolsLoading = Literal["searchable", "direct"]


def select_tools(
    tools: Iterable[Tool], *, exclude: Collection[str], has_native_tools: bool
) -> list[Tool]:
    """The tools for Codex: without controls, the user's excludes, and what Codex has itself."""
    excluded = {_ALIASES.get(name, name) for name in map(fold_tool_name, exclude)}
    return [
        tool
        for tool in tools
        if not is_control_tool(tool)
        and fold_tool_name(tool.name) not in excluded
        and not (has_native_tools and tool.owner == CORE_OWNER and tool.name in _NATIVE_DUPLICATES)
    ]


def assign_codex_names(tools: Iterable[Tool]) -> dict[str, Tool]:
    """Give each tool a unique name that Codex accepts.

    A tool of a server has the name of the server in front. So a server that is missing in one turn
    changes no names of the others, and the thread can go on.
    """
    assigned: dict[str, Tool] = {}
    for tool in sorted(tools, key=_priority):
        name = _plain_name(tool)
        if name in assigned:
            name = _add_hash(f"{tool.owner}__{tool.name}", tool)
        assigned[name] = tool
    return assigned


def _priority(tool: Tool) -> tuple[bool, bool, str]:
    """The order in which tools choose their names; it depends on the set of tools alone."""
    return (tool.owner != CORE_OWNER, tool.source == "client", tool.id)


def _plain_name(tool: Tool) -> str:
    name = f"{tool.owner}__{tool.name}" if tool.source == "mcp" else tool.name
    if _is_taken(name) or (tool.owner != CORE_OWNER and is_native_name(name)):
        name = f"{tool.owner}__{tool.name}" if tool.source != "mcp" else f"server_{name}"
    return name if _NAME.fullmatch(name) and not _is_taken(name) else _add_hash(name, tool)


def _is_taken(name: str) -> bool:
    return name in _CODEX_NAMES or name == "mcp" or name.startswith("mcp__")


def _add_hash(name: str, tool: Tool) -> str:
    ending = f"_{hashlib.sha256(tool.id.encode()).hexdigest()[:_HASH_CHARACTERS]}"
    start = _NOT_IN_NAMES.sub("_", name)[: _MAX_NAME_CHARACTERS - len(ending)]
    return (f"tool_{start}" if _is_taken(start) else start)[: _MAX_NAME_CHARACTERS - 9] + ending


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolSpec:
    """A tool as a Codex thread has it registered."""

    name: str
    tool: Tool
    schema: JsonObject
    digest: str
    """Of the name and the schema; a description may change while a thread lives."""
    is_deferred: bool

    @property
    def mark(self) -> str:
        """The part of a fingerprint: the digest, how it is loaded, and where it comes from."""
        source = self.tool.source
        origin = f"mcp:{self.tool.owner}" if source == "mcp" else source
        return f"{self.digest}{'+' if self.is_deferred else ''} {origin}"

    def to_json(self) -> JsonObject:
        """The members that both wire forms share."""
        return {
            "name": self.name,
            "description": self.tool.description,
            "inputSchema": self.schema,
        }


class UnusableSchema(ValueError):
    """Codex would refuse a schema, and with it all tools. The message says why."""


def make_spec(name: str, tool: Tool, *, is_deferred: bool) -> ToolSpec:
    """Raises UnusableSchema."""
    adapted = _adapt_cached(tool)
    if isinstance(adapted, str):
        raise UnusableSchema(adapted)
    schema, digest = adapted
    return ToolSpec(name=name, tool=tool, schema=schema, digest=digest, is_deferred=is_deferred)


def format_specs(specs: Iterable[ToolSpec], *, version: Sequence[int]) -> list[JsonObject]:
    """The `dynamicTools` of a thread, as this version of the app-server reads them."""
    ordered = sorted(specs, key=lambda spec: spec.name)
    if tuple(version) < _FIRST_TAGGED_VERSION:
        searchable: JsonObject = {"namespace": NAMESPACE, "deferLoading": True}
        return [{**spec.to_json(), **(searchable if spec.is_deferred else {})} for spec in ordered]
    tagged: list[JsonObject] = [
        {"type": "function", **spec.to_json()} for spec in ordered if not spec.is_deferred
    ]
    deferred: list[JsonValue] = [
        {"type": "function", **spec.to_json(), "deferLoading": True}
        for spec in ordered
        if spec.is_deferred
    ]
    if deferred:
        tagged.append(
            {
                "type": "namespace",
                "name": NAMESPACE,
                "description": _NAMESPACE_DESCRIPTION,
                "tools": deferred,
            }
        )
    return tagged


def make_fingerprint(specs: Iterable[ToolSpec]) -> str:
    """A text that tells whether a thread has these tools. Their order does not matter."""
    marks = {spec.name: spec.mark for spec in specs}
    return encode_json(dict(sorted(marks.items()))).decode()


def read_fingerprint(fingerprint: str) -> dict[str, str]:
    """The marks of the tools by name; empty for a text that is no fingerprint."""
    try:
        marks = decode_json(fingerprint.encode())
    except NotJsonError:
        return {}
    return {name: str(mark) for name, mark in marks.items()} if isinstance(marks, dict) else {}


def has_deferred(registered: Mapping[str, str]) -> bool:
    """Whether a thread with these marks has tools that the model has to find."""
    return any(mark.partition(" ")[0].endswith("+") for mark in registered.values())


def is_compatible(
    registered: Mapping[str, str], specs: Iterable[ToolSpec], *, missing_servers: Collection[str]
) -> bool:
    """Whether a thread with these registered marks can run a turn that has these specs.

    Every tool of the turn must be registered as it is now. The thread may have more: tools of a
    client that does not offer them in this turn, and those of a server that is down.
    """
    marks = {spec.name: spec.mark for spec in specs}
    if any(registered.get(name) != mark for name, mark in marks.items()):
        return False
    excused = {"client", *(f"mcp:{server}" for server in missing_servers)}
    return all(
        mark.partition(" ")[2] in excused for name, mark in registered.items() if name not in marks
    )


# By identity, because tools are not hashable. An entry is removed together with its tool.
_ADAPTED: Final[dict[int, tuple[weakref.ref[Tool], tuple[JsonObject, str] | str]]] = {}


def _adapt_cached(tool: Tool) -> tuple[JsonObject, str] | str:
    """The schema for Codex and its digest, or why there is none."""
    key = id(tool)
    known = _ADAPTED.get(key)
    if known is not None and known[0]() is tool:
        return known[1]
    adapted: tuple[JsonObject, str] | str
    try:
        schema = cast("JsonObject", _adapt(tool.parameters, path="", depth=0))
        text = encode_json(_sort_members(schema))
        adapted = (schema, hashlib.sha256(text).hexdigest()[:_DIGEST_CHARACTERS])
    except UnusableSchema as error:
        adapted = str(error)
    _ADAPTED[key] = (weakref.ref(tool, lambda _: _ADAPTED.pop(key, None)), adapted)
    return adapted


def _adapt(schema: JsonValue, *, path: str, depth: int) -> JsonValue:
    """Check the keywords that Codex parses, and rewrite the one form of them that it refuses.

    The model sees the schema as Codex simplifies it; Nacre checks the input against the original.
    """
    if isinstance(schema, bool):
        return schema
    if not isinstance(schema, dict):
        raise UnusableSchema(f"{path or 'the schema'} is no schema, but {_shorten(schema)}")
    if depth > _MAX_SCHEMA_DEPTH:
        raise UnusableSchema(f"it is nested more than {_MAX_SCHEMA_DEPTH} levels deep")
    adapted = dict(schema)
    for keyword, value in schema.items():
        place = f"{path}.{keyword}" if path else keyword
        adapted[keyword] = _adapt_keyword(keyword, value, place=place, depth=depth + 1)
    return adapted


def _adapt_keyword(keyword: str, value: JsonValue, *, place: str, depth: int) -> JsonValue:
    if value is None:
        return value
    match keyword:
        case "properties":
            return {
                name: _adapt(each, path=f"{place}.{name}", depth=depth + 1)
                for name, each in _expect_object(value, place).items()
            }
        case "items" if isinstance(value, list):
            # A tuple, as old drafts write it.
            options = [_adapt(each, path=place, depth=depth + 2) for each in value]
            return {"anyOf": options} if options else {}
        case "items" | "additionalProperties":
            return _adapt(value, path=place, depth=depth)
        case "anyOf" | "oneOf" | "allOf":
            return [
                _adapt(each, path=place, depth=depth + 1) for each in _expect_array(value, place)
            ]
        case "required":
            names = _expect_array(value, place)
            if not all(isinstance(name, str) for name in names):
                raise UnusableSchema(f"{place} has something other than names")
            return value
        case "enum":
            return _expect_array(value, place)
        case "$ref" if not isinstance(value, str):
            raise UnusableSchema(f"{place} is no reference, but {_shorten(value)}")
        case _:
            if _depth_of(value) + depth > _MAX_SCHEMA_DEPTH:
                raise UnusableSchema(f"it is nested more than {_MAX_SCHEMA_DEPTH} levels deep")
            return value


def _expect_object(value: JsonValue, place: str) -> JsonObject:
    if not isinstance(value, dict):
        raise UnusableSchema(f"{place} is no object, but {_shorten(value)}")
    return value


def _expect_array(value: JsonValue, place: str) -> list[JsonValue]:
    if not isinstance(value, list):
        raise UnusableSchema(f"{place} is no array, but {_shorten(value)}")
    return value


def _shorten(value: JsonValue) -> str:
    return encode_json(value)[:40].decode(errors="ignore")


def _depth_of(value: JsonValue) -> int:
    depth, level = 0, [value]
    while level := [inner for each in level for inner in _values_in(each)]:
        depth += 1
    return depth


def _values_in(value: JsonValue) -> Iterator[JsonValue]:
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list):
        yield from value


def _sort_members(value: JsonValue) -> JsonValue:
    if isinstance(value, dict):
        return {name: _sort_members(value[name]) for name in sorted(value)}
    return [_sort_members(each) for each in value] if isinstance(value, list) else value
