"""Prints reports on MCP servers, as tables or JSON: status, tools, savings."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from nacre.cli.output import ExitStatus, Printer, shorten, warn, write_table
from nacre.code_mode.mcp_servers import list_server, server_guest_names

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from nacre.cli.configured_servers import ServerSurvey
    from nacre.json_types import JsonObject
    from nacre.tools import Tool


# Long enough for the whole problem: its end says how to fix it, such as a URL for logging in.
_MAX_PROBLEM_CHARACTERS: Final = 4_000


def write_status(surveys: Sequence[ServerSurvey], *, is_json: bool) -> ExitStatus:
    """Print the state of each server. The exit status is FAILED if one is broken."""
    printer = Printer()
    if is_json:
        document: JsonObject = {"servers": [_status_json(survey) for survey in surveys]}
        printer.write_json(document, is_indented=printer.is_terminal)
    else:
        write_table(
            printer,
            ("server", "state", "tools", "version", "time", "problem"),
            [_status_row(survey) for survey in surveys],
            right=("tools", "time"),
            max_characters=_MAX_PROBLEM_CHARACTERS,
        )
    if printer.problem is not None:
        return printer.problem
    is_broken = any(survey.state == "broken" for survey in surveys)
    return ExitStatus.FAILED if is_broken else ExitStatus.COMPLETED


def _status_row(survey: ServerSurvey) -> tuple[str, ...]:
    is_asked = survey.state != "disabled"
    return (
        survey.name,
        survey.state,
        f"{len(survey.tools):,}" if survey.state == "ready" else "",
        survey.version,
        f"{survey.wall_ms:,.0f} ms" if is_asked else "",
        survey.problem,
    )


def _status_json(survey: ServerSurvey) -> JsonObject:
    return {
        "name": survey.name,
        "state": survey.state,
        "tools": len(survey.tools) if survey.state == "ready" else None,
        "version": survey.version,
        "wallMs": round(survey.wall_ms, 3),
        "problem": survey.problem,
    }


@dataclass(frozen=True, kw_only=True, slots=True)
class ListedTool:
    """A tool, or an operation such as `resources.read`, with its path in programs."""

    path: str
    tool: Tool


def list_tools(surveys: Sequence[ServerSurvey], *, server_names: Sequence[str]) -> list[ListedTool]:
    """List the tools by path. Paths depend on `server_names`, the names of all usable servers."""
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
    """Print the tools, and on standard error the servers whose tools are missing."""
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
    return "".join((f"{listed.path}\n", f"  {shorten(tool.description)}\n", *shown))


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


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerBytes:
    """The size of one server's tool definitions."""

    name: str
    tool_count: int
    definition_bytes: int
    problem: str
    """Why the server is broken. Its tools are not counted."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Savings:
    """The tool definitions of all servers, compared with those of `nacre mcp`."""

    servers: tuple[ServerBytes, ...]
    shown_names: tuple[str, ...]
    shown_bytes: int

    @property
    def tool_count(self) -> int:
        return sum(server.tool_count for server in self.servers)

    @property
    def definition_bytes(self) -> int:
        return sum(server.definition_bytes for server in self.servers)

    @property
    def saved_percent(self) -> float:
        """Negative if the servers have fewer bytes of definitions than `exec` and `wait`."""
        if not self.definition_bytes:
            return 0.0
        return 100 * (1 - self.shown_bytes / self.definition_bytes)

    @property
    def is_complete(self) -> bool:
        return not any(server.problem for server in self.servers)

    def to_json(self) -> JsonObject:
        return {
            "servers": [
                {
                    "name": server.name,
                    "tools": server.tool_count,
                    "bytes": server.definition_bytes,
                    "problem": server.problem,
                }
                for server in self.servers
            ],
            "tools": self.tool_count,
            "bytes": self.definition_bytes,
            "shownTools": list(self.shown_names),
            "shownBytes": self.shown_bytes,
            "savedPercent": round(self.saved_percent, 2),
        }


def savings_from(surveys: Sequence[ServerSurvey], shown: Sequence[JsonObject]) -> Savings:
    """Compare the surveyed servers with `shown`, the definitions that `nacre mcp` offers."""
    return Savings(
        servers=tuple(_server_bytes(survey) for survey in surveys if survey.state != "disabled"),
        shown_names=tuple(str(tool.get("name")) for tool in shown),
        shown_bytes=definition_bytes(shown),
    )


def definition_bytes(definitions: Sequence[JsonObject]) -> int:
    """The size as compact JSON in UTF-8, the format of `tools/list`."""
    return sum(
        len(
            json.dumps(shown, ensure_ascii=False, separators=(",", ":")).encode(
                "utf-8", "surrogatepass"
            )
        )
        for shown in definitions
    )


def _server_bytes(survey: ServerSurvey) -> ServerBytes:
    return ServerBytes(
        name=survey.name,
        tool_count=len(survey.tools),
        definition_bytes=survey.listed_bytes,
        problem=survey.problem if survey.state == "broken" else "",
    )


def write_savings(savings: Savings, *, is_json: bool) -> ExitStatus:
    """Print the sizes, and on standard error the servers that are not counted."""
    printer = Printer()
    if is_json:
        printer.write_json(savings.to_json(), is_indented=printer.is_terminal)
    else:
        headings = ("client with", "tools", "bytes", "saved")
        write_table(printer, headings, [*_savings_rows(savings)], right=headings[1:])
    for server in savings.servers:
        if server.problem:
            warn(f"the tools of {server.name} are not counted: {server.problem}")
    if printer.problem is not None:
        return printer.problem
    return ExitStatus.COMPLETED if savings.is_complete else ExitStatus.FAILED


def _savings_rows(savings: Savings) -> Iterator[tuple[str, str, str, str]]:
    for server in savings.servers:
        if not server.problem:
            yield server.name, f"{server.tool_count:,}", f"{server.definition_bytes:,}", ""
    yield "all servers", f"{savings.tool_count:,}", f"{savings.definition_bytes:,}", ""
    percent = f"{savings.saved_percent:.1f} %" if savings.definition_bytes else ""
    yield "nacre mcp", f"{len(savings.shown_names):,}", f"{savings.shown_bytes:,}", percent
