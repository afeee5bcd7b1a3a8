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

from nacre.code_mode.namespaces import Namespace, NamespaceContext, namespace_tool
from nacre.errors import PluginError
from nacre.hooks import (
    AddToPrompt,
    AfterCompaction,
    AfterToolCall,
    AgentEnd,
    AskApproval,
    AssembledContext,
    AssembleRequest,
    BeforeAgentFinalize,
    BeforeCompaction,
    BeforePromptBuild,
    BeforeToolCall,
    Block,
    ChangeContent,
    ChangeInput,
    ChangeResult,
    ContextEngine,
    FinishedTurn,
    Guidance,
    LlmInput,
    LlmOutput,
    Revise,
    ToolResultPersist,
)
from nacre.messages import (
    AssistantMessage,
    ImagePart,
    Message,
    SystemMessage,
    TextPart,
    ToolCallPart,
    ToolMessage,
    UserMessage,
)
from nacre.run_context import AbortSignal, RunContext
from nacre.tools import Tool, ToolCall, ToolResult, tool

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from nacre.hooks import HookEvent, PromptSurface
    from nacre.json_types import JsonObject
    from nacre.plugins.host import Registration

__all__ = [
    "AbortSignal",
    "AddToPrompt",
    "AfterCompaction",
    "AfterToolCall",
    "AgentEnd",
    "AskApproval",
    "AssembleRequest",
    "AssembledContext",
    "AssistantMessage",
    "BeforeAgentFinalize",
    "BeforeCompaction",
    "BeforePromptBuild",
    "BeforeToolCall",
    "Block",
    "ChangeContent",
    "ChangeInput",
    "ChangeResult",
    "ContextEngine",
    "FinishedTurn",
    "ImagePart",
    "LlmInput",
    "LlmOutput",
    "Message",
    "Namespace",
    "NamespaceContext",
    "PluginApi",
    "PluginError",
    "Revise",
    "RunContext",
    "SystemMessage",
    "TextPart",
    "Tool",
    "ToolCall",
    "ToolCallPart",
    "ToolMessage",
    "ToolResult",
    "ToolResultPersist",
    "UserMessage",
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

    def add_context_engine(self, engine: ContextEngine) -> None:
        """Add a context engine; `plugins.slots.contextEngine` has to name its id.

        Raises HookError for an invalid id. A conflict with another plugin is detected after
        `register` returns.
        """
        self._registration.add_context_engine(engine)

    def add_guidance(self, text: str, *, surfaces: Iterable[PromptSurface] = ()) -> None:
        """Add a hint to the prompts of turns, such as how to use a command of this plugin.

        `surfaces` are `openclaw_main`, the built-in harness, and `codex_app_server`, Codex. Without
        them, only the built-in harness shows the hint. Raises HookError for an invalid value.
        """
        self._registration.add_guidance(Guidance(text=text, surfaces=tuple(surfaces)))

    def add_command(
        self,
        name: str,
        handler: Callable[[str, RunContext], object],
        *,
        description: str,
        arguments: str = "",
        owner_only: bool = False,
    ) -> None:
        """Add a chat command: a message `/name ...`, which `handler` answers instead of a model.

        `handler` takes the text after the name and the context of the run, and returns the reply.
        It may be async. `arguments` is the syntax for `/help`, such as `[city]`. With `owner_only`,
        others are refused. Raises PluginError for a name that is invalid, or one of Nacre's own.
        """
        self._registration.add_command(
            name, handler, description=description, arguments=arguments, owner_only=owner_only
        )

    def on_unload(self, callback: Callable[[], Awaitable[None] | None]) -> None:
        """Call `callback` when the plugin is unloaded, or if loading it fails.

        Callbacks are called in reverse order, each with a timeout of ten seconds. Exceptions are
        logged.
        """
        self._registration.on_unload(callback)
