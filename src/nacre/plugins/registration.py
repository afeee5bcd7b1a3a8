"""The additions of one plugin: collected, activated together, and removed again."""

from __future__ import annotations

import asyncio
import inspect
import logging
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import anyio

from nacre.errors import NacreError, PluginError
from nacre.foreign_calls import call_in_own_task, call_in_thread, passes_through
from nacre.hooks import Hooks
from nacre.tools import CORE_OWNER, Tool, ToolCall, tool

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from nacre.code_mode.namespaces import Namespace, NamespaceRegistry
    from nacre.hooks import HookEvent

logger = logging.getLogger(__name__)

_UNLOAD_SECONDS: Final = 10.0


@dataclass(frozen=True, kw_only=True, slots=True)
class _Hook:
    event: HookEvent
    function: Callable[..., object]
    priority: int


@dataclass(kw_only=True)
class Registration:
    """The additions of one plugin.

    States: collecting -> active -> removed, or collecting -> removed.
    """

    plugin_id: str
    tools: list[Tool] = field(default_factory=list[Tool])
    hooks: list[_Hook] = field(default_factory=list[_Hook])
    namespaces: list[Namespace] = field(default_factory=list["Namespace"])
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

    def on_unload(self, callback: Callable[[], Awaitable[None] | None]) -> None:
        self._refuse_if_late()
        if not callable(callback):
            raise PluginError("on_unload takes a function")
        self._callbacks.append(callback)

    # Called by the host.

    def activate(self, hooks: Hooks, namespaces: NamespaceRegistry) -> None:
        """Register all additions or none; raises PluginError."""
        self._is_collecting = False
        try:
            for hook in self.hooks:
                hooks.add(
                    hook.function, event=hook.event, owner=self.plugin_id, priority=hook.priority
                )
            for namespace in self.namespaces:
                namespaces.register(self.plugin_id, namespace)
        except NacreError as error:
            self.deactivate(hooks, namespaces)
            raise PluginError(str(error)) from error

    def deactivate(self, hooks: Hooks, namespaces: NamespaceRegistry) -> None:
        """Remove all additions; running calls continue, later ones are refused."""
        self._is_collecting = False
        self.is_removed = True
        hooks.remove_owner(self.plugin_id)
        namespaces.clear_plugin(self.plugin_id)

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


async def _call_callback(callback: Callable[[], Awaitable[None] | None]) -> None:
    if inspect.iscoroutinefunction(callback):
        await call_in_own_task(callback)
        return
    returned = await call_in_thread(callback)
    if inspect.isawaitable(returned):
        await call_in_own_task(lambda: returned)
