"""Named points where somebody may observe, change or block a call; knows nothing of tools."""

from nacre.hooks.events import (
    HOOK_EVENTS,
    AfterToolCall,
    AskApproval,
    BeforeToolCall,
    Block,
    ChangeInput,
    ChangeResult,
    HookEvent,
    ToolKind,
)
from nacre.hooks.registry import Hooks, RegisteredHook, hook
from nacre.hooks.runner import Decision, HookRunner

__all__ = [
    "HOOK_EVENTS",
    "AfterToolCall",
    "AskApproval",
    "BeforeToolCall",
    "Block",
    "ChangeInput",
    "ChangeResult",
    "Decision",
    "HookEvent",
    "HookRunner",
    "Hooks",
    "RegisteredHook",
    "ToolKind",
    "hook",
]
