"""A namespace's scope as plain data for a cell, and the way back from a path in it to a tool call.

A node is `{"v": json}` for data, `{"o": {key: node}}`, `{"a": [node]}`, or `{"f": true}` for a
function. The path of a function is the keys and indexes that lead to it, as text.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import field
from enum import Enum
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from nacre.errors import NamespaceError
from nacre.json_types import JsonObject, JsonValue, NotJsonError, encode_json
from nacre.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable

PATH_SEPARATOR: Final = "."
MAX_SCOPE_BYTES: Final = 256 * 1024
# A level of a scope is two levels of JSON.
MAX_SCOPE_DEPTH: Final = 64

_UNSAFE_KEYS: Final = frozenset({"", "__proto__", "constructor", "prototype"})
_UNSAFE_CHARACTERS: Final = (PATH_SEPARATOR, "\0")
_MAX_FALLBACK_CHARACTERS: Final = 1000
_MAX_SHOWN_KEY: Final = 60
# The minimum size of a value: `{"v":0}`, or a comma and a digit inside data.
_MIN_BYTES_PER_VALUE: Final = 2

Path: TypeAlias = tuple[str, ...]
InputMapper: TypeAlias = Callable[[list[JsonValue]], object]
"""Converts the arguments of the program to the input of the tool, an object."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NamespaceTool:
    """Marks a member of a scope as a function that calls a tool of the same plugin."""

    tool_name: str
    input_mapper: InputMapper | None = None


def namespace_tool(tool_name: str, input_mapper: InputMapper | None = None) -> NamespaceTool:
    """A function of a namespace. Without a mapper the first argument is the input, or `{}`."""
    return NamespaceTool(tool_name=tool_name, input_mapper=input_mapper)


@dataclass(frozen=True, kw_only=True, slots=True)
class SerialisedScope:
    """The data for a cell, and its functions by their paths."""

    descriptor: JsonObject
    functions: Mapping[Path, NamespaceTool]


def serialise_scope(scope: object, *, tool_names: Iterable[str]) -> SerialisedScope:
    """Serialise a scope. Raises NamespaceError, with the path, for invalid members."""
    if not isinstance(scope, Mapping):
        raise NamespaceError(f"the scope is a {type(scope).__name__}; it has to be a mapping")
    walk = _Walk(tool_names=frozenset(tool_names))
    root = walk.visit(cast("object", scope), ())
    descriptor = root.node if isinstance(root, _Structure) else _object_of_data(root)
    _refuse_if_too_large(descriptor)
    return SerialisedScope(descriptor=descriptor, functions=walk.functions)


@dataclass(frozen=True, slots=True)
class _Structure:
    """A node that contains a function; everything else is plain data."""

    node: JsonObject


_Part: TypeAlias = _Structure | JsonValue


@dataclass(kw_only=True, slots=True)
class _Walk:
    """One pass over a scope. Shared objects are written each time, so the size of the output is
    limited: a few objects that contain each other many times could fill the memory."""

    tool_names: frozenset[str]
    functions: dict[Path, NamespaceTool] = field(default_factory=dict[Path, NamespaceTool])
    written_bytes: int = 0
    entered: set[int] = field(default_factory=set[int])

    def visit(self, value: object, path: Path) -> _Part:
        self._count(_MIN_BYTES_PER_VALUE)
        if isinstance(value, NamespaceTool):
            return self._function(value, path)
        if isinstance(value, Enum):
            return self.visit(cast("object", value.value), path)
        if value is None or isinstance(value, (bool, int, float, str)):
            return self._scalar(value)
        if callable(value):
            raise _error_at(path, "is a function; use namespace_tool(...), which calls a tool")
        if isinstance(value, (Mapping, list, tuple, set, frozenset)):
            return self._container(cast("_Container", value), path)
        return self._scalar(_fallback(value))

    def _function(self, marker: NamespaceTool, path: Path) -> _Structure:
        if marker.tool_name not in self.tool_names:
            allowed = ", ".join(sorted(self.tool_names))
            raise _error_at(
                path,
                f"calls {marker.tool_name!r}, which is not among its required tools: {allowed}",
            )
        self.functions[path] = marker
        return _Structure({"f": True})

    def _scalar(self, value: bool | int | float | str | None) -> JsonValue:
        if isinstance(value, str):
            self._count(len(value))
            return str.__str__(value)
        if isinstance(value, float) and not math.isfinite(value):
            return None
        return value

    def _container(self, value: _Container, path: Path) -> _Part:
        if id(value) in self.entered:
            raise _error_at(path, "is a part of itself")
        if len(path) >= MAX_SCOPE_DEPTH:
            raise NamespaceError(f"the scope is nested more than {MAX_SCOPE_DEPTH} levels deep")
        self.entered.add(id(value))
        try:
            if isinstance(value, Mapping):
                return self._object(value, path)
            # A set has no order, but equal scopes must give equal data.
            is_set = isinstance(value, (set, frozenset))
            return self._array(sorted(value, key=str) if is_set else value, path)
        finally:
            self.entered.discard(id(value))

    def _object(self, value: Mapping[object, object], path: Path) -> _Part:
        parts: dict[str, _Part] = {}
        for key, member in value.items():
            name = _safe_key(key, path)
            self._count(len(name))
            parts[name] = self.visit(member, (*path, name))
        if any(isinstance(part, _Structure) for part in parts.values()):
            return _Structure({"o": {key: _node(part) for key, part in parts.items()}})
        return cast("JsonObject", parts)

    def _array(self, items: Iterable[object], path: Path) -> _Part:
        parts = [self.visit(item, (*path, str(index))) for index, item in enumerate(items)]
        if any(isinstance(part, _Structure) for part in parts):
            return _Structure({"a": [_node(part) for part in parts]})
        return cast("list[JsonValue]", parts)

    def _count(self, size: int) -> None:
        self.written_bytes += size
        if self.written_bytes > MAX_SCOPE_BYTES:
            raise _too_large()


_Container: TypeAlias = (
    Mapping[object, object] | list[object] | tuple[object, ...] | set[object] | frozenset[object]
)


def _node(part: _Part) -> JsonObject:
    return part.node if isinstance(part, _Structure) else {"v": part}


def _object_of_data(data: JsonValue) -> JsonObject:
    return {"o": {key: {"v": value} for key, value in cast("JsonObject", data).items()}}


def _safe_key(key: object, path: Path) -> str:
    if not isinstance(key, str):
        raise _error_at(path, f"has a key of type {type(key).__name__}; keys have to be text")
    name = str.__str__(key)
    is_unsafe = name in _UNSAFE_KEYS or any(found in name for found in _UNSAFE_CHARACTERS)
    # A lone surrogate would become another key in the guest.
    if is_unsafe or any("\ud800" <= character <= "\udfff" for character in name):
        raise _error_at(path, f"has the key {_quote(name)}, which is not safe in a namespace")
    return name


def _fallback(value: object) -> str:
    """Text for a value that JSON lacks. Never a `repr`: it may contain addresses and secrets."""
    # Imported here, because few scopes have such values.
    from datetime import date, time

    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, (bytes, bytearray)):
        return f"[{type(value).__name__}({len(value)})]"
    says_itself = type(value).__str__ is not object.__str__
    text = str(value) if says_itself else f"[{type(value).__name__}]"
    return text if len(text) <= _MAX_FALLBACK_CHARACTERS else f"{text[:_MAX_FALLBACK_CHARACTERS]}…"


def _refuse_if_too_large(descriptor: JsonObject) -> None:
    try:
        size = len(encode_json(descriptor))
    except NotJsonError as error:
        raise NamespaceError(f"the scope cannot be written as JSON: {error.problem}") from error
    if size > MAX_SCOPE_BYTES:
        raise _too_large()


def _too_large() -> NamespaceError:
    return NamespaceError(
        f"the scope is larger than {MAX_SCOPE_BYTES} bytes; let a tool return the large part"
    )


def _error_at(path: Path, problem: str) -> NamespaceError:
    place = PATH_SEPARATOR.join(_truncate(segment) for segment in path)
    return NamespaceError(f"`{place}` {problem}" if place else f"the scope {problem}")


def _quote(name: str) -> str:
    return ascii(_truncate(name))


def _truncate(name: str) -> str:
    return name if len(name) <= _MAX_SHOWN_KEY else f"{name[:_MAX_SHOWN_KEY]}…"
