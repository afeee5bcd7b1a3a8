"""Loads and unloads plugins, and reports the state of each."""

from __future__ import annotations

import asyncio
import inspect
import logging
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, Self, TypeVar

import anyio

from nacre.errors import PluginError
from nacre.foreign_calls import call_in_own_task, call_in_thread, describe_error, passes_through
from nacre.hooks import ContextRegistry
from nacre.json_types import copy_json
from nacre.plugins.api import PluginApi
from nacre.plugins.modules import PluginModules
from nacre.plugins.registration import Registration
from nacre.plugins.sources import BrokenSource, PluginSource, find_sources

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Generator

    from nacre.code_mode.namespaces import NamespaceRegistry
    from nacre.config import PluginEntry, PluginsConfig
    from nacre.hooks import Hooks
    from nacre.json_types import JsonObject
    from nacre.plugins.registration import PluginCommand
    from nacre.tools import Tool

logger = logging.getLogger(__name__)


PluginState = Literal["loaded", "disabled", "failed"]


@dataclass(frozen=True, kw_only=True, slots=True)
class PluginStatus:
    """The state of a plugin, its additions, and why it is not loaded."""

    id: str
    state: PluginState
    origin: str
    """Its directory or its entry point."""
    version: str = ""
    description: str = ""
    tool_names: tuple[str, ...] = ()
    hook_events: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()
    context_engines: tuple[str, ...] = ()
    problem: str = ""

    def to_json(self) -> JsonObject:
        return {
            "id": self.id,
            "state": self.state,
            "origin": self.origin,
            "version": self.version,
            "description": self.description,
            "tools": list(self.tool_names),
            "hooks": list(self.hook_events),
            "namespaces": list(self.namespaces),
            "contextEngines": list(self.context_engines),
            "problem": self.problem,
        }


_LOAD_SECONDS: Final = 30.0

_Result = TypeVar("_Result")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Loaded:
    source: PluginSource
    entry: PluginEntry
    registration: Registration
    modules: PluginModules


class PluginHost:
    """Loads and unloads plugins. Exiting the `async with` block unloads all plugins.

    `reserved_ids` are other owners of tools, such as the names of MCP servers. A plugin cannot have
    one of these ids, because policy rules would match both.
    """

    def __init__(
        self,
        *,
        hooks: Hooks,
        namespaces: NamespaceRegistry,
        contexts: ContextRegistry | None = None,
        reserved_ids: Collection[str] = (),
    ) -> None:
        self._hooks = hooks
        self._namespaces = namespaces
        self._contexts = ContextRegistry() if contexts is None else contexts
        self.reserved_ids = reserved_ids
        self._loaded: dict[str, _Loaded] = {}
        self._others: list[PluginStatus] = []
        # One change at a time, because two simultaneous loads could claim the same name.
        self._lock = anyio.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        with anyio.CancelScope(shield=True):
            for plugin_id in reversed(list(self._loaded)):
                await self.unload(plugin_id)

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools of all loaded plugins."""
        return tuple(tool for it in self._loaded.values() for tool in it.registration.tools)

    @property
    def commands(self) -> tuple[PluginCommand, ...]:
        """The chat commands of all loaded plugins."""
        return tuple(it for each in self._loaded.values() for it in each.registration.commands)

    def status(self) -> list[PluginStatus]:
        """The status of all plugins, sorted by id."""
        statuses = [*map(_status_of, self._loaded.values()), *self._others]
        return sorted(statuses, key=lambda status: status.id)

    async def apply(self, config: PluginsConfig) -> None:
        """Load and unload plugins according to the configuration.

        A plugin whose settings changed is reloaded. A plugin that fails does not affect the others;
        its status says why.
        """
        async with self._lock:
            self._others = []
            sources = await _with_timeout(partial(call_in_thread, partial(find_sources, config)))
            wanted = {it.manifest.id: it for it in sources if isinstance(it, PluginSource)}
            for plugin_id in reversed(list(self._loaded)):
                if self._is_outdated(plugin_id, wanted.get(plugin_id), config):
                    await self._unload(plugin_id)
            for source in sources:
                await self._load_source(source, config)

    async def load(self, source: PluginSource, entry: PluginEntry) -> None:
        """Load one plugin; raises PluginError, after everything is rolled back."""
        async with self._lock:
            await self._load(source, entry)

    async def unload(self, plugin_id: str) -> bool:
        """Unload a plugin; return False if it is not loaded."""
        async with self._lock:
            return await self._unload(plugin_id)

    async def _load_source(
        self, source: PluginSource | BrokenSource, config: PluginsConfig
    ) -> None:
        if isinstance(source, BrokenSource):
            self._note_failure(source.name, source.origin, source.problem)
            return
        manifest = source.manifest
        if manifest.id in self._loaded:
            return
        refusal = config.refusal(manifest.id)
        if refusal:
            self._others.append(_status(source, state="disabled", problem=refusal))
            return
        try:
            await self._load(source, config.entry(manifest.id))
        except PluginError as error:
            self._note_failure(manifest.id, source.origin, str(error), source)

    async def _load(self, source: PluginSource, entry: PluginEntry) -> None:
        plugin_id = source.manifest.id
        if plugin_id in self._loaded:
            raise PluginError(f"the plugin {plugin_id} is loaded already; unload it first")
        if plugin_id in self.reserved_ids:
            raise PluginError(f"the id {plugin_id!r} is the name of an MCP server; rename one")
        source.manifest.check_config(entry.config)
        registration = Registration(plugin_id=plugin_id)
        modules = PluginModules(source)
        is_active = False
        try:
            api = PluginApi(registration, copy_json(entry.config))
            with _convert_errors(plugin_id, "it cannot be imported"):
                register = await _with_timeout(partial(call_in_thread, modules.load_entry))
            with _convert_errors(plugin_id, "`register` failed"):
                await _register(register, api)
            with _convert_errors(plugin_id, "its additions are invalid"):
                registration.activate(self._hooks, self._namespaces, self._contexts)
            is_active = True
        finally:
            if not is_active:
                await self._roll_back(registration, modules)
        self._loaded[plugin_id] = _Loaded(
            source=source, entry=entry, registration=registration, modules=modules
        )

    async def _unload(self, plugin_id: str) -> bool:
        loaded = self._loaded.pop(plugin_id, None)
        if loaded is None:
            return False
        await self._roll_back(loaded.registration, loaded.modules)
        return True

    async def _roll_back(self, registration: Registration, modules: PluginModules) -> None:
        registration.deactivate(self._hooks, self._namespaces, self._contexts)
        try:
            with anyio.CancelScope(shield=True):
                await registration.run_callbacks()
        finally:
            modules.unload()

    def _is_outdated(
        self, plugin_id: str, source: PluginSource | None, config: PluginsConfig
    ) -> bool:
        loaded = self._loaded[plugin_id]
        return (
            source is None
            or plugin_id in self.reserved_ids
            or source != loaded.source
            or bool(config.refusal(plugin_id))
            or config.entry(plugin_id) != loaded.entry
        )

    def _note_failure(
        self, name: str, origin: str, problem: str, source: PluginSource | None = None
    ) -> None:
        logger.error("the plugin %s (%s) is not loaded: %s", name, origin, problem)
        if source is not None:
            self._others.append(_status(source, state="failed", problem=problem))
        else:
            self._others.append(
                PluginStatus(id=name, state="failed", origin=origin, problem=problem)
            )


async def _register(register: Callable[..., object], api: PluginApi) -> None:
    """Call `register` of the plugin, in a thread or, if it is async, in a task of its own."""
    if inspect.iscoroutinefunction(register):
        await _with_timeout(partial(call_in_own_task, partial(register, api)))
        return
    returned = await _with_timeout(partial(call_in_thread, partial(register, api)))
    if inspect.isawaitable(returned):
        await _with_timeout(partial(call_in_own_task, lambda: returned))


@contextmanager
def _convert_errors(plugin_id: str, what: str) -> Generator[None]:
    """Convert the exceptions of a plugin's code to PluginError, and log the traceback."""
    task = asyncio.current_task()
    try:
        yield
    except PluginError:
        raise
    except BaseException as error:
        if passes_through(error, caller=task):
            raise
        logger.exception("the plugin %s: %s", plugin_id, what)
        raise PluginError(f"{what}: {type(error).__name__}: {describe_error(error)}") from error


async def _with_timeout(step: Callable[[], Awaitable[_Result]]) -> _Result:
    with anyio.move_on_after(_LOAD_SECONDS) as scope:
        result = await step()
        # A plugin that ignores its cancellation is still too late.
        if not scope.cancel_called:
            return result
    raise PluginError(f"it took longer than {_LOAD_SECONDS:g} seconds to load")


def _status_of(loaded: _Loaded) -> PluginStatus:
    registration = loaded.registration
    return replace(
        _status(loaded.source, state="loaded"),
        tool_names=tuple(tool.name for tool in registration.tools),
        hook_events=tuple(hook.event for hook in registration.hooks),
        namespaces=tuple(namespace.global_name for namespace in registration.namespaces),
        context_engines=tuple(engine.id for engine in registration.engines),
    )


def _status(source: PluginSource, *, state: PluginState, problem: str = "") -> PluginStatus:
    return PluginStatus(
        id=source.manifest.id,
        state=state,
        origin=source.origin,
        version=source.manifest.version,
        description=source.manifest.description,
        problem=problem,
    )
