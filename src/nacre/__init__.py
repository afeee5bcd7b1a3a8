"""Code mode for Python agents: two tools in front of many, programs in a sandbox."""

from typing import TYPE_CHECKING

from nacre.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from nacre.cell_replay import CellReplay, Replay, replay
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
    from nacre.config import McpServerConfig, mcp_servers_from
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
    "CellReplay",
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
    "Replay",
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
    "replay",
    "tool",
]

# Imported on first use: every worker imports this package and needs none of it.
__getattr__ = lazy_exports(
    __name__,
    {
        "nacre.cell_replay": (
            "CellReplay",
            "Replay",
            "replay",
        ),
        "nacre.code_mode": (
            "CellInfo",
            "CodeMode",
            "CodeModeResult",
            "CodeModeRun",
            "Completed",
            "DirectResult",
            "Failed",
            "Namespace",
            "NamespaceContext",
            "Runtime",
            "Waiting",
            "namespace_tool",
        ),
        "nacre.hooks": (
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
            "Revise",
            "ToolResultPersist",
            "hook",
        ),
        "nacre.config.mcp": (
            "McpServerConfig",
            "mcp_servers_from",
        ),
        "nacre.mcp_client": ("McpConnections",),
        "nacre.run_context": (
            "AbortSignal",
            "RunContext",
        ),
        "nacre.tool_search": ("ToolSearch",),
        "nacre.tools": (
            "AllowAlways",
            "AllowEdited",
            "AllowOnce",
            "ApprovalQueue",
            "ApprovalRequest",
            "Deny",
            "Tool",
            "ToolCall",
            "ToolResult",
            "tool",
        ),
    },
)
