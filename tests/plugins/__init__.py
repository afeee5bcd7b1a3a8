"""Plugins: manifests, sources, loading and unloading."""
