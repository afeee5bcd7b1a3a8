"""Connects to MCP servers and provides their tools.

Only modules that exchange messages with a server import the `mcp` SDK. They are imported with the
first connection, because the SDK takes two thirds of a second to import.
"""

from nacre.mcp_client.process import OutputTail, ServerProcess
from nacre.mcp_client.server import McpConnections, McpServer, ServerState, ServerStatus
from nacre.mcp_client.upstream import UpstreamRefusal, UpstreamRequests

__all__ = [
    "McpConnections",
    "McpServer",
    "OutputTail",
    "ServerProcess",
    "ServerState",
    "ServerStatus",
    "UpstreamRefusal",
    "UpstreamRequests",
]
