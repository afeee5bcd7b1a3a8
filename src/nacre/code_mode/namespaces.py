"""Namespaces: domain APIs that plugins register for programs, and the namespaces of one run.

The scope of a namespace is sent to a cell as plain data. A node is `{"v": json}` for data,
`{"o": {key: node}}`, `{"a": [node]}`, or `{"f": true}` for a function. The path of a function is
the keys and indexes that lead to it, as text.
"""

from __future__ import annotations

import inspect
import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field
from enum import Enum
from typing import TYPE_CHECKING, Final, TypeAlias, cast

import anyio

from nacre.errors import NamespaceError, ToolInputError, UnknownToolError
from nacre.json_types import (
    JsonObject,
    JsonValue,
    NotJsonError,
    decode_json,
    describe_json_type,
    encode_json,
)
from nacre.lazy_dataclasses import dataclass
from nacre.lazy_exports import lazy_pattern

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nacre.run_context import AbortSignal, RunContext
    from nacre.tools import Catalog

logger = logging.getLogger(__name__)

_IDENTIFIER: Final = lazy_pattern(r"[A-Za-z_$][A-Za-z0-9_$]*")
_MAX_SHOWN_CHARACTERS: Final = 80
_MAX_SHOWN_FUNCTIONS: Final = 20
_MAX_MAPPER_MESSAGE: Final = 500
MAX_PROMPT_CHARACTERS: Final = 2000

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


def _split_names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_WORDS: Final = _split_names(
    """
    abstract any arguments as async await boolean break case catch class const continue debugger
    declare default delete do else enum eval export extends false finally for function get if
    implements import in instanceof interface let module never new null number object of package
    private protected public return set static string super switch symbol this throw true try type
    typeof undefined unknown using var void while with yield
    """
)
"""Reserved and contextual keywords of JavaScript and TypeScript."""

_CODE_MODE: Final = _split_names("ALL_TOOLS API MCP image json namespaces text tools yield_control")

_ENGINE: Final = _split_names(
    """
    AggregateError Array ArrayBuffer AsyncDisposableStack AsyncFunction AsyncGenerator
    AsyncGeneratorFunction AsyncIterator Atomics BigInt BigInt64Array BigUint64Array Boolean
    DataView Date DisposableStack Error EvalError FinalizationRegistry Float16Array Float32Array
    Float64Array Function Generator GeneratorFunction Infinity Int16Array Int32Array Int8Array
    InternalError Intl Iterator JSON Map Math NaN Number Object Promise Proxy RangeError
    ReferenceError Reflect RegExp Set SharedArrayBuffer String SuppressedError Symbol SyntaxError
    Temporal TypeError URIError Uint16Array Uint32Array Uint8Array Uint8ClampedArray WeakMap WeakRef
    WeakSet WebAssembly decodeURI decodeURIComponent encodeURI encodeURIComponent escape globalThis
    isFinite isNaN parseFloat parseInt unescape
    """
)

_CELL: Final = _split_names(
    """
    DOMException TextDecoder TextEncoder URL URLSearchParams atob btoa clearInterval clearTimeout
    console crypto performance queueMicrotask require setInterval setTimeout structuredClone
    """
)
"""The globals of browsers and Node that cells have; see docs/cells.md."""

_TAKEN: Final = _CODE_MODE | _ENGINE | _CELL
_MEMBERS: Final = _split_names("constructor hasOwnProperty prototype then toJSON toString valueOf")


def problem_with_global_name(name: object) -> str:
    """Why a namespace cannot have this global name; empty if it can."""
    if not isinstance(name, str) or not _IDENTIFIER.fullmatch(name):
        return "is not a JavaScript identifier of ASCII letters, digits, `_` and `$`"
    if name in _WORDS:
        return "is a word of the language"
    # A member named `__proto__` would change the object that holds all namespaces.
    if name in _TAKEN or name.startswith("__"):
        return "is taken: every program has a global of this name"
    if name in _MEMBERS:
        return "is taken: objects have a member of this name, and `namespaces` is one"
    return ""


@dataclass(frozen=True, kw_only=True, slots=True)
class ResolvedCall:
    """The tool behind a function of a namespace, and its input."""

    tool_id: str
    input: JsonObject


class NamespaceRuntime:
    """A namespace in one run."""

    def __init__(
        self,
        namespace: Namespace,
        scope: SerialisedScope,
        *,
        plugin_id: str,
        tool_ids: Mapping[str, str],
    ) -> None:
        self.namespace = namespace
        self.plugin_id = plugin_id
        self.descriptor = scope.descriptor
        self._functions = scope.functions
        self._tool_ids = tool_ids

    def resolve(self, path: object, args: object) -> ResolvedCall:
        """Resolve a call of a function. A program may send anything as `path` and `args`.

        Raises UnknownToolError if the path is no function of the scope, and ToolInputError if the
        arguments are not valid.
        """
        segments = _segments(path)
        function = self._functions.get(segments)
        name = PATH_SEPARATOR.join((self.namespace.global_name, *segments))
        if function is None:
            raise self._unknown(name[:_MAX_SHOWN_CHARACTERS])
        tool_id = self._tool_ids[function.tool_name]
        if not isinstance(args, list):
            raise ToolInputError(f"{name}: its arguments are not a list", tool_id=tool_id)
        arguments = cast("list[JsonValue]", args)
        mapped = _map_arguments(function, arguments, name=name, tool_id=tool_id)
        return ResolvedCall(tool_id=tool_id, input=_to_input(mapped, name=name, tool_id=tool_id))

    def _unknown(self, name: str) -> UnknownToolError:
        global_name = self.namespace.global_name
        functions = list(self._functions)[:_MAX_SHOWN_FUNCTIONS]
        known = ", ".join(PATH_SEPARATOR.join((global_name, *found)) for found in functions)
        return UnknownToolError(
            f"{name!r} is not a function of the namespace {global_name}; it has: {known or 'none'}",
            tool_id=name,
        )


def _segments(path: object) -> Path:
    """Return an empty path, which no function has, if it is not a list of strings."""
    if not isinstance(path, list) or len(cast("list[object]", path)) > MAX_SCOPE_DEPTH:
        return ()
    segments = cast("list[object]", path)
    texts = tuple(segment for segment in segments if isinstance(segment, str))
    return texts if len(texts) == len(segments) else ()


def _map_arguments(
    function: NamespaceTool, arguments: list[JsonValue], *, name: str, tool_id: str
) -> object:
    if function.input_mapper is None:
        return arguments[0] if arguments else None
    try:
        return function.input_mapper(arguments)
    except Exception as error:
        # Usually the arguments are wrong, so the program gets the error. It may also be a bug
        # of the plugin, so the traceback is logged.
        logger.info("the input mapper of %s failed", name, exc_info=True)
        problem = f"{type(error).__name__}: {error}"[:_MAX_MAPPER_MESSAGE]
        message = f"{name} cannot use its {len(arguments)} argument(s): {problem}"
        raise ToolInputError(message, tool_id=tool_id) from error


def _to_input(mapped: object, *, name: str, tool_id: str) -> JsonObject:
    if mapped is None:
        return {}
    if not isinstance(mapped, Mapping):
        kind = describe_json_type(mapped)
        raise ToolInputError(f"{name} takes an object; this is {kind}", tool_id=tool_id)
    try:
        # A copy: a mapper may return an object that it keeps.
        return cast("JsonObject", decode_json(encode_json(dict(cast("JsonObject", mapped)))))
    except NotJsonError as error:
        raise ToolInputError(f"{name}: the input {error}", tool_id=tool_id) from error


@dataclass(frozen=True, kw_only=True, slots=True)
class NamespaceContext:
    """The run that a namespace makes a scope for."""

    agent_id: str
    session_key: str
    session_id: str
    run_id: str
    config: JsonObject
    abort: AbortSignal
    context: RunContext


CreateScope: TypeAlias = Callable[
    [NamespaceContext], Mapping[str, object] | Awaitable[Mapping[str, object]]
]


@dataclass(frozen=True, kw_only=True, slots=True)
class Namespace:
    """A domain API for programs: data, and functions that call tools of the plugin that owns it."""

    id: str
    global_name: str
    description: str
    required_tool_names: tuple[str, ...]
    """All must be in the catalog, from the same plugin. Functions call only these tools."""
    create_scope: CreateScope
    """Called once per run; may be async."""
    prompt: str = ""
    """How to use the namespace, for the model."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NamespaceRegistration:
    """A namespace and the plugin that registered it."""

    plugin_id: str
    namespace: Namespace


class NamespaceRegistry:
    """The registered namespaces. Ids and global names are unique."""

    def __init__(self) -> None:
        self._by_id: dict[str, NamespaceRegistration] = {}

    @property
    def registrations(self) -> tuple[NamespaceRegistration, ...]:
        """In the order in which they were registered."""
        return tuple(self._by_id.values())

    def register(self, plugin_id: str, namespace: Namespace) -> None:
        """Register a namespace. Raises NamespaceError if it breaks a rule."""
        added = NamespaceRegistration(plugin_id=plugin_id, namespace=namespace)
        problem = _problem_with(namespace) or self._collision(namespace)
        if problem:
            raise _error(added, problem)
        self._by_id[namespace.id] = added

    def clear_plugin(self, plugin_id: str) -> int:
        """Remove all namespaces of a plugin; returns their number."""
        ids = [found.namespace.id for found in self.registrations if found.plugin_id == plugin_id]
        for namespace_id in ids:
            del self._by_id[namespace_id]
        return len(ids)

    def clear(self) -> None:
        """Remove all namespaces; for tests and the end of a process."""
        self._by_id.clear()

    def _collision(self, namespace: Namespace) -> str:
        for found in self._by_id.values():
            if found.namespace.id == namespace.id:
                return f"plugin {found.plugin_id!r} has registered this id; clear_plugin() frees it"
            if found.namespace.global_name == namespace.global_name:
                return (
                    f"global_name {namespace.global_name!r} belongs to namespace "
                    f"{found.namespace.id!r} of plugin {found.plugin_id!r}"
                )
        return ""


def visible_registrations(
    registry: NamespaceRegistry, catalog: Catalog
) -> list[NamespaceRegistration]:
    """The namespaces whose tools this run may call."""
    return [
        registration
        for registration in registry.registrations
        if _owned_tool_ids(registration, catalog) is not None
    ]


async def open_namespace(
    registration: NamespaceRegistration, catalog: Catalog, context: NamespaceContext
) -> NamespaceRuntime:
    """Open a visible namespace with a scope for the run.

    Raises NamespaceError, with plugin and namespace, if the scope cannot be made or is not valid.
    """
    tool_ids = _owned_tool_ids(registration, catalog)
    if tool_ids is None:
        raise _error(registration, "this run may not call all of its tools")
    return NamespaceRuntime(
        registration.namespace,
        await _scope_for(registration, context),
        plugin_id=registration.plugin_id,
        tool_ids=tool_ids,
    )


def _owned_tool_ids(registration: NamespaceRegistration, catalog: Catalog) -> dict[str, str] | None:
    """The ids of the required tools by name; None if one is missing or belongs to another plugin.

    The id contains the owner of a tool. Only `openclaw` tools belong to plugins: an MCP server or a
    client can have the name of any plugin.
    """
    names = registration.namespace.required_tool_names
    ids = {name: f"openclaw:{registration.plugin_id}:{name}" for name in names}
    return ids if all(catalog.by_id(tool_id) is not None for tool_id in ids.values()) else None


async def _scope_for(
    registration: NamespaceRegistration, context: NamespaceContext
) -> SerialisedScope:
    namespace = registration.namespace
    try:
        created = namespace.create_scope(context)
        scope = await created if inspect.isawaitable(created) else created
        return serialise_scope(scope, tool_names=namespace.required_tool_names)
    except NamespaceError as error:
        raise _error(registration, str(error)) from error
    except Exception as error:
        problem = f"its scope could not be made: {type(error).__name__}: {error}"
        raise _error(registration, problem) from error


def _problem_with(namespace: Namespace) -> str:
    if not namespace.id.strip() or not namespace.id.isprintable():
        return "its id has to be readable text"
    problem = problem_with_global_name(namespace.global_name)
    if problem:
        return f"global_name {namespace.global_name!r} {problem}"
    names = cast("object", namespace.required_tool_names)
    if not isinstance(names, tuple) or not names:
        # The required tools decide which runs may see a namespace.
        return "required_tool_names has to be a tuple with at least one tool"
    for field_name in ("description", "prompt"):
        length = len(cast("str", getattr(namespace, field_name)))
        if length > MAX_PROMPT_CHARACTERS:
            return f"its {field_name} has {length} characters; the most is {MAX_PROMPT_CHARACTERS}"
    return ""


def _error(registration: NamespaceRegistration, problem: str) -> NamespaceError:
    return NamespaceError(
        f"namespace {registration.namespace.id!r} of plugin {registration.plugin_id!r}: {problem}"
    )


class RunNamespaces:
    """The namespaces of one run. Removed ones are gone for the next program."""

    def __init__(
        self,
        registry: NamespaceRegistry,
        catalog: Catalog,
        *,
        context: RunContext,
        config: JsonObject,
        abort: AbortSignal,
    ) -> None:
        self._registry = registry
        self._catalog = catalog
        self._context = NamespaceContext(
            agent_id=context.agent_id,
            session_key=context.session_key,
            session_id=context.session_id,
            run_id=context.run_id,
            config=config,
            abort=abort,
            context=context,
        )
        self._opened: dict[NamespaceRegistration, NamespaceRuntime] = {}
        self._opening = anyio.Lock()

    def visible(self) -> list[Namespace]:
        """The namespaces that the model sees."""
        return [registration.namespace for registration in self._registrations()]

    async def open(self) -> dict[str, NamespaceRuntime]:
        """Open all namespaces, by global name. Each scope is made once per run."""
        visible = self._registrations()
        if all(registration in self._opened for registration in visible):
            return self._by_global_name(visible)
        async with self._opening:
            for registration in visible:
                if registration not in self._opened:
                    self._opened[registration] = await open_namespace(
                        registration, self._catalog, self._context
                    )
        return self._by_global_name(visible)

    def _registrations(self) -> list[NamespaceRegistration]:
        return visible_registrations(self._registry, self._catalog)

    def _by_global_name(self, visible: list[NamespaceRegistration]) -> dict[str, NamespaceRuntime]:
        return {each.namespace.global_name: self._opened[each] for each in visible}


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
