"""Loads plugins into registries of their own, to inspect them."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import anyio

from nacre.code_mode.namespaces import NamespaceRegistry
from nacre.hooks import Hooks
from nacre.plugins import PluginHost

if TYPE_CHECKING:
    from collections.abc import Collection, Generator

    from nacre.config import PluginsConfig
    from nacre.plugins import PluginStatus
    from nacre.tools import Tool


_LOG: Final = logging.getLogger("nacre.plugins.host")


def load_for_inspection(
    config: PluginsConfig, *, reserved_ids: Collection[str] = (), shows_tracebacks: bool = True
) -> tuple[list[PluginStatus], tuple[Tool, ...]]:
    """Load all, unload them again, and tell what became of each, and their tools.

    Tracebacks of what a plugin raised go to the log, if wanted; problems are in the statuses.
    """

    async def look() -> tuple[list[PluginStatus], tuple[Tool, ...]]:
        async with PluginHost(
            hooks=Hooks(), namespaces=NamespaceRegistry(), reserved_ids=reserved_ids
        ) as host:
            await host.apply(config)
            return host.status(), host.tools

    with _only_tracebacks(shows_tracebacks):
        return anyio.run(look)


@contextmanager
def _only_tracebacks(shows_tracebacks: bool) -> Generator[None]:
    """Keep out of the log what is going to be printed."""

    def is_wanted(record: logging.LogRecord) -> bool:
        return shows_tracebacks and record.exc_info is not None

    _LOG.addFilter(is_wanted)
    try:
        yield
    finally:
        _LOG.removeFilter(is_wanted)
