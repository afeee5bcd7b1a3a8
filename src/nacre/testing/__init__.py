"""For tests of agents, plugins and tools: a scripted model provider, and tools that record."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nacre.testing.fake_tools import HeldTool, RecordingTool
    from nacre.testing.recorded_request import RecordedRequest
    from nacre.testing.script import (
        Call,
        Cut,
        End,
        Fail,
        Raw,
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

_MODULES = {
    "fake_tools": ("HeldTool", "RecordingTool"),
    "recorded_request": ("RecordedRequest",),
    "script": ("Call", "Cut", "End", "Fail", "Raw", "Say", "Stall", "Think", "by_marker"),
    "scripted_provider": ("ScriptedProvider",),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> object:
    # Imported when asked for: `python -m nacre.testing.scripted_provider` must be the first to
    # import that module, and tools can be tested without a web server.
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
