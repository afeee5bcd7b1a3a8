"""What a search found, in its order, with the reasons for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from nacre.cli.output import warn, write_table
from nacre.cli.tools.explanation_text import explanation_text
from nacre.cli.tools.tool_tables import tool_row
from nacre.tools import index_of
from nacre.tools.definition import SOURCES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nacre.cli.output import Printer
    from nacre.cli.tool_catalog import OpenCatalog
    from nacre.json_types import JsonObject
    from nacre.tools.catalog_search import Explanation

# Models and kept vectors take a second or two to load, new vectors 7 ms for each tool.
_LOADING_SECONDS: Final = 5.0
_FOREVER_SECONDS: Final = 86_400.0


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundTool:
    """One result; the best has rank 1."""

    rank: int
    explanation: Explanation

    def to_json(self, *, is_explained: bool) -> JsonObject:
        entry = self.explanation.entry.to_json()
        if not is_explained:
            return entry
        explained = self.explanation.to_json()
        return {**entry, "score": explained["score"], "parts": explained["parts"]}


def find_tools(
    catalog: OpenCatalog, query: str, limit: int, *, is_waiting: bool
) -> list[FoundTool]:
    """The engine, and so the order, is the one of every surface.

    What tools mean is waited for to the end, or as long as it takes where it was made before.
    """
    index = index_of(catalog.listing.catalog, sources=SOURCES)
    if not index.wait_for_meanings(_FOREVER_SECONDS if is_waiting else _LOADING_SECONDS):
        warn("searched by words alone, since vectors of new tools are being made; --wait waits")
    explanations = index.explain(query, limit)
    return [FoundTool(rank=rank, explanation=it) for rank, it in enumerate(explanations, 1)]


def write_found(printer: Printer, found: Sequence[FoundTool], *, is_explained: bool) -> None:
    if is_explained:
        printer.write("\n".join(explanation_text(it.rank, it.explanation) for it in found))
        return
    rows = [(str(it.rank), *tool_row(it.explanation.entry)) for it in found]
    write_table(printer, ("", "tool", "title", "description"), rows, right=("",))
