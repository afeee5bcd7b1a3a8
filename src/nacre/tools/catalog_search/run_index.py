"""The search index of one run's catalog, built when a program first searches."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import anyio
import anyio.to_thread

from nacre.tools.catalog_search.index import GUEST_SOURCES, index_of

if TYPE_CHECKING:
    from nacre.tools.catalog import Catalog, CatalogEntry
    from nacre.tools.catalog_search.index import CatalogIndex
    from nacre.tools.definition import ToolSource

# Of one run: more would only wait for each other's processor.
_MAX_SEARCH_THREADS: Final = 2
# Building takes about 0.1 ms per tool: more than these would hold up the event loop.
_MAX_TOOLS_ON_LOOP: Final = 50


class RunIndex:
    """Built once; runs with equal catalogs share the work."""

    def __init__(
        self, catalog: Catalog, *, sources: tuple[ToolSource, ...] = GUEST_SOURCES
    ) -> None:
        self._catalog = catalog
        self._sources = sources
        self._index: CatalogIndex | None = None
        self._building = anyio.Lock()
        # Their own, for tools may hold all threads that everybody shares.
        self._threads = anyio.CapacityLimiter(_MAX_SEARCH_THREADS)

    async def get(self) -> CatalogIndex:
        if self._index is None:
            async with self._building:
                self._index = self._index or await self._build()
        return self._index

    async def search(self, query: str, limit: int) -> list[CatalogEntry]:
        """The entries that fit best, best first, without holding up the event loop."""
        index = await self.get()
        if not index.knows_meanings:
            return index.search(query, limit)
        return await anyio.to_thread.run_sync(index.search, query, limit, limiter=self._threads)

    async def _build(self) -> CatalogIndex:
        build = partial(index_of, self._catalog, sources=self._sources)
        if self._catalog.size <= _MAX_TOOLS_ON_LOOP:
            return build()
        return await anyio.to_thread.run_sync(build)
