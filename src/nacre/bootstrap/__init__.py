"""Opens the whole system from its configuration. No other package imports all parts."""

from nacre.bootstrap.system import System, open_system

__all__ = ["System", "open_system"]
