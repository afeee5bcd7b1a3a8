"""The server side of the wire formats of model providers."""
