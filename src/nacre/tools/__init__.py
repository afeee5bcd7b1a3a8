"""Tools and the one path that executes them; knows nothing of sandboxes, models and agents."""

from nacre.tools.approvals import (
    APPROVAL_SECONDS,
    AllowAlways,
    AllowEdited,
    AllowOnce,
    ApprovalInfo,
    ApprovalMemory,
    ApprovalQueue,
    ApprovalRequest,
    Approvals,
    Approver,
    Deny,
)
from nacre.tools.catalog import Catalog, CatalogEntry, build_catalog
from nacre.tools.catalog_search import GUEST_SOURCES, CatalogIndex, index_of
from nacre.tools.definition import Tool, ToolCall
from nacre.tools.executor import CallSite, CallSubject, ToolExecutor
from nacre.tools.function_tool import tool
from nacre.tools.input_checks import InputValidators
from nacre.tools.policy import ToolPolicy, effective_tools
from nacre.tools.tool_result import ToolResult

__all__ = [
    "APPROVAL_SECONDS",
    "GUEST_SOURCES",
    "AllowAlways",
    "AllowEdited",
    "AllowOnce",
    "ApprovalInfo",
    "ApprovalMemory",
    "ApprovalQueue",
    "ApprovalRequest",
    "Approvals",
    "Approver",
    "CallSite",
    "CallSubject",
    "Catalog",
    "CatalogEntry",
    "CatalogIndex",
    "Deny",
    "InputValidators",
    "Tool",
    "ToolCall",
    "ToolExecutor",
    "ToolPolicy",
    "ToolResult",
    "build_catalog",
    "effective_tools",
    "index_of",
    "tool",
]
