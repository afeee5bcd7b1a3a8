"""Finds catalog entries for a query; the work is done once for all catalogs with the same texts."""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final

from nacre.tools.catalog_search.ranking import Field, Ranking
from nacre.tools.catalog_search.terms import terms_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nacre.json_types import JsonObject, JsonValue
    from nacre.tools.catalog import Catalog, CatalogEntry
    from nacre.tools.definition import ToolSource

GUEST_SOURCES: Final[tuple[ToolSource, ...]] = ("openclaw", "client")
"""What programs see as `ALL_TOOLS` and search with `tools.search`; MCP tools are behind `MCP`."""

_FIELDS: Final = (
    Field(weight=3.0, length_penalty=0.3),  # name
    Field(weight=2.0, length_penalty=0.3),  # label
    Field(weight=1.0, length_penalty=0.6),  # description
    Field(weight=0.5, length_penalty=0.6),  # names of parameters
    Field(weight=0.3, length_penalty=0.6),  # descriptions of parameters
    Field(weight=0.4, length_penalty=0.3),  # owner
)
_MAX_QUERY_CHARACTERS: Final = 1_000
# Who provides a tool may write without end; what it is for stands at the beginning.
_MAX_FIELD_CHARACTERS: Final = 4_000
_MAX_SCHEMA_NODES: Final = 400
_MAX_RANKINGS: Final = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class _RankedTexts:
    """What all catalogs with the same texts share. It outlives runs, so it holds no tool."""

    ranking: Ranking
    positions_by_id_and_name: Mapping[str, Sequence[int]]


# Threads may build indexes: each step on it is one that other threads see whole.
_ranked_texts: OrderedDict[tuple[str, tuple[ToolSource, ...]], _RankedTexts] = OrderedDict()


class CatalogIndex:
    """Searches some entries of one catalog."""

    def __init__(self, entries: Sequence[CatalogEntry], texts: _RankedTexts) -> None:
        self._entries = entries
        self._texts = texts

    def search(self, query: str, limit: int) -> list[CatalogEntry]:
        """The entries that fit best, best first; an entry with just this id or name leads."""
        wanted = query[:_MAX_QUERY_CHARACTERS].strip()
        if not wanted or limit < 1:
            return []
        exact = self._texts.positions_by_id_and_name.get(wanted.casefold(), ())
        best = self._texts.ranking.best(terms_of(wanted), limit)
        positions = list(dict.fromkeys((*exact, *best)))
        return [self._entries[position] for position in positions[:limit]]


def index_of(catalog: Catalog, *, sources: tuple[ToolSource, ...] = GUEST_SOURCES) -> CatalogIndex:
    """The index of the catalog's entries from these sources.

    Where no catalog with the same texts was indexed lately, this takes about 0.1 ms per tool; it
    may be called in a thread.
    """
    index = cached_index(catalog, sources=sources)
    if index is not None:
        return index
    entries = catalog.entries_from(sources)
    texts = _ranked(entries)
    _keep(catalog, sources, texts)
    return CatalogIndex(entries, texts)


def cached_index(
    catalog: Catalog, *, sources: tuple[ToolSource, ...] = GUEST_SOURCES
) -> CatalogIndex | None:
    """The same where it costs nothing, else None."""
    texts = _ranked_texts.get((catalog.search_digest, sources))
    if texts is None:
        return None
    _keep(catalog, sources, texts)
    return CatalogIndex(catalog.entries_from(sources), texts)


def _keep(catalog: Catalog, sources: tuple[ToolSource, ...], texts: _RankedTexts) -> None:
    key = (catalog.search_digest, sources)
    # Taken out and put in again, it is the one used last.
    _ranked_texts.pop(key, None)
    _ranked_texts[key] = texts
    while len(_ranked_texts) > _MAX_RANKINGS:
        _ranked_texts.popitem(last=False)


def _ranked(entries: Sequence[CatalogEntry]) -> _RankedTexts:
    positions: dict[str, list[int]] = {}
    for position, entry in enumerate(entries):
        for text in {entry.id.casefold(), entry.name.casefold()}:
            positions.setdefault(text, []).append(position)
    documents = [_terms_by_field(entry) for entry in entries]
    return _RankedTexts(
        ranking=Ranking(documents, fields=_FIELDS), positions_by_id_and_name=positions
    )


def _terms_by_field(entry: CatalogEntry) -> list[list[str]]:
    names, descriptions = _parameter_texts(entry.tool.parameters)
    texts = (
        entry.name,
        entry.label or "",
        entry.description,
        " ".join(names),
        " ".join(descriptions),
        entry.source_name or "",
    )
    return [terms_of(text[:_MAX_FIELD_CHARACTERS]) for text in texts]


def _parameter_texts(schema: JsonObject) -> tuple[list[str], list[str]]:
    """The names of the properties, and the descriptions, wherever they stand in the schema."""
    names: list[str] = []
    descriptions: list[str] = []
    nodes: deque[JsonValue] = deque([schema])
    for _ in range(_MAX_SCHEMA_NODES):
        if not nodes:
            break
        node = nodes.popleft()
        if isinstance(node, list):
            nodes.extend(node[:_MAX_SCHEMA_NODES])
        elif isinstance(node, dict):
            _add_texts(node, names, descriptions, nodes)
    return names, descriptions


def _add_texts(
    node: JsonObject, names: list[str], descriptions: list[str], nodes: deque[JsonValue]
) -> None:
    description = node.get("description")
    if isinstance(description, str):
        descriptions.append(description[:_MAX_FIELD_CHARACTERS])
    properties = node.get("properties")
    if isinstance(properties, dict):
        some = list(islice(properties.items(), _MAX_SCHEMA_NODES))
        names.extend(name for name, _ in some)
        nodes.extend(part for _, part in some)
    for place in ("items", "anyOf", "oneOf", "allOf"):
        if place in node:
            nodes.append(node[place])
