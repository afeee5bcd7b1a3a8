"""Loads plugins for a look at them: into registries of their own that nobody uses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from nacre.code_mode.namespaces import NamespaceRegistry
from nacre.hooks import Hooks
from nacre.plugins import PluginHost

if TYPE_CHECKING:
    from collections.abc import Collection

    from nacre.config.plugins import PluginsConfig
    from nacre.plugins import PluginStatus
    from nacre.tools import Tool


def load_for_a_look(
    config: PluginsConfig, *, reserved_ids: Collection[str] = ()
) -> tuple[list[PluginStatus], tuple[Tool, ...]]:
    """Load all, unload them again, and tell what became of each, and their tools."""

    async def look() -> tuple[list[PluginStatus], tuple[Tool, ...]]:
        async with PluginHost(
            hooks=Hooks(), namespaces=NamespaceRegistry(), reserved_ids=reserved_ids
        ) as host:
            await host.apply(config)
            return host.status(), host.tools

    return anyio.run(look)
