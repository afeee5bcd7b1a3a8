"""Real tool catalogs with labelled queries, stored outside of the project."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from nacre.tools.catalog import Catalog, CatalogEntry
from nacre.tools.definition import Tool, ToolCall

_FOLDER: Final = Path(__file__).parents[2] / "shared" / "data" / "tool-retrieval"
_NOT_IN_NAMES: Final = re.compile(r"[\s:\x00-\x1f]+")
_UNION: Final = "union10k"
# The tools of the union that come from other sets; the rest comes from MCP servers.
_LABELLED: Final = ("livemcpbench|", "bfcl|", "metatool|", "stabletoolbench|", "restbench|")
# With fewer tools, nearly every search finds each of them.
_MIN_SERVER_TOOLS: Final = 8
# The set, its queries, and whether the union contains its tools.
_QUERY_FILES: Final = (
    ("livemcpbench", "queries", True),
    ("livemcpbench", "agent_queries", True),
    ("bfcl", "queries", True),
    ("metatool", "queries", True),
    ("metatool", "multi_queries", True),
    ("sealtools", "queries", False),
)


class SetsMissingError(Exception):
    """The catalogs are not available."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelledQuery:
    """A query with the ids of the correct tools."""

    text: str
    relevant: frozenset[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class QuerySet:
    """The queries of one catalog; `name` is a part of the names of figures."""

    name: str
    catalog_name: str
    queries: Sequence[LabelledQuery]


def query_sets() -> Iterator[QuerySet]:
    """The queries of each catalog in their own catalog, then in the union of all."""
    if not _FOLDER.is_dir():
        raise SetsMissingError(f"the labelled catalogs are not at {_FOLDER}")
    for folder, file, _ in _QUERY_FILES:
        yield _query_set(folder, file, name=f"{folder}_{file}", catalog_name=folder, prefix="")
    for folder, file, is_in_union in _QUERY_FILES:
        if is_in_union:
            name = f"union_{folder}_{file}"
            yield _query_set(folder, file, name=name, catalog_name=_UNION, prefix=f"{folder}|")


def labelled_catalog(name: str) -> Catalog:
    """The tools with the ids in the labels."""
    return Catalog(tuple(map(_entry, _lines(_FOLDER / name / "tools.jsonl"))))


def server_catalogs() -> list[Catalog]:
    """The tools of each real MCP server, by themselves."""
    by_server: dict[str, dict[str, CatalogEntry]] = {}
    for name in ("livemcpbench", _UNION):
        for entry in labelled_catalog(name).entries:
            if entry.source_name and not entry.id.startswith(_LABELLED):
                by_server.setdefault(entry.source_name, {}).setdefault(entry.name, entry)
    return [
        Catalog(tuple(entries.values()))
        for entries in by_server.values()
        if len(entries) >= _MIN_SERVER_TOOLS
    ]


def _query_set(folder: str, file: str, *, name: str, catalog_name: str, prefix: str) -> QuerySet:
    queries = [
        LabelledQuery(
            text=line["query"], relevant=frozenset(f"{prefix}{each}" for each in line["relevant"])
        )
        for line in _lines(_FOLDER / folder / f"{file}.dev.jsonl")
    ]
    return QuerySet(name=name, catalog_name=catalog_name, queries=queries)


def _lines(file: Path) -> Iterator[dict[str, Any]]:
    with file.open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def _entry(line: dict[str, Any]) -> CatalogEntry:
    server = line.get("server")
    owner = None if server is None else _NOT_IN_NAMES.sub("-", server)
    tool = Tool(
        name=_NOT_IN_NAMES.sub("_", line["name"]),
        description=line["description"] or "",
        parameters=line.get("parameters") or {"type": "object"},
        execute=_nothing,
        owner=owner or "core",
        source="client",
    )
    return CatalogEntry(
        id=line["id"],
        name=tool.name,
        label=None,
        description=tool.description,
        source="client",
        source_name=owner,
        tool=tool,
    )


async def _nothing(_input: dict[str, Any], _call: ToolCall) -> object:
    return None
