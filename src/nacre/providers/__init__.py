"""Model providers behind one protocol: requests and streams of events."""

from typing import TYPE_CHECKING

from nacre.lazy_exports import lazy_exports
from nacre.providers.base import (
    Answered,
    ModelEvent,
    ModelRequest,
    ModelSettings,
    Provider,
    Retrying,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
)

if TYPE_CHECKING:
    from nacre.providers.provider_secrets import get_api_key
    from nacre.providers.registry import Providers, import_backend

__all__ = [
    "Answered",
    "ModelEvent",
    "ModelRequest",
    "ModelSettings",
    "Provider",
    "Providers",
    "Retrying",
    "TextDelta",
    "ThinkingDelta",
    "ToolCallDelta",
    "get_api_key",
    "import_backend",
]

# Imported on first use: most importers need only the types of requests and events.
__getattr__ = lazy_exports(
    __name__,
    {
        "nacre.providers.provider_secrets": ("get_api_key",),
        "nacre.providers.registry": ("Providers", "import_backend"),
    },
)
