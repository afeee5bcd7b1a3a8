"""The search index of a catalog; catalogs with the same texts share it."""

from __future__ import annotations

from collections import OrderedDict
from functools import partial
from typing import TYPE_CHECKING, Final

import anyio
import anyio.to_thread

from nacre.tools.catalog_search.documents import document_of, texts_of
from nacre.tools.catalog_search.explanation import (
    EXACT_SCORE,
    Explanation,
    explain_entry,
    in_order,
    words_by_term,
)
from nacre.tools.catalog_search.inverted_index import Layer
from nacre.tools.catalog_search.ranking import GONE, Ranking
from nacre.tools.catalog_search.semantic import WORD_CANDIDATES, Fused, Meanings, fuse, meaning_text
from nacre.tools.catalog_search.terms import terms_of
from nacre.tools.definition import tool_digest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import TypeAlias

    from nacre.tools.catalog import Catalog, CatalogEntry
    from nacre.tools.catalog_search.reranking import Candidate
    from nacre.tools.definition import ToolSource


GUEST_SOURCES: Final[tuple[ToolSource, ...]] = ("openclaw", "client")
"""What programs see as `ALL_TOOLS` and search with `tools.search`; MCP tools are behind `MCP`."""

_MAX_QUERY_CHARACTERS: Final = 2_000
_MAX_RANKINGS: Final = 8
# Beyond this share of changed entries a whole new index is as cheap, and searched faster.
_MAX_CHANGED_SHARE: Final = 0.25

_Key: TypeAlias = "tuple[str, bytes]"


class _IndexedTexts:
    """The texts of some entries: as documents, by all that an entry says, by id and name."""

    def __init__(self, entries: Sequence[CatalogEntry], keys: Sequence[_Key]) -> None:
        self.slots = {key: slot for slot, key in enumerate(keys)}
        self.layer = Layer([document_of(texts_of(entry)) for entry in entries])
        self.meaning_texts = [meaning_text(entry) for entry in entries]
        self.slots_by_id_and_name: dict[str, list[int]] = {}
        for slot, entry in enumerate(entries):
            for text in {entry.id.casefold(), entry.name.casefold()}:
                self.slots_by_id_and_name.setdefault(text, []).append(slot)


class _RankedTexts:
    """What all catalogs with the same texts share. It outlives runs, so it holds no tool."""

    def __init__(self, *parts: tuple[_IndexedTexts, Sequence[int]]) -> None:
        self._parts = parts
        self.base = parts[0][0]
        self.ranking = Ranking(*((texts.layer, positions) for texts, positions in parts))
        self.meanings = Meanings(
            {
                position: texts.meaning_texts[slot]
                for texts, positions in parts
                for slot, position in enumerate(positions)
                if position != GONE
            }
        )

    def positions_of(self, id_or_name: str) -> list[int]:
        """Of the entries with just this id or name, in the order of the catalog."""
        folded = id_or_name.casefold()
        found = [
            positions[slot]
            for texts, positions in self._parts
            for slot in texts.slots_by_id_and_name.get(folded, ())
        ]
        return sorted(position for position in found if position != GONE)


# Threads may build indexes: each step on it is one that other threads see whole.
_ranked_texts: OrderedDict[tuple[str, tuple[ToolSource, ...]], _RankedTexts] = OrderedDict()


class CatalogIndex:
    """Searches some entries of one catalog."""

    def __init__(self, entries: Sequence[CatalogEntry], texts: _RankedTexts) -> None:
        self._entries = entries
        self._texts = texts

    @property
    def knows_meanings(self) -> bool:
        """Whether a search takes some milliseconds, since it asks for more than words."""
        return self._texts.meanings.is_known

    def wait_for_meanings(self, timeout_seconds: float) -> bool:
        """Whether what is made in the background is made, at last or after so long."""
        return self._texts.meanings.wait(timeout_seconds)

    def search(self, query: str, limit: int) -> list[CatalogEntry]:
        """The entries that fit best, best first; an entry with just this id or name leads.

        By their words; where the extra `semantic` is installed and ready, by their meaning as well.
        """
        exact, best = self._search_all(query, limit)
        return self._entries_at((*exact, *(each.position for each in best)), limit)

    def search_words(self, query: str, limit: int) -> list[CatalogEntry]:
        """The same by words alone: never more than a millisecond or two."""
        exact, best = self._search_by_words(query, limit)
        return self._entries_at((*exact, *(each.position for each in best)), limit)

    def explain(self, query: str, limit: int) -> list[Explanation]:
        """The entries that a search finds, each with what its score is made of."""
        exact, best = self._search_all(query, limit)
        by_position = {each.position: each for each in best}
        positions = list(dict.fromkeys((*exact, *by_position)))[:limit]
        wanted, ranking = _trim_query(query), self._texts.ranking
        terms, words = terms_of(wanted), words_by_term(wanted)
        query_weights = ranking.query_weights(terms)
        stood_for = {it: words.get(term, term) for it, term in ranking.stood_for(terms).items()}
        return in_order(
            explain_entry(
                self._entries[position],
                by_position.get(position),
                query_weights,
                stood_for=stood_for,
                exact_score=EXACT_SCORE if position in exact else 0.0,
            )
            for position in positions
        )

    def _entries_at(self, positions: Iterable[int], limit: int) -> list[CatalogEntry]:
        return [self._entries[position] for position in list(dict.fromkeys(positions))[:limit]]

    def _search_all(self, query: str, limit: int) -> tuple[list[int], list[Fused]]:
        likenesses = self._texts.meanings.likenesses(_trim_query(query)) if limit > 0 else []
        if not likenesses:
            exact, best = self._search_by_words(query, limit)
            return exact, [Fused(position=it.position, candidate=it) for it in best]
        exact, best = self._search_by_words(query, max(limit, WORD_CANDIDATES))
        return exact, fuse(best, likenesses, limit)

    def _search_by_words(self, query: str, limit: int) -> tuple[list[int], list[Candidate]]:
        wanted = _trim_query(query)
        if not wanted or limit < 1:
            return [], []
        exact = self._texts.positions_of(wanted)
        return exact, self._texts.ranking.best(terms_of(wanted), limit)


def index_of(catalog: Catalog, *, sources: tuple[ToolSource, ...] = GUEST_SOURCES) -> CatalogIndex:
    """The index of the catalog's entries from these sources.

    A tool whose texts no catalog had lately takes about 0.15 ms; it may be called in a thread.
    """
    index = cached_index(catalog, sources=sources)
    if index is not None:
        return index
    entries = catalog.entries_from(sources)
    texts = _rank_entries(entries, sources)
    _cache_texts(catalog, sources, texts)
    return CatalogIndex(entries, texts)


def cached_index(
    catalog: Catalog, *, sources: tuple[ToolSource, ...] = GUEST_SOURCES
) -> CatalogIndex | None:
    """The same where it costs nothing, else None."""
    texts = _ranked_texts.get((catalog.search_digest, sources))
    if texts is None:
        return None
    _cache_texts(catalog, sources, texts)
    return CatalogIndex(catalog.entries_from(sources), texts)


def _trim_query(query: str) -> str:
    return query[:_MAX_QUERY_CHARACTERS].strip()


def _cache_texts(catalog: Catalog, sources: tuple[ToolSource, ...], texts: _RankedTexts) -> None:
    key = (catalog.search_digest, sources)
    # Taken out and put in again, it is the one used last.
    _ranked_texts.pop(key, None)
    _ranked_texts[key] = texts
    while len(_ranked_texts) > _MAX_RANKINGS:
        _ranked_texts.popitem(last=False)


def _rank_entries(entries: Sequence[CatalogEntry], sources: tuple[ToolSource, ...]) -> _RankedTexts:
    keys = [_key_of(entry) for entry in entries]
    known = _most_alike(keys, sources)
    if known is None:
        return _RankedTexts((_IndexedTexts(entries, keys), range(len(entries))))
    base, slots = known
    # The base without what is gone, and what is new beside it.
    kept = [GONE] * len(base.layer.documents)
    new: list[int] = []
    for position, slot in enumerate(slots):
        if slot is None:
            new.append(position)
        else:
            kept[slot] = position
    added = _IndexedTexts([entries[position] for position in new], [keys[it] for it in new])
    return _RankedTexts((base, kept), (added, new))


def _most_alike(
    keys: Sequence[_Key], sources: tuple[ToolSource, ...]
) -> tuple[_IndexedTexts, list[int | None]] | None:
    """The index of another catalog that has most of these texts, if any has, and where in it."""
    bases = {id(it.base): it.base for (_, of), it in list(_ranked_texts.items()) if of == sources}
    best: tuple[_IndexedTexts, list[int | None]] | None = None
    least_changed = _MAX_CHANGED_SHARE * len(keys)
    for base in bases.values():
        slots = [base.slots.get(key) for key in keys]
        added_count = slots.count(None)
        gone_count = len(base.slots) - (len(keys) - added_count)
        if added_count + gone_count < least_changed:
            best, least_changed = (base, slots), added_count + gone_count
    return best


def _key_of(entry: CatalogEntry) -> _Key:
    return entry.id, tool_digest(entry.tool)


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
