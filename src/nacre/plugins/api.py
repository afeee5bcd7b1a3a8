"""The API for authors of plugins; a plugin imports nothing else of Nacre.

A plugin is a directory with a `nacre.plugin.json` and a module with a function `register`:

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
    """The argument of a plugin's `register` function, which may be async.

    Everything that you add takes effect together when `register` returns. If `register` raises, or
    if an addition is refused, nothing takes effect.
    """

    def __init__(self, registration: Registration, config: JsonObject) -> None:
        self._registration = registration
        self.config = config
        """The settings in `plugins.entries.<id>.config`, validated by `configSchema`."""
        self.logger = logging.getLogger(f"nacre.plugins.{registration.plugin_id}")
        """The logger of the plugin."""

    @property
    def plugin_id(self) -> str:
        """The id in the manifest; the owner of everything that the plugin adds."""
        return self._registration.plugin_id

    def add_tool(self, tool: Tool | Callable[..., object]) -> None:
        """Add a tool, or a typed function, which becomes a tool.

        Its id is `openclaw:<plugin id>:<tool name>`. Raises PluginError if the plugin already has a
        tool with this name, and ToolDefinitionError if the function cannot be a tool.
        """
        self._registration.add_tool(tool)

    def add_hook(self, event: HookEvent, hook: Callable[..., object], *, priority: int = 0) -> None:
        """Call `hook` for each `event`; hooks with a higher priority are called first.

        `hook` takes the event object and may be async. See docs/approvals_and_hooks.md for the
        events and the allowed return values. Raises HookError for an unknown event.
        """
        self._registration.add_hook(event, hook, priority=priority)

    def add_namespace(self, namespace: Namespace) -> None:
        """Add a global object for programs, whose functions call tools of this plugin.

        Raises PluginError if the plugin has already added the same id or global name. Conflicts
        with other plugins are detected after `register` returns.
        """
        self._registration.add_namespace(namespace)

    def on_unload(self, callback: Callable[[], Awaitable[None] | None]) -> None:
        """Call `callback` when the plugin is unloaded, or if loading it fails.

        Callbacks are called in reverse order, each with a timeout of ten seconds. Exceptions are
        logged.
        """
        self._registration.on_unload(callback)
