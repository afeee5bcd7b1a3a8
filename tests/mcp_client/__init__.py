"""Tests of the MCP client, against real servers and broken ones."""
