"""Named points where somebody may observe, change or block a run; knows nothing of tools."""

from nacre.hooks.events import (
    HOOK_EVENTS,
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
    HookEvent,
    LlmInput,
    LlmOutput,
    Revise,
    ToolKind,
    ToolResultPersist,
)
from nacre.hooks.registry import Hooks, RegisteredHook, hook
from nacre.hooks.runner import HookRunner
from nacre.hooks.tool_call_hooks import Decision

__all__ = [
    "HOOK_EVENTS",
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
    "Decision",
    "HookEvent",
    "HookRunner",
    "Hooks",
    "LlmInput",
    "LlmOutput",
    "RegisteredHook",
    "Revise",
    "ToolKind",
    "ToolResultPersist",
    "hook",
]
