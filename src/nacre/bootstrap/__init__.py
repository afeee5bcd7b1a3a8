"""Builds the running system from its configuration: the one place that knows every part."""

from nacre.bootstrap.system import System, open_system

__all__ = ["System", "open_system"]
