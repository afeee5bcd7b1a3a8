"""`nacre mcp`: the MCP server that shows `exec` and `wait` in front of other servers and tools."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nacre.mcp_server.http import serve_http
    from nacre.mcp_server.server import CodeModeMcpServer
    from nacre.mcp_server.serving import ServeOptions
    from nacre.mcp_server.stdio import serve_stdio

__all__ = ["CodeModeMcpServer", "ServeOptions", "serve_http", "serve_stdio"]

_MODULE_OF = {
    "CodeModeMcpServer": "server",
    "ServeOptions": "serving",
    "serve_http": "http",
    "serve_stdio": "stdio",
}


def __getattr__(name: str) -> object:
    # Imported when asked for: the MCP SDK takes most of a second to import.
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
