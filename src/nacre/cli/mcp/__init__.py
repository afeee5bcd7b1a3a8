"""`nacre mcp`: the server for MCP clients, and the servers behind it."""
