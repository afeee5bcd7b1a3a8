"""Loads and unloads plugins: Python code of third parties in the process of Nacre."""

from typing import TYPE_CHECKING

from nacre.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from nacre.plugins.host import RESERVED_COMMANDS, PluginCommand, PluginHost, PluginStatus
    from nacre.plugins.manifest import MANIFEST_NAME, PluginManifest, read_manifest
    from nacre.plugins.sources import check_plugins, find_misplaced

__all__ = [
    "MANIFEST_NAME",
    "RESERVED_COMMANDS",
    "PluginCommand",
    "PluginHost",
    "PluginManifest",
    "PluginStatus",
    "check_plugins",
    "find_misplaced",
    "read_manifest",
]

# Imported on first use: to check the manifests of plugins, nothing has to run them.
__getattr__ = lazy_exports(
    __name__,
    {
        "nacre.plugins.manifest": ("MANIFEST_NAME", "PluginManifest", "read_manifest"),
        "nacre.plugins.host": (
            "RESERVED_COMMANDS",
            "PluginCommand",
            "PluginHost",
            "PluginStatus",
        ),
        "nacre.plugins.sources": ("check_plugins", "find_misplaced"),
    },
)
