"""`nacre mcp`: an MCP server that offers `exec` and `wait` for the tools of other servers."""

from typing import TYPE_CHECKING

from nacre.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from nacre.mcp_server.http import serve_http
    from nacre.mcp_server.server import CodeModeMcpServer, ServeOptions
    from nacre.mcp_server.stdio import serve_stdio

__all__ = ["CodeModeMcpServer", "ServeOptions", "serve_http", "serve_stdio"]

# Imported on first use: the MCP SDK takes most of a second to import.
__getattr__ = lazy_exports(
    __name__,
    {
        "nacre.mcp_server.server": ("CodeModeMcpServer", "ServeOptions"),
        "nacre.mcp_server.http": ("serve_http",),
        "nacre.mcp_server.stdio": ("serve_stdio",),
    },
)
