"""The HTTP server in front of the agents; knows HTTP, and nothing of how a turn works."""
