"""Servers that do what no server should; each runs as a process of its own."""
