"""Every request in a line, for operators who ask for that."""

from typing import Final

ACCESS_LOG: Final = "nacre.gateway.access"
"""The logger that is told, at the level INFO."""
