"""Loads and unloads plugins: Python code of third parties in the process of Nacre."""

from nacre.plugins.host import PluginHost, PluginStatus
from nacre.plugins.manifest import MANIFEST_NAME, PluginManifest, read_manifest
from nacre.plugins.sources import check_plugins

__all__ = [
    "MANIFEST_NAME",
    "PluginHost",
    "PluginManifest",
    "PluginStatus",
    "check_plugins",
    "read_manifest",
]
