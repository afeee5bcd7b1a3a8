"""Tool Search: the model finds, describes and calls the tools of the catalog one by one."""

from nacre.tool_search.model_surface import is_tool_search_active
from nacre.tool_search.results import ToolSearchResult, ToolSearchTelemetry
from nacre.tool_search.run import ToolSearchRun
from nacre.tool_search.tool_search import ToolSearch, start_run

__all__ = [
    "ToolSearch",
    "ToolSearchResult",
    "ToolSearchRun",
    "ToolSearchTelemetry",
    "is_tool_search_active",
    "start_run",
]
