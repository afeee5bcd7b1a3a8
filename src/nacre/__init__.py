"""Code mode for Python agents: hostile JavaScript in a sandbox, tools behind one door."""

__version__ = "0.1.0"
