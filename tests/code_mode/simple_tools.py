"""Tools that do nothing, for tests that only look at their definitions."""

from typing import Any

from nacre.tools.definition import CatalogMode, Tool, ToolCall, ToolSource


async def _nothing(given: dict[str, Any], call: ToolCall) -> object:
    return None


def simple_tool(
    name: str,
    *,
    owner: str = "core",
    source: ToolSource = "openclaw",
    catalog_mode: CatalogMode = "catalog",
) -> Tool:
    return Tool(name=name, owner=owner, source=source, catalog_mode=catalog_mode, execute=_nothing)
