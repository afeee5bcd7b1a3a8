"""Prints tools as tables and descriptions, and explains search results."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, assert_never

from nacre.cli.output import ExitStatus, escape_controls, shorten, warn, write_table
from nacre.code_mode.mcp_servers import server_guest_names
from nacre.tools import (
    SOURCES,
    CatalogEntry,
    Explanation,
    ScorePart,
    assign_guest_names,
    function_declaration,
    index_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nacre.cli.output import Printer
    from nacre.cli.tools_catalog import OpenCatalog
    from nacre.json_types import JsonObject, JsonValue


_MAX_READ_CHARACTERS: Final = 1_000
_MIN_SENTENCE_CHARACTERS: Final = 10
# A full stop and a space, a Chinese or Japanese full stop, or an empty line.
_SENTENCE_END: Final = re.compile(r"(?<=[.!?])\s|(?<=[\u3002\uff01\uff1f])|\n\s*\n")


def tool_row(entry: CatalogEntry) -> tuple[str, str, str]:
    """The id, the title and the first sentence of the description."""
    return entry.id, entry.label or entry.name, first_sentence(entry.description)


def first_sentence(text: str) -> str:
    """The first sentence or paragraph. An abbreviation at the start does not end it."""
    start = text[:_MAX_READ_CHARACTERS].strip()
    end = _SENTENCE_END.search(start, _MIN_SENTENCE_CHARACTERS)
    return start if end is None else start[: end.start()].rstrip()


def write_tools_json(
    printer: Printer, catalog: OpenCatalog, key: str, tools: Sequence[JsonObject]
) -> None:
    listed: list[JsonValue] = [*tools]
    document: JsonObject = {key: listed, "problems": {**catalog.problems}}
    printer.write_json(document, is_indented=printer.is_terminal)


def end_status(printer: Printer, catalog: OpenCatalog, *, is_json: bool) -> ExitStatus:
    """Warn of missing tools, unless the JSON names them, and return the exit status."""
    catalog.warn_of_problems(are_shown=is_json)
    return printer.problem or (ExitStatus.FAILED if catalog.problems else ExitStatus.COMPLETED)


_MAX_TERM_CHARACTERS: Final = 40
# Parts with less weight are summed up.
_MAX_PARTS: Final = 8


def explanation_text(rank: int, explanation: Explanation) -> str:
    """The tool, its score, and the share of each reason."""
    entry, score = explanation.entry, explanation.score
    lines = [
        f"{rank}. {shorten(entry.id)}  (score {score:.2f})",
        f"   {shorten(first_sentence(entry.description))}",
    ]
    parts = explanation.parts
    lines += [f"   {_share(it.weight, score)}  {_reason(it)}" for it in parts[:_MAX_PARTS]]
    others = parts[_MAX_PARTS:]
    if others:
        weight = sum(part.weight for part in others)
        lines.append(f"   {_share(weight, score)}  {len(others)} more")
    return "".join(f"{line.rstrip()}\n" for line in lines)


def _share(weight: float, score: float) -> str:
    """The weight in percent of the score, or as it is if the score is not positive."""
    return f"{100 * weight / score:5.1f} %" if score > 0 else f"{weight:7.2f}"


def _reason(part: ScorePart) -> str:
    match part.kind:
        case "exact":
            return "exact id or name"
        case "word":
            meant = f", for {_quote_term(part.stands_for)}" if part.stands_for else ""
            return f"{_quote_term(part.term or '')} in the {part.field}{meant}"
        case "pairs":
            return "words next to each other, as in the query"
        case "coverage":
            return "share of the query's words"
        case "related":
            return "words that the best results share"
        case "meaning":
            return "similar meaning"
        case "answered":
            return "reduced for words of earlier results"
        case "own_words":
            return "better match of the query's own words, without related words"
        case "catalog_order":
            return "first of the tools with this name in the catalog"
        case _:
            assert_never(part.kind)


def _quote_term(word: str) -> str:
    return repr(shorten(word, max_characters=_MAX_TERM_CHARACTERS))


# Loading models and stored vectors takes a second or two; a new vector takes 7 ms per tool.
_LOADING_SECONDS: Final = 5.0
_FOREVER_SECONDS: Final = 86_400.0


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundTool:
    """A search result; the best has rank 1."""

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
    """Search with the same engine and order as every surface.

    Waits until all tools are indexed by meaning, or only until stored vectors are loaded.
    """
    index = index_of(catalog.listing.catalog, sources=SOURCES)
    if not index.wait_for_meanings(_FOREVER_SECONDS if is_waiting else _LOADING_SECONDS):
        warn("searched by words only, because new tools are still being indexed; see --wait")
    explanations = index.explain(query, limit)
    return [FoundTool(rank=rank, explanation=it) for rank, it in enumerate(explanations, 1)]


def write_found(printer: Printer, found: Sequence[FoundTool], *, is_explained: bool) -> None:
    if is_explained:
        printer.write("\n".join(explanation_text(it.rank, it.explanation) for it in found))
        return
    rows = [(str(it.rank), *tool_row(it.explanation.entry)) for it in found]
    write_table(printer, ("", "tool", "title", "description"), rows, right=("",))


def description_text(catalog: OpenCatalog, entry: CatalogEntry) -> str:
    title = f"  ({shorten(entry.label)})" if entry.label else ""
    blocks = [f"{shorten(entry.id)}{title}", escape_controls(entry.description.strip())]
    if entry.tool.needs_approval:
        blocks.append(f"needs approval: {shorten(entry.tool.needs_approval)}")
    blocks.append(f"in programs: {program_call(catalog, entry)}")
    blocks.append(escape_controls(_declaration(catalog, entry)))
    return "\n\n".join(filter(None, blocks)) + "\n"


def description_json(catalog: OpenCatalog, entry: CatalogEntry) -> JsonObject:
    described: JsonObject = {
        **entry.to_json(),
        "programCall": program_call(catalog, entry),
        "parameters": entry.tool.parameters,
    }
    if entry.tool.output_schema is not None:
        described["outputSchema"] = entry.tool.output_schema
    if entry.tool.needs_approval:
        described["needsApproval"] = entry.tool.needs_approval
    return {**described, "declaration": _declaration(catalog, entry)}


def program_call(catalog: OpenCatalog, entry: CatalogEntry) -> str:
    """How a program in code mode calls the tool: `MCP.github.createIssue(input)`."""
    if entry.source != "mcp":
        names = {tool_id: name for name, tool_id in catalog.listing.catalog.names.items()}
        name = names.get(entry.id)
        if name is None:
            return f"tools.call({json.dumps(entry.id, ensure_ascii=False)}, input)"
        return f"tools.{name}(input)"
    server = _server_name(catalog, entry.tool.owner)
    return f"MCP.{server}.{_function_name(catalog, entry)}(input)"


def _declaration(catalog: OpenCatalog, entry: CatalogEntry) -> str:
    tool = entry.tool
    is_mcp = entry.source == "mcp"
    # Without the description, which is printed above in full.
    return function_declaration(
        _function_name(catalog, entry) if is_mcp else entry.name,
        parameters=tool.parameters,
        output_schema=tool.output_schema,
        result="mcp" if is_mcp else "value",
    )


def _server_name(catalog: OpenCatalog, owner: str) -> str:
    servers = dict.fromkeys((*catalog.configured.usable_server_names, owner))
    return server_guest_names(list(servers))[owner]


def _function_name(catalog: OpenCatalog, entry: CatalogEntry) -> str:
    owner = entry.tool.owner
    entries = catalog.listing.catalog.entries_from(("mcp",))
    return assign_guest_names([it.name for it in entries if it.tool.owner == owner])[entry.name]
