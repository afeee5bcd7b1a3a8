"""Namespaces: who registered which, and which of them a run may see."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from nacre.code_mode.namespace_runtime import NamespaceRuntime
from nacre.code_mode.namespace_scope import (
    SerialisedScope,
    serialise_scope,
)
from nacre.code_mode.reserved_globals import problem_with_global_name
from nacre.errors import NamespaceError

if TYPE_CHECKING:
    from nacre.json_types import JsonObject
    from nacre.run_context import AbortSignal, RunContext
    from nacre.tools.catalog import Catalog

MAX_PROMPT_CHARACTERS: Final = 2000


@dataclass(frozen=True, kw_only=True, slots=True)
class NamespaceContext:
    """What a namespace may know of the run that it makes a scope for."""

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
    """All have to be in the run's catalog, from the same plugin; functions call no others."""
    create_scope: CreateScope
    """Called once per run; may be async."""
    prompt: str = ""
    """How to use it, for the model."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NamespaceRegistration:
    """A namespace and the plugin that vouches for it."""

    plugin_id: str
    namespace: Namespace


class NamespaceRegistry:
    """The namespaces of one process. An id or a global name belongs to one of them at a time."""

    def __init__(self) -> None:
        self._by_id: dict[str, NamespaceRegistration] = {}

    @property
    def registrations(self) -> tuple[NamespaceRegistration, ...]:
        """In the order in which they were registered."""
        return tuple(self._by_id.values())

    def register(self, plugin_id: str, namespace: Namespace) -> None:
        """Raises NamespaceError for one that breaks a rule, and leaves the registry as it was."""
        added = NamespaceRegistration(plugin_id=plugin_id, namespace=namespace)
        problem = _problem_with(namespace) or self._collision(namespace)
        if problem:
            raise _error(added, problem)
        self._by_id[namespace.id] = added

    def clear_plugin(self, plugin_id: str) -> int:
        """Forget all that a plugin registered; how many there were."""
        ids = [found.namespace.id for found in self.registrations if found.plugin_id == plugin_id]
        for namespace_id in ids:
            del self._by_id[namespace_id]
        return len(ids)

    def clear(self) -> None:
        """Forget everything; for tests and the end of a process."""
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
    """A visible namespace with a scope made for the run.

    Raises NamespaceError, naming plugin and namespace, when it cannot be made or is refused.
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
    """The ids of the required tools by name; None when one is absent or somebody else's.

    The id says who owns a tool. Only `openclaw` tools are a plugin's: an MCP server or a client can
    give itself the name of any plugin.
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
        # Without a tool there is nothing that says which runs may see it.
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
