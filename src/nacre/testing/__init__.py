"""For tests of agents, plugins and tools: a scripted model provider, and recording tools."""

from typing import TYPE_CHECKING

from nacre.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from nacre.testing.fake_tools import HeldTool, RecordingTool
    from nacre.testing.script import (
        Call,
        Cut,
        End,
        Fail,
        Raw,
        RecordedRequest,
        Say,
        Stall,
        Think,
        by_marker,
    )
    from nacre.testing.scripted_provider import ScriptedProvider

__all__ = [
    "Call",
    "Cut",
    "End",
    "Fail",
    "HeldTool",
    "Raw",
    "RecordedRequest",
    "RecordingTool",
    "Say",
    "ScriptedProvider",
    "Stall",
    "Think",
    "by_marker",
]

# Imported on first use: `python -m nacre.testing.scripted_provider` must be the first to import
# that module, and tools can be tested without a web server.
__getattr__ = lazy_exports(
    __name__,
    {
        "nacre.testing.fake_tools": (
            "HeldTool",
            "RecordingTool",
        ),
        "nacre.testing.script": (
            "Call",
            "Cut",
            "End",
            "Fail",
            "Raw",
            "RecordedRequest",
            "Say",
            "Stall",
            "Think",
            "by_marker",
        ),
        "nacre.testing.scripted_provider": ("ScriptedProvider",),
    },
)
