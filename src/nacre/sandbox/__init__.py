"""Runs hostile JavaScript in worker processes; knows nothing of tools, agents or models."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nacre.sandbox.cell import Cell
    from nacre.sandbox.cell_state import CellState
    from nacre.sandbox.host_requests import HostRequest, HostRequestHandler
    from nacre.sandbox.limits import Limits
    from nacre.sandbox.results import (
        CellResult,
        Completed,
        Failed,
        JsonOutput,
        Output,
        TextOutput,
        Usage,
        Waiting,
        to_wire,
    )
    from nacre.sandbox.sandbox import Sandbox, SandboxOptions, SandboxReport
    from nacre.sandbox.shared_data import SharedData

__all__ = [
    "Cell",
    "CellResult",
    "CellState",
    "Completed",
    "Failed",
    "HostRequest",
    "HostRequestHandler",
    "JsonOutput",
    "Limits",
    "Output",
    "Sandbox",
    "SandboxOptions",
    "SandboxReport",
    "SharedData",
    "TextOutput",
    "Usage",
    "Waiting",
    "to_wire",
]

_MODULES = {
    "cell": ("Cell",),
    "cell_state": ("CellState",),
    "host_requests": ("HostRequest", "HostRequestHandler"),
    "limits": ("Limits",),
    "results": (
        "CellResult", "Completed", "Failed", "JsonOutput", "Output", "TextOutput", "Usage",
        "Waiting", "to_wire",
    ),
    "sandbox": ("Sandbox", "SandboxOptions", "SandboxReport"),
    "shared_data": ("SharedData",),
}  # fmt: skip
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> object:
    # Imported when asked for: a worker is part of this package and must not load the supervisor.
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
