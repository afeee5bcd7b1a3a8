"""Hooks: functions that observe, change or block tool calls and the steps of a turn.

With them, context engines, which select the messages of a turn.
"""

from typing import TYPE_CHECKING

from nacre.hooks.events import (
    HOOK_EVENTS,
    AddToPrompt,
    AfterCompaction,
    AfterToolCall,
    AgentEnd,
    AskApproval,
    BeforeAgentFinalize,
    BeforeCompaction,
    BeforePromptBuild,
    BeforeToolCall,
    Block,
    ChangeContent,
    ChangeInput,
    ChangeResult,
    HarnessId,
    HookEvent,
    LlmInput,
    LlmOutput,
    Revise,
    ToolKind,
    ToolResultPersist,
)
from nacre.hooks.runner import Decision, HookRunner, Hooks, RegisteredHook, hook
from nacre.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from nacre.hooks.context_engines import (
        NO_ENGINES,
        PROMPT_SURFACES,
        AssembledContext,
        AssembleRequest,
        ContextEngine,
        ContextRegistry,
        FinishedTurn,
        Guidance,
        Projection,
        PromptSurface,
        check_engine,
        check_guidance,
    )

__all__ = [
    "HOOK_EVENTS",
    "NO_ENGINES",
    "PROMPT_SURFACES",
    "AddToPrompt",
    "AfterCompaction",
    "AfterToolCall",
    "AgentEnd",
    "AskApproval",
    "AssembleRequest",
    "AssembledContext",
    "BeforeAgentFinalize",
    "BeforeCompaction",
    "BeforePromptBuild",
    "BeforeToolCall",
    "Block",
    "ChangeContent",
    "ChangeInput",
    "ChangeResult",
    "ContextEngine",
    "ContextRegistry",
    "Decision",
    "FinishedTurn",
    "Guidance",
    "HarnessId",
    "HookEvent",
    "HookRunner",
    "Hooks",
    "LlmInput",
    "LlmOutput",
    "Projection",
    "PromptSurface",
    "RegisteredHook",
    "Revise",
    "ToolKind",
    "ToolResultPersist",
    "check_engine",
    "check_guidance",
    "hook",
]

# Imported on first use: only turns of agents have context engines.
__getattr__ = lazy_exports(
    __name__,
    {
        "nacre.hooks.context_engines": (
            "NO_ENGINES",
            "PROMPT_SURFACES",
            "AssembledContext",
            "AssembleRequest",
            "ContextEngine",
            "ContextRegistry",
            "FinishedTurn",
            "Guidance",
            "Projection",
            "PromptSurface",
            "check_engine",
            "check_guidance",
        ),
    },
)
