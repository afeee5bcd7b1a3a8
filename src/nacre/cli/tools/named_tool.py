"""The tool that a person names: which servers have to be asked, and what a wrong name meant."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from nacre.cli.output import cell_text, count_text, warn
from nacre.errors import ToolDeniedError, ToolServerError, UnknownToolError
from nacre.tools.definition import SOURCES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nacre.cli.tools.configured_tools import ConfiguredTools
    from nacre.cli.tools.open_catalog import OpenCatalog
    from nacre.errors import ToolError
    from nacre.tools import CatalogEntry

_MAX_SHOWN: Final = 120
_MAX_SAME_NAME: Final = 10
_SERVERLESS: Final = tuple(source for source in SOURCES if source != "mcp")


def servers_to_ask(configured: ConfiguredTools, id_or_name: str) -> Sequence[str]:
    """Without their tools it is not known which one is meant; says so where all are asked."""
    if _source_in(id_or_name) in _SERVERLESS:
        return ()
    owner = _owner_in(id_or_name)
    if any(server.name == owner for server in configured.servers.servers):
        return (owner,)
    names = configured.asked_server_names
    if names:
        _tell_of_asking(names, id_or_name)
    return names


def named_tool(catalog: OpenCatalog, id_or_name: str) -> CatalogEntry:
    """The tool; raises ToolError that says why there is none to use."""
    owner = _owner_in(id_or_name)
    if owner in catalog.problems:
        problem = f"the tools of {owner} are missing: {catalog.problems[owner]}"
        raise ToolServerError(problem, server=owner)
    catalog.warn_of_problems()
    entry = catalog.listing.resolve(id_or_name)
    if entry is not None:
        return entry
    denied = catalog.live.denied(id_or_name)
    if denied is not None:
        refusal = catalog.configured.policy.refusal(denied) or ""
        raise ToolDeniedError(refusal, code="denied_by_policy", tool_id=denied.id)
    raise _unknown(catalog, id_or_name)


def _tell_of_asking(names: Sequence[str], id_or_name: str) -> None:
    shown = cell_text(id_or_name, most_characters=_MAX_SHOWN)
    whom = count_text(len(names), "MCP server")
    hint = "a full id, such as mcp:server:tool, starts no more than it needs"
    warn(f"starting {whom} to find {shown!r}; {hint}")


def _unknown(catalog: OpenCatalog, id_or_name: str) -> ToolError:
    shown = id_or_name if len(id_or_name) <= _MAX_SHOWN else f"{id_or_name[:_MAX_SHOWN]}…"
    entries = catalog.listing.catalog.entries
    same_name = [entry.id for entry in entries if entry.name == id_or_name]
    if same_name:
        ids = ", ".join(same_name[:_MAX_SAME_NAME])
        problem = f"{len(same_name)} tools are named {shown!r}; name one by its id: {ids}"
        return UnknownToolError(problem, tool_id=shown, nearest=same_name[:_MAX_SAME_NAME])
    nearest = catalog.listing.nearest(id_or_name)
    hint = f"nearest: {', '.join(nearest)}" if nearest else "`nacre tools search` finds what is"
    return UnknownToolError(f"there is no tool {shown!r}; {hint}", tool_id=shown, nearest=nearest)


def _owner_in(tool_id: str) -> str:
    """The server that an id names; empty for what is no id of a server's tool."""
    return tool_id.split(":")[1] if _source_in(tool_id) == "mcp" else ""


def _source_in(id_or_name: str) -> str:
    """The source that an id names; empty for a name."""
    source, colon, _ = id_or_name.partition(":")
    return source if colon else ""
