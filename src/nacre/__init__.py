"""Code mode for Python agents: two tools in front of many, programs in a sandbox."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nacre.code_mode import (
        CellInfo,
        CodeMode,
        CodeModeResult,
        CodeModeRun,
        Completed,
        DirectResult,
        Failed,
        Namespace,
        NamespaceContext,
        Runtime,
        Waiting,
        namespace_tool,
    )
    from nacre.config.mcp import McpServerConfig, mcp_servers_from
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
        hook,
    )
    from nacre.mcp_client import McpConnections
    from nacre.run_context import AbortSignal, RunContext
    from nacre.tool_search import ToolSearch
    from nacre.tools import (
        AllowAlways,
        AllowEdited,
        AllowOnce,
        ApprovalQueue,
        ApprovalRequest,
        Deny,
        Tool,
        ToolCall,
        ToolResult,
        tool,
    )

__version__ = "0.1.0"

__all__ = [
    "AbortSignal",
    "AfterCompaction",
    "AfterToolCall",
    "AgentEnd",
    "AllowAlways",
    "AllowEdited",
    "AllowOnce",
    "ApprovalQueue",
    "ApprovalRequest",
    "AskApproval",
    "BeforeAgentFinalize",
    "BeforeCompaction",
    "BeforeToolCall",
    "Block",
    "CellInfo",
    "ChangeContent",
    "ChangeInput",
    "ChangeResult",
    "CodeMode",
    "CodeModeResult",
    "CodeModeRun",
    "Completed",
    "Deny",
    "DirectResult",
    "Failed",
    "LlmInput",
    "LlmOutput",
    "McpConnections",
    "McpServerConfig",
    "Namespace",
    "NamespaceContext",
    "Revise",
    "RunContext",
    "Runtime",
    "Tool",
    "ToolCall",
    "ToolResult",
    "ToolResultPersist",
    "ToolSearch",
    "Waiting",
    "hook",
    "mcp_servers_from",
    "namespace_tool",
    "tool",
]

_MODULES = {
    "code_mode": (
        "CellInfo", "CodeMode", "CodeModeResult", "CodeModeRun", "Completed", "DirectResult",
        "Failed", "Namespace", "NamespaceContext", "Runtime", "Waiting", "namespace_tool",
    ),
    "hooks": (
        "AfterCompaction", "AfterToolCall", "AgentEnd", "AskApproval", "BeforeAgentFinalize",
        "BeforeCompaction", "BeforeToolCall", "Block", "ChangeContent", "ChangeInput",
        "ChangeResult", "LlmInput", "LlmOutput", "Revise", "ToolResultPersist", "hook",
    ),
    "config.mcp": ("McpServerConfig", "mcp_servers_from"),
    "mcp_client": ("McpConnections",),
    "run_context": ("AbortSignal", "RunContext"),
    "tool_search": ("ToolSearch",),
    "tools": (
        "AllowAlways", "AllowEdited", "AllowOnce", "ApprovalQueue", "ApprovalRequest", "Deny",
        "Tool", "ToolCall", "ToolResult", "tool",
    ),
}  # fmt: skip
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> object:
    # Imported when asked for: every worker imports this package, and needs none of it.
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
