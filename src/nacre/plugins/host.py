"""Loads and unloads plugins, with what each registers, and reports their states."""

from __future__ import annotations

import asyncio
import inspect
import logging
import re
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeVar

import anyio

from nacre.errors import NacreError, PluginError
from nacre.foreign_calls import call_in_own_task, call_in_thread, describe_error, passes_through
from nacre.hooks import ContextRegistry, Hooks, check_engine, check_guidance
from nacre.json_types import copy_json
from nacre.plugins.api import PluginApi
from nacre.plugins.sources import BrokenSource, PluginModules, PluginSource, find_sources
from nacre.tools import CORE_OWNER, Tool, ToolCall, tool

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Generator

    from nacre.code_mode.namespaces import Namespace, NamespaceRegistry
    from nacre.config import PluginEntry, PluginsConfig
    from nacre.hooks import ContextEngine, Guidance, HookEvent
    from nacre.json_types import JsonObject
    from nacre.run_context import RunContext

logger = logging.getLogger(__name__)

_UNLOAD_SECONDS: Final = 10.0
_COMMAND_NAME = re.compile(r"[a-z][a-z0-9_-]*")
RESERVED_COMMANDS: Final = frozenset(
    (
        *("help", "status", "model", "new", "reset", "compact", "queue", "stop", "abort"),
        *("approve", "codex", "diagnostics", "quit", "exit"),
    )
)
"""The chat commands of Nacre itself."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Hook:
    event: HookEvent
    function: Callable[..., object]
    priority: int


@dataclass(frozen=True, kw_only=True, slots=True)
class PluginCommand:
    """A chat command of a plugin."""

    name: str
    description: str
    arguments: str
    owner_only: bool
    run: Callable[[str, RunContext], Awaitable[str]]
    """Given the arguments and the context of the run; raises PluginError if the plugin fails."""


@dataclass(kw_only=True)
class Registration:
    """The additions of one plugin.

    States: collecting -> active -> removed, or collecting -> removed.
    """

    plugin_id: str
    tools: list[Tool] = field(default_factory=list[Tool])
    hooks: list[_Hook] = field(default_factory=list[_Hook])
    namespaces: list[Namespace] = field(default_factory=list["Namespace"])
    engines: list[ContextEngine] = field(default_factory=list["ContextEngine"])
    guidance: list[Guidance] = field(default_factory=list["Guidance"])
    commands: list[PluginCommand] = field(default_factory=list[PluginCommand])
    is_removed: bool = False
    _is_collecting: bool = True
    _callbacks: list[Callable[[], Awaitable[None] | None]] = field(
        default_factory=list["Callable[[], Awaitable[None] | None]"]
    )

    # Called by the plugin through the API.

    def add_tool(self, given: Tool | Callable[..., object]) -> None:
        self._refuse_if_late()
        added = given if isinstance(given, Tool) else tool(given)
        if added.source != "openclaw" or added.owner not in (CORE_OWNER, self.plugin_id):
            raise PluginError(
                f"the tool {added.name!r} has the id {added.id}; the owner of a plugin's tool is "
                "the plugin: do not set `owner` and `source`"
            )
        if any(other.name == added.name for other in self.tools):
            raise PluginError(f"the tool {added.name!r} was added twice")
        self.tools.append(replace(added, owner=self.plugin_id, execute=self._while_loaded(added)))

    def add_hook(self, event: HookEvent, hook: Callable[..., object], *, priority: int) -> None:
        self._refuse_if_late()
        # A temporary registry validates the hook.
        Hooks().add(hook, event=event, owner=self.plugin_id, priority=priority)
        self.hooks.append(_Hook(event=event, function=hook, priority=priority))

    def add_namespace(self, namespace: Namespace) -> None:
        self._refuse_if_late()
        self.namespaces.append(namespace)

    def add_context_engine(self, engine: ContextEngine) -> None:
        self._refuse_if_late()
        check_engine(engine)
        self.engines.append(engine)

    def add_guidance(self, guidance: Guidance) -> None:
        self._refuse_if_late()
        check_guidance(guidance)
        self.guidance.append(guidance)

    def add_command(
        self,
        name: str,
        handler: Callable[[str, RunContext], object],
        *,
        description: str,
        arguments: str,
        owner_only: bool,
    ) -> None:
        self._refuse_if_late()
        if _COMMAND_NAME.fullmatch(name) is None:
            raise PluginError(
                f"{name!r} cannot be the name of a chat command; use a-z, 0-9, _ and -"
            )
        if name in RESERVED_COMMANDS:
            raise PluginError(f"/{name} is a chat command of Nacre; choose another name")
        if any(other.name == name for other in self.commands):
            raise PluginError(f"the chat command /{name} was added twice")
        if not callable(handler):
            raise PluginError(f"the handler of /{name} is not a function")
        self.commands.append(
            PluginCommand(
                name=name,
                description=description,
                arguments=arguments,
                owner_only=owner_only,
                run=self._run_safely(name, handler),
            )
        )

    def on_unload(self, callback: Callable[[], Awaitable[None] | None]) -> None:
        self._refuse_if_late()
        if not callable(callback):
            raise PluginError("on_unload takes a function")
        self._callbacks.append(callback)

    # Called by the host.

    def activate(
        self, hooks: Hooks, namespaces: NamespaceRegistry, contexts: ContextRegistry
    ) -> None:
        """Register all additions or none; raises PluginError."""
        self._is_collecting = False
        try:
            for hook in self.hooks:
                hooks.add(
                    hook.function, event=hook.event, owner=self.plugin_id, priority=hook.priority
                )
            for namespace in self.namespaces:
                namespaces.register(self.plugin_id, namespace)
            for engine in self.engines:
                contexts.add_engine(engine, owner=self.plugin_id)
            for guidance in self.guidance:
                contexts.add_guidance(guidance, owner=self.plugin_id)
        except NacreError as error:
            self.deactivate(hooks, namespaces, contexts)
            raise PluginError(str(error)) from error

    def deactivate(
        self, hooks: Hooks, namespaces: NamespaceRegistry, contexts: ContextRegistry
    ) -> None:
        """Remove all additions; running calls continue, later ones are refused."""
        self._is_collecting = False
        self.is_removed = True
        hooks.remove_owner(self.plugin_id)
        namespaces.clear_plugin(self.plugin_id)
        contexts.remove_owner(self.plugin_id)

    async def run_callbacks(self) -> None:
        """Run the unload callbacks of the plugin; raises nothing but a cancellation."""
        task = asyncio.current_task()
        while self._callbacks:
            callback = self._callbacks.pop()
            try:
                with anyio.fail_after(_UNLOAD_SECONDS):
                    await _call_callback(callback)
            except BaseException as error:
                if passes_through(error, caller=task):
                    raise
                logger.exception("an unload callback of the plugin %s failed", self.plugin_id)

    def _refuse_if_late(self) -> None:
        if not self._is_collecting:
            raise PluginError("nothing can be added after `register` has returned")

    def _while_loaded(self, added: Tool) -> Callable[[dict[str, Any], ToolCall], Awaitable[object]]:
        async def execute(given: dict[str, Any], call: ToolCall) -> object:
            if self.is_removed:
                raise PluginError(f"the plugin {self.plugin_id} was unloaded")
            return await added.execute(given, call)

        return execute

    def _run_safely(
        self, name: str, handler: Callable[[str, RunContext], object]
    ) -> Callable[[str, RunContext], Awaitable[str]]:
        async def run(arguments: str, context: RunContext) -> str:
            if self.is_removed:
                raise PluginError(f"the plugin {self.plugin_id} was unloaded")
            task = asyncio.current_task()
            work = partial(handler, arguments, context)
            try:
                reply = await _call_function(work, is_async=inspect.iscoroutinefunction(handler))
            except BaseException as error:
                if passes_through(error, caller=task):
                    raise
                logger.exception("/%s of the plugin %s failed", name, self.plugin_id)
                raise PluginError(f"/{name} failed: {describe_error(error)}") from error
            if not isinstance(reply, str):
                raise PluginError(f"/{name} returned a {type(reply).__name__}, not a text")
            return reply

        return run


async def _call_callback(callback: Callable[[], Awaitable[None] | None]) -> None:
    await _call_function(callback, is_async=inspect.iscoroutinefunction(callback))


async def _call_function(function: Callable[[], Any], *, is_async: bool) -> object:
    """Call a function of a plugin in a thread or, if it is async, in a task of its own."""
    if is_async:
        return await call_in_own_task(function)
    returned = await call_in_thread(function)
    if inspect.isawaitable(returned):
        return await call_in_own_task(lambda: returned)
    return returned


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
        self.tools: tuple[Tool, ...] = ()
        """The tools of all loaded plugins."""
        self.commands: tuple[PluginCommand, ...] = ()
        """The chat commands of all loaded plugins."""
        self._others: list[PluginStatus] = []
        # One change at a time, because two simultaneous loads could claim the same name.
        self._lock = anyio.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        with anyio.CancelScope(shield=True):
            for plugin_id in reversed(list(self._loaded)):
                await self.unload(plugin_id)

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
        self._collect_additions()

    async def _unload(self, plugin_id: str) -> bool:
        loaded = self._loaded.pop(plugin_id, None)
        if loaded is None:
            return False
        self._collect_additions()
        await self._roll_back(loaded.registration, loaded.modules)
        return True

    def _collect_additions(self) -> None:
        registrations = [it.registration for it in self._loaded.values()]
        self.tools = tuple(tool for it in registrations for tool in it.tools)
        self.commands = tuple(command for it in registrations for command in it.commands)

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
