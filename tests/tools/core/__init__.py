"""The tools that ship with the package."""
