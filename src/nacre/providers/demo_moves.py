"""What the demonstration model does first: a call of a tool that it is shown, or words."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from nacre.json_types import encode_json
from nacre.providers.demo_intents import (
    Calculate,
    Greet,
    ListFiles,
    ListTools,
    ReadFile,
    RunProgram,
    SearchTools,
    ShowWaiting,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nacre.json_types import JsonObject
    from nacre.providers.base import ToolSpec
    from nacre.providers.demo_intents import Intent

Surface = Literal["code_mode", "search_code", "search_tools", "direct"]

GREETING: Final = """\
Hello. I understand only a few kinds of request. Try:
- What tools are there?
- Find a tool for reading files
- What is 12 * (3 + 4)?
- List the files
- Read README.md
- Wait a little (a program that yields and is continued)
- A JavaScript program in a ``` fence: I run just that"""
_NEEDS_CODE_MODE: Final = (
    "That takes a program, and this agent has no code mode; `tools.codeMode.enabled: true` in the "
    "configuration switches it on."
)
_SHOWN_HITS: Final = 5

_LIST_TOOLS: Final = """\
const owners = new Map();
for (const { id, name } of ALL_TOOLS) {
  const owner = id.split(":")[1];
  if (!owners.has(owner)) owners.set(owner, []);
  owners.get(owner).push(name);
}
return {
  count: ALL_TOOLS.length,
  owners: [...owners].map(([owner, names]) => [owner, names.length, names.slice(0, 25)]),
  servers: Object.keys(MCP).filter((name) => !name.startsWith("$")),
};"""
_SEARCH: Final = """\
const hits = await SEARCH(QUERY, { limit: 5 });
const top = hits.length ? await DESCRIBE(hits[0].id) : null;
return { hits: hits.map(({ id, description }) => ({ id, description })), top };"""
_SHOW_WAITING: Final = """\
text("The first half is done.");
await yield_control("half of it is done");
return "The second half is done as well, in the same program.";"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Move:
    """A call of a tool."""

    name: str
    arguments: JsonObject

    @property
    def arguments_text(self) -> str:
        return encode_json(self.arguments).decode()


def surface_of(tools: Sequence[ToolSpec]) -> Surface:
    """Told by names; a shell may be called `exec` too, but takes no `code`."""
    by_name = {tool.name: tool for tool in tools}
    if "wait" in by_name and "exec" in by_name:
        taken = by_name["exec"].parameters.get("properties")
        if isinstance(taken, dict) and "code" in taken:
            return "code_mode"
    if "tool_search_code" in by_name:
        return "search_code"
    return "search_tools" if {"tool_search", "tool_call"} <= by_name.keys() else "direct"


def first_move(intent: Intent, tools: Sequence[ToolSpec]) -> Move | str:
    """What to call, or what to say where there is nothing to call."""
    surface = surface_of(tools)
    match intent:
        case Greet():
            return GREETING
        case ReadFile(path=path):
            return _file_move("read", {"path": path}, surface, tools)
        case ListFiles(path=path):
            return _file_move("list", {"path": path}, surface, tools)
        case SearchTools(query=query):
            return _search_move(query, surface, tools)
        case ListTools():
            return _listing_move(surface, tools)
        case Calculate(expression=expression):
            return _program(f"return {expression};", surface)
        case RunProgram(code=code, language=language):
            return _program(code, surface, language=language)
        case ShowWaiting():
            # Tool Search has programs, but none of them can yield.
            return _program(_SHOW_WAITING, surface if surface == "code_mode" else "direct")


def _program(code: str, surface: Surface, *, language: str = "javascript") -> Move | str:
    if surface == "code_mode":
        given: JsonObject = {"code": code}
        if language != "javascript":
            given["language"] = language
        return Move(name="exec", arguments=given)
    if surface == "search_code":
        return Move(name="tool_search_code", arguments={"code": code})
    return _NEEDS_CODE_MODE


def _file_move(
    name: str, given: JsonObject, surface: Surface, tools: Sequence[ToolSpec]
) -> Move | str:
    tool_id = f"openclaw:core:{name}"
    if surface == "search_tools":
        return Move(name="tool_call", arguments={"id": tool_id, "args": given})
    if surface != "direct":
        call = "tools.call" if surface == "code_mode" else "openclaw.tools.call"
        return _program(f"return await {call}({_js(tool_id)}, {_js(given)});", surface)
    if any(tool.name == name for tool in tools):
        return Move(name=name, arguments=given)
    return f"That takes the tool `{name}`, and this agent has none of that name."


def _search_move(query: str, surface: Surface, tools: Sequence[ToolSpec]) -> Move | str:
    if surface == "search_tools":
        return Move(name="tool_search", arguments={"query": query, "limit": _SHOWN_HITS})
    if surface == "direct":
        return _found_among(tools, query)
    owner = "tools" if surface == "code_mode" else "openclaw.tools"
    code = _SEARCH.replace("SEARCH", f"{owner}.search").replace("DESCRIBE", f"{owner}.describe")
    return _program(code.replace("QUERY", _js(query)), surface)


def _listing_move(surface: Surface, tools: Sequence[ToolSpec]) -> Move | str:
    if surface == "code_mode":
        return _program(_LIST_TOOLS, surface)
    if surface != "direct":
        return "The tools of this agent are behind a search. Try: Find a tool for reading files"
    if not tools:
        return "This agent has no tools."
    return f"This agent has {len(tools)} tools:\n" + "\n".join(map(_line_for, tools))


def _found_among(tools: Sequence[ToolSpec], query: str) -> str:
    words = query.lower().split()
    scores = {
        tool.name: sum(word in f"{tool.name} {tool.description}".lower() for word in words)
        for tool in tools
    }
    ranked = sorted(tools, key=lambda tool: -scores[tool.name])
    found = [tool for tool in ranked if scores[tool.name]][:_SHOWN_HITS]
    if not found:
        return f"None of the {len(tools)} tools of this agent has a word of {query!r}."
    return f"For {query!r} there are:\n" + "\n".join(map(_line_for, found))


def _line_for(tool: ToolSpec) -> str:
    first = tool.description.strip().split("\n")[0]
    return f"- {tool.name}: {first[:200]}"


def _js(value: object) -> str:
    """JSON is JavaScript; plain ASCII, so that nothing in it can end a line or a string."""
    return json.dumps(value)
