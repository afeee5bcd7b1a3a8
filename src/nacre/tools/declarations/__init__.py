"""TypeScript declarations of tools, and the names that programs call them by."""

from nacre.tools.declarations.files import (
    DeclaredServer,
    DeclaredTool,
    function_declaration,
    mcp_file_path,
    mcp_index_file,
    mcp_server_file,
    tools_file,
)
from nacre.tools.declarations.guest_names import (
    guest_names,
)

__all__ = [
    "DeclaredServer",
    "DeclaredTool",
    "function_declaration",
    "guest_names",
    "mcp_file_path",
    "mcp_index_file",
    "mcp_server_file",
    "tools_file",
]
