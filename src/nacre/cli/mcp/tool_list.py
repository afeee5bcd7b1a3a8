"""The list of `mcp tools`: each tool with its path in programs, as a table or as JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nacre.cli.output import ExitStatus, Printer, cell_text, warn, write_table
from nacre.code_mode.mcp_servers import list_server, server_guest_names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nacre.cli.mcp_servers import ServerSurvey
    from nacre.json_types import JsonObject
    from nacre.tools.definition import Tool


@dataclass(frozen=True, kw_only=True, slots=True)
class ListedTool:
    """A tool, or an operation such as `resources.read`, as programs see it."""

    path: str
    tool: Tool


def tool_list(surveys: Sequence[ServerSurvey], *, server_names: Sequence[str]) -> list[ListedTool]:
    """`server_names` are all that a program would see: a path depends on the names beside it."""
    names = server_guest_names(server_names)
    return [
        ListedTool(path=f"MCP.{names[survey.name]}.{path}", tool=tool)
        for survey in surveys
        if survey.state == "ready"
        for path, tool in _paths(names[survey.name], survey.all_tools)
    ]


def write_tool_list(
    tools: Sequence[ListedTool],
    surveys: Sequence[ServerSurvey],
    *,
    has_schemas: bool,
    is_json: bool,
) -> ExitStatus:
    """Print the tools, and on standard error whose are missing."""
    printer = Printer()
    if is_json:
        document: JsonObject = {
            "tools": [_tool_json(listed, has_schemas=has_schemas) for listed in tools],
            "problems": {s.name: s.problem for s in surveys if s.state == "broken"},
        }
        printer.write_json(document, is_indented=printer.is_terminal)
    elif has_schemas:
        printer.write("\n".join(_description_text(listed) for listed in tools))
    else:
        rows = [(listed.path, listed.tool.description) for listed in tools]
        write_table(printer, ("tool", "description"), rows)
    broken = [survey for survey in surveys if survey.state == "broken"]
    for survey in broken:
        warn(f"the tools of {survey.name} are missing: {survey.problem}")
    return printer.problem or (ExitStatus.FAILED if broken else ExitStatus.COMPLETED)


def _paths(guest_name: str, tools: Sequence[Tool]) -> list[tuple[str, Tool]]:
    listing = list_server(guest_name, "", tools)
    return [
        *listing.tools.items(),
        *((".".join(path), tool) for path, tool in listing.operations.items()),
    ]


def _description_text(listed: ListedTool) -> str:
    tool = listed.tool
    schemas = [("input", tool.parameters), ("output", tool.output_schema)]
    shown = [
        f"  {title}: {json.dumps(schema, ensure_ascii=False)}\n"
        for title, schema in schemas
        if schema is not None
    ]
    return "".join((f"{listed.path}\n", f"  {cell_text(tool.description)}\n", *shown))


def _tool_json(listed: ListedTool, *, has_schemas: bool) -> JsonObject:
    tool = listed.tool
    shown: JsonObject = {
        "server": tool.owner,
        "name": tool.name,
        "path": listed.path,
        "title": tool.label,
        "description": tool.description,
    }
    if has_schemas:
        shown |= {"inputSchema": tool.parameters, "outputSchema": tool.output_schema}
    return shown
