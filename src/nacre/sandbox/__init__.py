"""Runs untrusted JavaScript in worker processes. Independent of tools, agents and models."""

from typing import TYPE_CHECKING

from nacre.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from nacre.sandbox.host_requests import HostRequest, HostRequestHandler
    from nacre.sandbox.key_ring import KeyRing, SnapshotKey, load_key_ring, new_key, parse_key_ring
    from nacre.sandbox.pool import Launcher
    from nacre.sandbox.results import (
        CellId,
        CellResult,
        Completed,
        Failed,
        ImageOutput,
        JsonOutput,
        Limits,
        Output,
        TextOutput,
        Usage,
        Waiting,
    )
    from nacre.sandbox.sandbox import (
        Cell,
        CellState,
        Sandbox,
        SandboxOptions,
        SandboxReport,
        StoredCell,
    )
    from nacre.sandbox.worker_process import SharedData

__all__ = [
    "Cell",
    "CellId",
    "CellResult",
    "CellState",
    "Completed",
    "Failed",
    "HostRequest",
    "HostRequestHandler",
    "ImageOutput",
    "JsonOutput",
    "KeyRing",
    "Launcher",
    "Limits",
    "Output",
    "Sandbox",
    "SandboxOptions",
    "SandboxReport",
    "SharedData",
    "SnapshotKey",
    "StoredCell",
    "TextOutput",
    "Usage",
    "Waiting",
    "load_key_ring",
    "new_key",
    "parse_key_ring",
]

# Imported on first use: workers import this package too, but must not load the supervisor.
__getattr__ = lazy_exports(
    __name__,
    {
        "nacre.sandbox.host_requests": (
            "HostRequest",
            "HostRequestHandler",
        ),
        "nacre.sandbox.key_ring": (
            "KeyRing",
            "SnapshotKey",
            "load_key_ring",
            "new_key",
            "parse_key_ring",
        ),
        "nacre.sandbox.pool": ("Launcher",),
        "nacre.sandbox.results": (
            "CellId",
            "CellResult",
            "Completed",
            "Failed",
            "ImageOutput",
            "JsonOutput",
            "Limits",
            "Output",
            "TextOutput",
            "Usage",
            "Waiting",
        ),
        "nacre.sandbox.sandbox": (
            "Cell",
            "CellState",
            "Sandbox",
            "SandboxOptions",
            "SandboxReport",
            "StoredCell",
        ),
        "nacre.sandbox.worker_process": ("SharedData",),
    },
)
