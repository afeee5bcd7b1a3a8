"""Third-party code in the process: loaded whole or not at all, and unloaded without a trace."""

from nacre.plugins.host import PluginHost, PluginStatus
from nacre.plugins.manifest import MANIFEST_NAME, PluginManifest, read_manifest

__all__ = ["MANIFEST_NAME", "PluginHost", "PluginManifest", "PluginStatus", "read_manifest"]
