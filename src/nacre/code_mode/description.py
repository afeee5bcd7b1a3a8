"""What the model is told about `exec` and `wait`, in few words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from nacre.code_mode.name_index import join_within, name_index

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nacre.code_mode.namespaces import Namespace
    from nacre.config.code_mode import Language
    from nacre.tools.catalog import Catalog

_LANGUAGE_NAMES: Final = {"javascript": "JavaScript", "typescript": "TypeScript"}
_MAX_SERVER_NAME_BYTES: Final = 400

WAIT_DESCRIPTION: Final = (
    "Continue an exec program whose result has status waiting. Returns the same kind of result."
)

_PROGRAM: Final = (
    "Run a {languages} program. code is the body of an async function: await calls, and return the"
    " value you need, as plain data."
)
_TOOLS: Final = (
    "await tools.<name>(input) or tools.call(id, input) gives a tool's result; a failed call throws"
    " an Error to catch (message, code, toolId). tools.search(task, {{limit}}) finds tools,"
    " tools.describe(id) gives a tool's input schema: look before you guess. ALL_TOOLS holds"
    " {count} {{id, name, description}}.\n"
    'Example: const [tool] = await tools.search("send mail"); return tools.describe(tool.id)'
)
_MCP: Final = (
    "MCP servers: {servers}. await MCP.<server>.<tool>(input) gives {{content, structuredContent,"
    ' isError}}; MCP.$search(task) finds tools, API.read("mcp/<server>.d.ts") declares them.'
)
_REST: Final = (
    "Do the whole task in one program: loops, filters, Promise.all for calls in parallel.\n"
    "text(value), json(value), console.log add output. On status waiting, call wait with the runId;"
    " await yield_control(reason) waits on purpose.\n"
    "No imports, files or network but through tools. Nothing is kept between programs."
)


def exec_description(
    *,
    catalog: Catalog,
    namespaces: Sequence[Namespace],
    mcp_servers: Sequence[str] = (),
    name_index_bytes: int,
    languages: Sequence[Language],
) -> str:
    """The API, then what this run has: MCP servers, namespaces, names of tools.

    `name_index_bytes` is the most that the list of names may add to the JSON of the definition.
    """
    shown_languages = " or ".join(_LANGUAGE_NAMES[language] for language in languages)
    parts = [_PROGRAM.format(languages=shown_languages)]
    # Somebody with MCP servers alone need not read about tools that there are none of.
    if catalog.guest_entries or not mcp_servers:
        parts.append(_TOOLS.format(count=len(catalog.guest_entries)))
    if mcp_servers:
        parts.append(_MCP.format(servers=join_within(mcp_servers, _MAX_SERVER_NAME_BYTES)))
    parts.append(_REST)
    parts.extend(map(_namespace_text, namespaces))
    index = name_index(catalog, max_bytes=name_index_bytes)
    if index:
        parts.append(index)
    return "\n".join(parts)


def _namespace_text(namespace: Namespace) -> str:
    # One line each: what a plugin wrote must not look like another part of the description.
    said = " ".join(f"{namespace.description} {namespace.prompt}".split())
    return f"Global {namespace.global_name}: {said}"
