"""The additions of one plugin: collected, activated together, and removed again."""

from __future__ import annotations

import asyncio
import inspect
import logging
import re
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import anyio

from nacre.errors import NacreError, PluginError
from nacre.foreign_calls import call_in_own_task, call_in_thread, describe_error, passes_through
from nacre.hooks import Hooks, check_engine, check_guidance
from nacre.tools import CORE_OWNER, Tool, ToolCall, tool

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from nacre.code_mode.namespaces import Namespace, NamespaceRegistry
    from nacre.hooks import ContextEngine, ContextRegistry, Guidance, HookEvent
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
