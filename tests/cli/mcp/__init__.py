"""`nacre mcp` as a person uses it."""
