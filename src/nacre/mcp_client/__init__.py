"""Uses the tools of MCP servers: supervised connections, and their tools as tools of ours.

Only the modules that talk to a server import the `mcp` SDK, and they are imported with the first
connection: it takes two thirds of a second.
"""

from nacre.mcp_client.server import McpConnections, McpServer, ServerState, ServerStatus
from nacre.mcp_client.upstream import UpstreamRefusal, UpstreamRequests

__all__ = [
    "McpConnections",
    "McpServer",
    "ServerState",
    "ServerStatus",
    "UpstreamRefusal",
    "UpstreamRequests",
]
