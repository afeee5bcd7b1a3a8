"""The search index of a catalog; catalogs with the same texts share it."""

from __future__ import annotations

import heapq
import math
import threading
import time
from collections import OrderedDict
from functools import partial
from typing import TYPE_CHECKING, Final, cast

import anyio
import anyio.to_thread

from nacre.tools.catalog_search.document_cache import load_layer, store_layer
from nacre.tools.catalog_search.documents import document_of, join_words, texts_of
from nacre.tools.catalog_search.explanation import (
    EXACT_SCORE,
    Explanation,
    explain_entry,
    make_scores_descend,
    words_by_term,
)
from nacre.tools.catalog_search.inverted_index import Layer, PackedDocuments
from nacre.tools.catalog_search.ranking import GONE, Ranking
from nacre.tools.catalog_search.semantic import (
    WORD_CANDIDATES,
    BackgroundThread,
    Fused,
    Meanings,
    fuse,
    is_switched_off,
    meaning_text,
)
from nacre.tools.catalog_search.terms import terms_of
from nacre.tools.definition import GUEST_SOURCES, tool_digest

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence
    from typing import TypeAlias

    from nacre.tools.catalog import Catalog, CatalogEntry
    from nacre.tools.catalog_search.reranking import Candidate
    from nacre.tools.definition import ToolSource


_MAX_QUERY_CHARACTERS: Final = 2_000
_MAX_RANKINGS: Final = 8
# With more changed entries, a new index is as cheap to build and faster to search.
_MAX_CHANGED_SHARE: Final = 0.25
_DOCUMENTS_PER_STEP: Final = 20

_Key: TypeAlias = "tuple[str, bytes]"


class _IndexedTexts:
    """The indexed texts of entries: documents, texts for embedding, and slots by name."""

    def __init__(
        self,
        entries: Sequence[CatalogEntry],
        keys: Sequence[_Key],
        layer: Layer,
    ) -> None:
        self.slots = {key: slot for slot, key in enumerate(keys)}
        self.layer = layer
        # Not if they are not used: they take several megabytes.
        self.meaning_texts = [] if is_switched_off() else [meaning_text(it) for it in entries]
        self.slots_by_id_and_name = _SlotsByText()
        self.slots_by_joined_name = _SlotsByText()
        for slot, entry in enumerate(entries):
            name = _fold(entry.name)
            self.slots_by_id_and_name.add(_fold(entry.id), slot)
            self.slots_by_id_and_name.add(name, slot)
            self.slots_by_joined_name.add(join_words(name), slot)


def _fold(text: str) -> str:
    """The text without upper case; the same object if it has none, to save memory."""
    folded = text.casefold()
    return text if folded == text else folded


class _SlotsByText:
    """The slots of each text. Nearly all texts have one slot, so only others have a list."""

    def __init__(self) -> None:
        self._first: dict[str, int] = {}
        self._others: dict[str, list[int]] = {}

    def add(self, text: str, slot: int) -> None:
        if self._first.setdefault(text, slot) != slot:
            self._others.setdefault(text, []).append(slot)

    def get(self, text: str) -> Sequence[int]:
        first = self._first.get(text)
        return () if first is None else (first, *self._others.get(text, ()))


class _RankedTexts:
    """The ranking that catalogs with the same texts share. It outlives runs and holds no tools."""

    def __init__(self, *parts: tuple[_IndexedTexts, Sequence[int]]) -> None:
        self._parts = parts
        self.base = parts[0][0]
        self.ranking = Ranking(*((texts.layer, positions) for texts, positions in parts))
        self.meanings = Meanings(
            {
                position: text
                for texts, positions in parts
                for text, position in zip(texts.meaning_texts, positions, strict=False)
                if position != GONE
            }
        )

    def positions_of(self, id_or_name: str) -> list[int]:
        """The positions of the entries with exactly this id or name, then of those whose name
        has just these words."""
        folded, joined = id_or_name.casefold(), join_words(id_or_name)
        exact: list[int] = []
        same_words: list[int] = []
        for texts, positions in self._parts:
            exact += (positions[slot] for slot in texts.slots_by_id_and_name.get(folded))
            if joined:
                slots = texts.slots_by_joined_name.get(joined)
                same_words += (positions[slot] for slot in slots)
        found = dict.fromkeys((*sorted(exact), *sorted(same_words)))
        return [position for position in found if position != GONE]


# Several threads may build indexes, so each access must be a single atomic operation.
_ranked_texts: OrderedDict[tuple[str, tuple[ToolSource, ...]], _RankedTexts] = OrderedDict()


class CatalogIndex:
    """Searches some entries of one catalog."""

    def __init__(self, entries: Sequence[CatalogEntry], texts: _RankedTexts) -> None:
        self._entries = entries
        self._texts = texts

    @property
    def knows_meanings(self) -> bool:
        """Whether a search uses embeddings, which takes a few milliseconds."""
        return self._texts.meanings.is_known

    def wait_for_meanings(self, timeout_seconds: float) -> bool:
        """Wait until the embeddings are computed; return False after the timeout."""
        return self._texts.meanings.wait(timeout_seconds)

    def search(self, query: str, limit: int) -> list[CatalogEntry]:
        """The best entries, best first; an entry with exactly this id, this name or the words of
        this name comes first.

        The search uses words and, if the extra `semantic` is installed and ready, embeddings.
        """
        exact, best = self._search_all(query, limit)
        return self._entries_at((*exact, *(each.position for each in best)), limit)

    def search_words(self, query: str, limit: int) -> list[CatalogEntry]:
        """Search by words only, which takes at most a millisecond or two."""
        exact, best = self._search_by_words(query, limit)
        return self._entries_at((*exact, *(each.position for each in best)), limit)

    def explain(self, query: str, limit: int) -> list[Explanation]:
        """The result of a search, with the parts of each score."""
        exact, best = self._search_all(query, limit)
        by_position = {each.position: each for each in best}
        positions = list(dict.fromkeys((*exact, *by_position)))[:limit]
        wanted, ranking = _trim_query(query), self._texts.ranking
        terms, words = terms_of(wanted), words_by_term(wanted)
        query_weights = ranking.query_weights(terms)
        stood_for = {it: words.get(term, term) for it, term in ranking.stood_for(terms).items()}
        return make_scores_descend(
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
    """The index of the entries from these sources.

    Indexing takes about 0.15 ms for each tool that is not cached. It may be called in a thread.
    """
    steps = _build_steps(catalog, sources)
    while True:
        try:
            next(steps)
        except StopIteration as built:
            return cast("CatalogIndex", built.value)


def _build_steps(
    catalog: Catalog, sources: tuple[ToolSource, ...]
) -> Generator[None, None, CatalogIndex]:
    """Build the index in steps of about a millisecond."""
    index = cached_index(catalog, sources=sources)
    if index is not None:
        return index
    entries = catalog.entries_from(sources)
    texts = yield from _rank_entries(entries, sources)
    _cache_texts(catalog, sources, texts)
    return CatalogIndex(entries, texts)


def cached_index(
    catalog: Catalog, *, sources: tuple[ToolSource, ...] = GUEST_SOURCES
) -> CatalogIndex | None:
    """The cached index, or None."""
    texts = _ranked_texts.get((catalog.search_digest, sources))
    if texts is None:
        return None
    _cache_texts(catalog, sources, texts)
    return CatalogIndex(catalog.entries_from(sources), texts)


def _trim_query(query: str) -> str:
    return query[:_MAX_QUERY_CHARACTERS].strip()


def _cache_texts(catalog: Catalog, sources: tuple[ToolSource, ...], texts: _RankedTexts) -> None:
    key = (catalog.search_digest, sources)
    # Reinserted, so that it is the most recently used.
    _ranked_texts.pop(key, None)
    _ranked_texts[key] = texts
    while len(_ranked_texts) > _MAX_RANKINGS:
        _ranked_texts.popitem(last=False)


def _rank_entries(
    entries: Sequence[CatalogEntry], sources: tuple[ToolSource, ...]
) -> Generator[None, None, _RankedTexts]:
    keys = [_key_of(entry) for entry in entries]
    known = _find_similar(keys, sources)
    if known is None:
        layer = yield from _layer_of(entries, keys)
        return _RankedTexts((_IndexedTexts(entries, keys, layer), range(len(entries))))
    base, slots = known
    # The base without the removed entries, and a second part with the new ones.
    kept = [GONE] * len(base.layer.documents)
    new: list[int] = []
    for position, slot in enumerate(slots):
        if slot is None:
            new.append(position)
        else:
            kept[slot] = position
    new_entries, new_keys = [entries[it] for it in new], [keys[it] for it in new]
    layer = yield from _layer_of(new_entries, new_keys)
    return _RankedTexts((base, kept), (_IndexedTexts(new_entries, new_keys, layer), new))


def _layer_of(
    entries: Sequence[CatalogEntry], keys: Sequence[_Key]
) -> Generator[None, None, Layer]:
    digests = [digest for _, digest in keys]
    stored = load_layer(digests)
    if stored is not None:
        return stored
    documents = PackedDocuments()
    for entry in entries:
        documents.add(document_of(texts_of(entry)))
        if len(documents) % _DOCUMENTS_PER_STEP == 0:
            yield
    layer = Layer(documents)
    yield
    store_layer(digests, layer)
    return layer


def _find_similar(
    keys: Sequence[_Key], sources: tuple[ToolSource, ...]
) -> tuple[_IndexedTexts, list[int | None]] | None:
    """A cached index with most of these texts and the slot of each text in it, if any."""
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


# Per run. The searches compete for the CPU, so more threads would not help.
_MAX_SEARCH_THREADS: Final = 2
# Building takes about 0.1 ms per tool; with more tools it would block the event loop.
_MAX_TOOLS_ON_LOOP: Final = 50
# With more tools, a search does not wait for long until the index is built.
MAX_AWAITED_TOOLS: Final = 1_000
_PATIENCE_SECONDS: Final = 0.08

# A short delay, so that a process that never searches can be over first.
_thread: Final = BackgroundThread("nacre-search-index", patience_seconds=0.1)


class RunIndex:
    """The index of a run, built at the first use; runs with equal catalogs share it."""

    def __init__(
        self, catalog: Catalog, *, sources: tuple[ToolSource, ...] = GUEST_SOURCES
    ) -> None:
        self._catalog = catalog
        self._sources = sources
        self._index: CatalogIndex | None = None
        self._building = anyio.Lock()
        self._is_started = False
        self._is_settled = threading.Event()
        # Separate threads, because tools may occupy all shared threads.
        self._threads = anyio.CapacityLimiter(_MAX_SEARCH_THREADS)

    async def get(self) -> CatalogIndex:
        if self._index is None:
            async with self._building:
                self._index = self._index or await self._build()
        return self._index

    async def search(self, query: str, limit: int) -> list[CatalogEntry]:
        """The best entries, best first; does not block the event loop.

        If many tools are not indexed yet, the result is of a search in their names.
        """
        if self._index is None and self._catalog.size > MAX_AWAITED_TOOLS:
            self.build_in_background()
            _thread.start_now()
            wait = partial(self._is_settled.wait, _PATIENCE_SECONDS)
            if not await anyio.to_thread.run_sync(wait, limiter=self._threads):
                entries = self._catalog.entries_from(self._sources)
                search = partial(search_names, entries, query, limit)
                return await anyio.to_thread.run_sync(search, limiter=self._threads)
        index = await self.get()
        if not index.knows_meanings:
            return index.search(query, limit)
        return await anyio.to_thread.run_sync(index.search, query, limit, limiter=self._threads)

    def build_in_background(self) -> None:
        """Start to build the index in a thread, unless it is started or built already."""
        if not self._is_started and self._index is None:
            self._is_started = True
            _thread.add(self._steps())

    def _steps(self) -> Generator[None]:
        steps = _build_steps(self._catalog, self._sources)
        try:
            while True:
                next(steps)
                # Other threads need not wait until Python switches.
                time.sleep(0)
                yield
        except StopIteration as built:
            self._index = cast("CatalogIndex", built.value)
        finally:
            # Also after a failure, which the next search then meets itself.
            self._is_settled.set()

    async def _build(self) -> CatalogIndex:
        build = partial(index_of, self._catalog, sources=self._sources)
        if self._catalog.size <= _MAX_TOOLS_ON_LOOP:
            return build()
        return await anyio.to_thread.run_sync(build)


def search_names(entries: Sequence[CatalogEntry], query: str, limit: int) -> list[CatalogEntry]:
    """The entries whose ids contain most words of the query, rare words first; an exact id or name
    comes first. Takes a microsecond per entry and word."""
    wanted = _trim_query(query)
    ids = [entry.id.casefold() for entry in entries]
    scores: dict[int, float] = {}
    for term in dict.fromkeys(terms_of(wanted)):
        found = [position for position, text in enumerate(ids) if term in text]
        rarity = math.log(1 + len(ids) / (len(found) + 0.5))
        for position in found:
            scores[position] = scores.get(position, 0.0) + rarity
    folded = wanted.casefold()

    def rank(position: int) -> tuple[bool, float, int, int]:
        is_exact = folded in (ids[position], entries[position].name.casefold())
        return not is_exact, -scores[position], len(ids[position]), position

    return [entries[position] for position in heapq.nsmallest(limit, scores, key=rank)]
