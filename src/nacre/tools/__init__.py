"""Tools and the call path that executes them."""

from typing import TYPE_CHECKING

from nacre.lazy_exports import lazy_exports
from nacre.tools.approvals import (
    APPROVAL_SECONDS,
    AllowAlways,
    AllowEdited,
    AllowOnce,
    ApprovalDecision,
    ApprovalInfo,
    ApprovalMemory,
    ApprovalQueue,
    ApprovalRequest,
    Approvals,
    Approver,
    Deny,
)
from nacre.tools.catalog import (
    OTHER_IDS,
    Catalog,
    CatalogCounters,
    CatalogEntry,
    build_catalog,
    is_control_tool,
)
from nacre.tools.catalog_search import (
    GUEST_SOURCES,
    CatalogIndex,
    Explanation,
    RunIndex,
    ScorePart,
    index_of,
)
from nacre.tools.definition import (
    CORE_OWNER,
    OPERATION_MARK,
    SOURCES,
    DefinitionFormat,
    Execute,
    ListedServer,
    Tool,
    ToolCall,
    ToolServer,
    format_definition,
    format_tool,
    servers_of,
)
from nacre.tools.executor import CallSite, CallSubject, ToolExecutor
from nacre.tools.function_tool import tool
from nacre.tools.input_checks import InputValidators
from nacre.tools.policy import ToolPolicy, effective_tools, policy_for
from nacre.tools.schema_references import as_dict, as_list, target_of
from nacre.tools.servers import (
    PauseClock,
    ServerStarts,
    describe_missing_start,
    permitted_servers,
    refresh_server,
)
from nacre.tools.surface import (
    CallResult,
    CallWaits,
    DirectResult,
    InvalidCall,
    SurfaceKind,
    ToolSurface,
    assign_tool_names,
    format_direct_result,
    format_error,
    format_result,
    make_call_site,
    make_tool_specs,
    parse_call,
    split_direct_tools,
    verify_payload,
)
from nacre.tools.tool_names import NearestNames, assign_guest_names, possible_guest_names
from nacre.tools.tool_result import ToolResult, part_text, take_images

if TYPE_CHECKING:
    from nacre.tools.core.core_tools import CoreTools, MessageSink
    from nacre.tools.core.shell_process import kill_all_commands
    from nacre.tools.declarations import (
        DeclaredServer,
        DeclaredTool,
        function_declaration,
        mcp_file_path,
        mcp_index_file,
        mcp_server_file,
        tools_file,
    )

__all__ = [
    "APPROVAL_SECONDS",
    "CORE_OWNER",
    "GUEST_SOURCES",
    "OPERATION_MARK",
    "OTHER_IDS",
    "SOURCES",
    "AllowAlways",
    "AllowEdited",
    "AllowOnce",
    "ApprovalDecision",
    "ApprovalInfo",
    "ApprovalMemory",
    "ApprovalQueue",
    "ApprovalRequest",
    "Approvals",
    "Approver",
    "CallResult",
    "CallSite",
    "CallSubject",
    "CallWaits",
    "Catalog",
    "CatalogCounters",
    "CatalogEntry",
    "CatalogIndex",
    "CoreTools",
    "DeclaredServer",
    "DeclaredTool",
    "DefinitionFormat",
    "Deny",
    "DirectResult",
    "Execute",
    "Explanation",
    "InputValidators",
    "InvalidCall",
    "ListedServer",
    "MessageSink",
    "NearestNames",
    "PauseClock",
    "RunIndex",
    "ScorePart",
    "ServerStarts",
    "SurfaceKind",
    "Tool",
    "ToolCall",
    "ToolExecutor",
    "ToolPolicy",
    "ToolResult",
    "ToolServer",
    "ToolSurface",
    "as_dict",
    "as_list",
    "assign_guest_names",
    "assign_tool_names",
    "build_catalog",
    "describe_missing_start",
    "effective_tools",
    "format_definition",
    "format_direct_result",
    "format_error",
    "format_result",
    "format_tool",
    "function_declaration",
    "index_of",
    "is_control_tool",
    "kill_all_commands",
    "make_call_site",
    "make_tool_specs",
    "mcp_file_path",
    "mcp_index_file",
    "mcp_server_file",
    "parse_call",
    "part_text",
    "permitted_servers",
    "policy_for",
    "possible_guest_names",
    "refresh_server",
    "servers_of",
    "split_direct_tools",
    "take_images",
    "target_of",
    "tool",
    "tools_file",
    "verify_payload",
]

# Imported on first use: not every run needs the core tools or TypeScript declarations.
__getattr__ = lazy_exports(
    __name__,
    {
        "nacre.tools.core.core_tools": ("CoreTools", "MessageSink"),
        "nacre.tools.core.shell_process": ("kill_all_commands",),
        "nacre.tools.declarations": (
            "DeclaredServer",
            "DeclaredTool",
            "function_declaration",
            "mcp_file_path",
            "mcp_index_file",
            "mcp_server_file",
            "tools_file",
        ),
    },
)
