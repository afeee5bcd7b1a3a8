"""All there is to know of one tool, for people and as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from nacre.cli.output import cell_text, visible
from nacre.code_mode.mcp_servers import server_guest_names
from nacre.tools.declarations import function_declaration, guest_names

if TYPE_CHECKING:
    from nacre.cli.tool_catalog import OpenCatalog
    from nacre.json_types import JsonObject
    from nacre.tools import CatalogEntry


def description_text(catalog: OpenCatalog, entry: CatalogEntry) -> str:
    title = f"  ({cell_text(entry.label)})" if entry.label else ""
    blocks = [f"{cell_text(entry.id)}{title}", visible(entry.description.strip())]
    if entry.tool.needs_approval:
        blocks.append(f"needs approval: {cell_text(entry.tool.needs_approval)}")
    blocks.append(f"in programs: {program_call(catalog, entry)}")
    blocks.append(visible(_declaration(catalog, entry)))
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
    """What a program in code mode writes: `MCP.github.createIssue(input)`."""
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
    # The description stands above it, in full.
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
    return guest_names([it.name for it in entries if it.tool.owner == owner])[entry.name]
