"""TypeScript declaration files for programs: the name, input and result of each tool."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from nacre.lazy_dataclasses import dataclass
from nacre.tools.declarations.types import input_type_of, type_of
from nacre.tools.declarations.typescript import (
    Declared,
    TypeNames,
    comment_lines,
    object_text,
    one_line,
    pascal_case,
    scope_text,
    statement_text,
)
from nacre.tools.definition import as_dict, as_list, target_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


_MAX_DEPTH: Final = 20


def requires_members(schema: object) -> bool:
    """Whether the schema refuses an empty object; True if that is unclear."""
    return _RequiredMembers(schema).are_in(schema, 0)


class _RequiredMembers:
    """Visits each schema once, so that references cannot multiply the work."""

    def __init__(self, root: object) -> None:
        self._root = root
        self._found: dict[int, bool] = {}

    def are_in(self, schema: object, depth: int) -> bool:
        if depth > _MAX_DEPTH:
            return True
        key = id(schema)
        if key not in self._found:
            # A recursive reference adds no requirement.
            self._found[key] = False
            self._found[key] = self._look(as_dict(schema), depth + 1)
        return self._found[key]

    def _look(self, node: dict[str, object], depth: int) -> bool:
        if as_list(node.get("required")):
            return True
        parts = as_list(node.get("allOf"))
        reference = node.get("$ref")
        if isinstance(reference, str):
            parts.append(target_of(self._root, reference))
        if any(self.are_in(part, depth) for part in parts):
            return True
        choices = (as_list(node.get(key)) for key in ("anyOf", "oneOf"))
        return any(all(self.are_in(part, depth) for part in parts) for parts in choices if parts)


MAX_FILE_CHARACTERS: Final = 1_000_000
"""Beyond this size of a file, the remaining tools are declared by name only."""

_MAX_DESCRIPTION_CHARACTERS: Final = 4_000
_MAX_SUMMARY_CHARACTERS: Final = 1_000
_MAX_KEY_CHARACTERS: Final = 200

ResultKind = Literal["mcp", "value"]
"""The result of a call: the native result of MCP, or the value of the tool."""

_MCP_TYPES: Final = """\
type McpToolResult<T = unknown> = {
  content?: unknown[];
  structuredContent?: T;
  isError?: boolean;
  [key: string]: unknown;
};

type McpApiHeader = {
  server: string;
  declaration: string;
  inputSchema?: unknown;
  outputSchema?: unknown;
  [key: string]: unknown;
};
"""
_API: Final = Declared(
    name="$api",
    rest="(toolName?: string, options?: { schema?: boolean }): Promise<McpApiHeader>",
    comment="/** This header, or that of one tool; with its JSON Schema if asked for. */",
)
_RESOURCES: Final = Declared(
    keyword="const",
    name="resources",
    rest="""\
: {
  list(input?: { cursor?: string }): Promise<{ resources: unknown[]; nextCursor?: string }>;
  read(input: { uri: string }): Promise<{ contents: unknown[] }>;
  templates(input?: {
    cursor?: string;
  }): Promise<{ resourceTemplates: unknown[]; nextCursor?: string }>;
}""",
    comment="/** What this server has to read. */",
)
_PROMPTS: Final = Declared(
    keyword="const",
    name="prompts",
    rest="""\
: {
  list(input?: { cursor?: string }): Promise<{ prompts: unknown[]; nextCursor?: string }>;
  get(input: {
    name: string;
    arguments?: { [key: string]: string };
  }): Promise<{ messages: unknown[] }>;
}""",
    comment="/** The prompts that this server has. */",
)
_SEARCH: Final = Declared(
    name="$search",
    rest="""\
(query: string, options?: { limit?: number }): Promise<Array<{
  server: string;
  path?: string;
  description?: string;
  file?: string;
  problem?: string;
}>>""",
    comment="/** Find functions by what they do: the path to call, the file to read. */",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class DeclaredTool:
    """A tool for programs."""

    name: str
    """The name of its member."""
    description: str = ""
    parameters: object
    """The JSON Schema of the input, which may be invalid."""
    output_schema: object = None


@dataclass(frozen=True, kw_only=True, slots=True)
class DeclaredServer:
    """An MCP server in the index."""

    name: str
    """The member of `MCP`."""
    description: str = ""
    tool_names: tuple[str, ...] | None = None
    """None if its tools are not listed yet."""


def function_declaration(
    name: str,
    *,
    description: str = "",
    parameters: object,
    output_schema: object = None,
    result: ResultKind = "mcp",
) -> str:
    """A function declaration with its comment and the types that it uses."""
    tool = DeclaredTool(
        name=name, description=description, parameters=parameters, output_schema=output_schema
    )
    return statement_text(_declare_tool(tool, result, TypeNames()))


def mcp_file_path(server_name: str) -> str:
    """The path of a server's declaration file."""
    return f"mcp/{server_name}.d.ts"


def mcp_server_file(
    server_name: str,
    tools: Sequence[DeclaredTool],
    *,
    has_resources: bool = False,
    has_prompts: bool = False,
    left_out: Sequence[str] = (),
) -> str:
    """The declarations of one server, such as `MCP.github.createIssue(input)`.

    `left_out` are notes on tools that cannot be called.
    """
    members = [_API]
    if has_resources:
        members.append(_RESOURCES)
    if has_prompts:
        members.append(_PROMPTS)
    members.extend(_declare_all(tools, "mcp"))
    notes = [one_line(note, max_characters=_MAX_SUMMARY_CHARACTERS) for note in left_out]
    declared = f"{_MCP_TYPES}\n{scope_text(['MCP', server_name], members)}"
    return f"{declared}\n{comment_lines(notes)}\n" if notes else declared


def mcp_index_file(servers: Sequence[DeclaredServer]) -> str:
    """The declaration of `MCP`: the search, and the servers with their files."""
    return object_text(["MCP"], [_SEARCH, *map(_server_member, servers)])


def tools_file(owner: str, tools: Sequence[DeclaredTool]) -> str:
    """The declarations of tools such as `tools.read_file(input)`."""
    title = f"Tools of {one_line(owner, max_characters=_MAX_SUMMARY_CHARACTERS)}."
    members = list(_declare_all(tools, "value"))
    return f"{comment_lines([title])}\n{scope_text(['tools'], members)}"


def _declare_all(tools: Sequence[DeclaredTool], result: ResultKind) -> Iterator[Declared]:
    names, left = TypeNames(), MAX_FILE_CHARACTERS
    for tool in tools:
        declared = _declare_tool(tool, result, names) if left > 0 else _by_name_alone(tool, result)
        left -= declared.size_characters
        yield declared


def _declare_tool(tool: DeclaredTool, result: ResultKind, names: TypeNames) -> Declared:
    start = pascal_case(tool.name)
    taken = input_type_of(tool.parameters, name=f"{start}Input", names=names)
    given = type_of(tool.output_schema, name=f"{start}Output", names=names)
    mark = "" if requires_members(tool.parameters) else "?"
    # An empty schema means an object, because the input of a tool is always an object.
    input_text = "object" if taken.text == "unknown" else taken.text
    description = one_line(tool.description, max_characters=_MAX_DESCRIPTION_CHARACTERS)
    parameters = [
        f"@param {one_line(key, max_characters=_MAX_KEY_CHARACTERS)} {comment}"
        for key, comment in taken.comments
        if comment
    ]
    return Declared(
        name=tool.name,
        rest=f"(input{mark}: {input_text}): {_promise_of(given.text, result)}",
        comment=comment_lines([description, *parameters] if description else parameters),
        types=(*taken.named, *given.named),
    )


def _by_name_alone(tool: DeclaredTool, result: ResultKind) -> Declared:
    rest = f"(input?: object /* shortened */): {_promise_of('unknown', result)}"
    return Declared(name=tool.name, rest=rest)


def _promise_of(value: str, result: ResultKind) -> str:
    if result == "value":
        return f"Promise<{value}>"
    return "Promise<McpToolResult>" if value == "unknown" else f"Promise<McpToolResult<{value}>>"


def _server_member(server: DeclaredServer) -> Declared:
    count = len(server.tool_names or ())
    functions = "1 function" if count == 1 else f"{count} functions"
    if server.tool_names is None:
        functions = "not started yet; its functions will be"
    summary = f"{functions} in {mcp_file_path(server.name)}"
    if server.tool_names:
        # No more names than fit.
        summary = f"{summary}: {', '.join(server.tool_names[:_MAX_SUMMARY_CHARACTERS])}"
    lines = [
        one_line(text, max_characters=_MAX_SUMMARY_CHARACTERS)
        for text in (server.description, summary)
        if text
    ]
    return Declared(
        keyword="const", name=server.name, rest=": object", comment=comment_lines(lines)
    )
