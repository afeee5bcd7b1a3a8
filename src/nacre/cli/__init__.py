"""The command line: turns arguments into calls of the layers below, and results into text."""
