"""What authors of plugins import, and nothing else: the door through which a plugin registers.

A plugin is a folder with a `nacre.plugin.json` and a module with a function `register`:

    from nacre.plugins.api import PluginApi, tool

    @tool
    async def forecast(city: str) -> str:
        "The weather of tomorrow."
        return f"sunny in {city}"

    def register(api: PluginApi) -> None:
        api.add_tool(forecast)
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from nacre.code_mode.namespace_scope import namespace_tool
from nacre.code_mode.namespaces import Namespace, NamespaceContext
from nacre.errors import PluginError
from nacre.hooks import (
    AfterCompaction,
    AfterToolCall,
    AgentEnd,
    AskApproval,
    BeforeAgentFinalize,
    BeforeCompaction,
    BeforeToolCall,
    Block,
    ChangeContent,
    ChangeInput,
    ChangeResult,
    LlmInput,
    LlmOutput,
    Revise,
    ToolResultPersist,
)
from nacre.run_context import AbortSignal, RunContext
from nacre.tools import Tool, ToolCall, ToolResult, tool

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from nacre.hooks import HookEvent
    from nacre.json_types import JsonObject
    from nacre.plugins.registration import Registration

__all__ = [
    "AbortSignal",
    "AfterCompaction",
    "AfterToolCall",
    "AgentEnd",
    "AskApproval",
    "BeforeAgentFinalize",
    "BeforeCompaction",
    "BeforeToolCall",
    "Block",
    "ChangeContent",
    "ChangeInput",
    "ChangeResult",
    "LlmInput",
    "LlmOutput",
    "Namespace",
    "NamespaceContext",
    "PluginApi",
    "PluginError",
    "Revise",
    "RunContext",
    "Tool",
    "ToolCall",
    "ToolResult",
    "ToolResultPersist",
    "namespace_tool",
    "tool",
]


class PluginApi:
    """Given to a plugin's `register`, which may be async.

    What is added takes effect when `register` has returned, all of it at once. When `register`
    raises, or one of the things that it added is refused, none of them stays.
    """

    def __init__(self, registration: Registration, config: JsonObject) -> None:
        self._registration = registration
        self.config = config
        """`plugins.entries.<id>.config` of the configuration, after the check by `configSchema`."""
        self.logger = logging.getLogger(f"nacre.plugins.{registration.plugin_id}")
        """A logger of the plugin's own."""

    @property
    def plugin_id(self) -> str:
        """The id in the manifest; the owner of everything that the plugin adds."""
        return self._registration.plugin_id

    def add_tool(self, tool: Tool | Callable[..., object]) -> None:
        """Add a tool, or a typed function, which becomes one.

        Its id will be `openclaw:<plugin id>:<tool name>`. Raises PluginError for a name that the
        plugin has used already, and ToolDefinitionError for what cannot be a tool.
        """
        self._registration.add_tool(tool)

    def add_hook(self, event: HookEvent, hook: Callable[..., object], *, priority: int = 0) -> None:
        """Have `hook` asked at each `event`, the highest priority first.

        `hook` takes the event's object and may be async; docs/approvals_and_hooks.md has the events
        and what may be returned. Raises HookError for an event that there is not.
        """
        self._registration.add_hook(event, hook, priority=priority)

    def add_namespace(self, namespace: Namespace) -> None:
        """Give programs a global object whose functions call tools of this plugin.

        Raises PluginError when the plugin has added the same id or global name before; whether it
        collides with another plugin's is found out when `register` has returned.
        """
        self._registration.add_namespace(namespace)

    def on_unload(self, callback: Callable[[], Awaitable[None] | None]) -> None:
        """Have `callback` called when the plugin is unloaded, or its load is rolled back.

        The last one added is called first. Each has ten seconds; what it raises is logged.
        """
        self._registration.on_unload(callback)
