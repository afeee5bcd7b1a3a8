"""The HTTP gateway: the JSON API under `/api`, and the OpenAI API under `/v1`."""

from typing import Final

ACCESS_LOG: Final = "nacre.gateway.access"
"""The logger of requests, at the level INFO."""
