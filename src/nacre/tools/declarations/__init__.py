"""TypeScript declarations of tools."""

from nacre.tools.declarations.files import (
    DeclaredServer,
    DeclaredTool,
    function_declaration,
    mcp_file_path,
    mcp_index_file,
    mcp_server_file,
    tools_file,
)

__all__ = [
    "DeclaredServer",
    "DeclaredTool",
    "function_declaration",
    "mcp_file_path",
    "mcp_index_file",
    "mcp_server_file",
    "tools_file",
]
