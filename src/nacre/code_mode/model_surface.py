"""The tools that the model sees in code mode, and the description of `exec`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, Final

from nacre.code_mode.control_tools import exec_parameters, wait_parameters
from nacre.tools import (
    DefinitionFormat,
    format_definition,
    format_tool,
    is_control_tool,
    split_direct_tools,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from nacre.code_mode.namespaces import Namespace
    from nacre.config import CodeModeConfig, Language
    from nacre.json_types import JsonObject
    from nacre.tools import Catalog, Tool


EXEC_NAME: Final = "exec"
WAIT_NAME: Final = "wait"
_HEADER: Final = "tools.<name> by owner:"
_MORE_NAMES: Final = "(+{count} more: tools.search)"
_LINE_BREAK_BYTES: Final = len(r"\n")
_SEPARATOR: Final = ", "
_MAX_SERVER_NAME_BYTES: Final = 400


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelSurface:
    """The tools of a run: those that the model sees, and those that programs call."""

    is_code_mode: bool
    direct_tools: tuple[Tool, ...]
    """The tools that the model sees; in code mode only direct-only tools."""
    cataloged: tuple[Tool, ...]

    @property
    def tool_names(self) -> tuple[str, ...]:
        """The names of all tools that the model sees."""
        direct = tuple(tool.name for tool in self.direct_tools)
        return (EXEC_NAME, WAIT_NAME, *direct) if self.is_code_mode else direct

    def definitions(
        self,
        format: DefinitionFormat,
        *,
        config: CodeModeConfig,
        catalog: Catalog,
        namespaces: Sequence[Namespace],
        mcp_servers: Sequence[str],
    ) -> list[JsonObject]:
        """The definitions of these tools, in the format of a provider."""
        direct = [format_tool(tool, format) for tool in self.direct_tools]
        if not self.is_code_mode:
            return direct
        described = exec_description(
            catalog=catalog,
            namespaces=namespaces,
            mcp_servers=mcp_servers,
            name_index_bytes=config.name_index_bytes,
            languages=config.languages,
        )
        return [
            format_definition(EXEC_NAME, described, exec_parameters(config), format),
            format_definition(WAIT_NAME, WAIT_DESCRIPTION, wait_parameters(), format),
            *direct,
        ]


def is_code_mode_active(
    config: CodeModeConfig,
    *,
    tools: Sequence[Tool],
    has_servers: bool = False,
    tools_disabled: bool = False,
) -> bool:
    """Whether the model sees `exec` and `wait`; `tools` are those that policy permits.

    A run without tools stays without tools.
    """
    if not config.enabled or tools_disabled:
        return False
    return has_servers or not all(is_control_tool(tool) for tool in tools)


def visible_tools(
    tools: Sequence[Tool],
    *,
    config: CodeModeConfig,
    has_servers: bool = False,
    tools_disabled: bool = False,
) -> ModelSurface:
    """The surface of a run; `tools` are those that policy permits.

    Raises CatalogError if a direct-only tool is named `exec` or `wait`.
    """
    is_active = is_code_mode_active(
        config, tools=tools, has_servers=has_servers, tools_disabled=tools_disabled
    )
    if not is_active:
        shown = () if tools_disabled else tuple(tools)
        return ModelSurface(is_code_mode=False, direct_tools=shown, cataloged=())
    direct, cataloged = split_direct_tools(
        tools, controls=(EXEC_NAME, WAIT_NAME), owner="code mode"
    )
    return ModelSurface(is_code_mode=True, direct_tools=direct, cataloged=cataloged)


def name_index(catalog: Catalog, *, max_bytes: int) -> str:
    """A line per owner; empty if there are no names or no room.

    If not all names fit, names of each owner are added in turn. Bytes are counted in JSON, with the
    line break before the text.
    """
    owners = _names_by_owner(catalog)
    total = sum(len(names) for names in owners.values())
    header_bytes = _LINE_BREAK_BYTES + _json_bytes(_HEADER)
    shown = _fit_names(owners, max_bytes - header_bytes)
    count = sum(len(names) for names in shown.values())
    if count == total:
        return "\n".join([_HEADER, *_format_lines(shown)]) if total else ""
    rest_bytes = _LINE_BREAK_BYTES + len(_MORE_NAMES.format(count=total))
    shown = _fit_names(owners, max_bytes - header_bytes - rest_bytes)
    count = sum(len(names) for names in shown.values())
    if not count:
        return ""
    return "\n".join([_HEADER, *_format_lines(shown), _MORE_NAMES.format(count=total - count)])


def join_within(names: Sequence[str], max_bytes: int) -> str:
    """The names with commas between them, and the number of those that do not fit."""
    shown = list(_take_fitting(names, max_bytes))
    left = len(names) - len(shown)
    return _SEPARATOR.join(shown) + (f" (+{left} more)" if left else "")


def _names_by_owner(catalog: Catalog) -> dict[str, list[str]]:
    """The names that programs use, in the order of the catalog: after `tools.`, or the id."""
    callable_names = {tool_id: name for name, tool_id in catalog.names.items()}
    owners: dict[str, list[str]] = {}
    for entry in catalog.guest_entries:
        name = callable_names.get(entry.id, entry.id)
        owners.setdefault(entry.tool.owner, []).append(name)
    return owners


def _fit_names(owners: dict[str, list[str]], max_bytes: int) -> dict[str, list[str]]:
    shown: dict[str, list[str]] = {owner: [] for owner in owners}
    left = max_bytes
    for owner, name in _interleave(owners):
        cost = _json_bytes(name) + len(_SEPARATOR)
        if not shown[owner]:
            cost = _LINE_BREAK_BYTES + _json_bytes(f"{owner}: {name}")
        if cost <= left:
            shown[owner].append(name)
            left -= cost
        if left <= len(_SEPARATOR):
            break
    return shown


def _interleave(owners: dict[str, list[str]]) -> Iterator[tuple[str, str]]:
    turns: Iterable[tuple[tuple[str, str] | None, ...]] = zip_longest(
        *([(owner, name) for name in names] for owner, names in owners.items())
    )
    return (turn for turn in chain.from_iterable(turns) if turn is not None)


def _format_lines(shown: dict[str, list[str]]) -> list[str]:
    return [f"{owner}: {_SEPARATOR.join(names)}" for owner, names in shown.items() if names]


def _take_fitting(names: Sequence[str], max_bytes: int) -> Iterator[str]:
    left = max_bytes
    for name in names:
        left -= _json_bytes(name) + len(_SEPARATOR)
        if left < 0:
            return
        yield name


def _json_bytes(text: str) -> int:
    # Most SDKs escape non-ASCII characters, which then take six or twelve bytes.
    return len(json.dumps(text)) - 2


_LANGUAGE_NAMES: Final = {"javascript": "JavaScript", "typescript": "TypeScript"}

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
    """Describe the API, then the MCP servers, namespaces and tools of this run.

    `name_index_bytes` limits the size of the list of names in the JSON of the definition.
    """
    shown_languages = " or ".join(_LANGUAGE_NAMES[language] for language in languages)
    parts = [_PROGRAM.format(languages=shown_languages)]
    # A run with only MCP servers needs no text about other tools.
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
    # One line each, so that the text of a plugin cannot look like another part.
    said = " ".join(f"{namespace.description} {namespace.prompt}".split())
    return f"Global {namespace.global_name}: {said}"
