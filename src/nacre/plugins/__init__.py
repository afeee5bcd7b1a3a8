"""Third-party code in the process: loaded whole or not at all, and unloaded without a trace."""

from nacre.plugins.host import PluginHost
from nacre.plugins.manifest import MANIFEST_NAME, PluginManifest, read_manifest
from nacre.plugins.status import PluginStatus

__all__ = ["MANIFEST_NAME", "PluginHost", "PluginManifest", "PluginStatus", "read_manifest"]
