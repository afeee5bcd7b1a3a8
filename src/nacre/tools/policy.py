"""The tool policy: the `allow`, `deny` and `alsoAllow` rules of the configuration."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from nacre.config import CORE_GROUPS, fold_tool_name
from nacre.tools.definition import CORE_OWNER, SOURCES

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from nacre.config import ToolRules, ToolsConfig
    from nacre.run_context import RunContext
    from nacre.tools.definition import Tool, ToolSource

# The name for the tools of all MCP servers in a configuration.
_MCP_PLUGIN: Final = "bundle-mcp"
_MCP_GROUPS: Final = ("group:mcp", _MCP_PLUGIN)

# A tool name that only the pattern `*` matches.
_NO_NAME: Final = "\0"

_PatternKind = Literal["any", "group", "id", "core", "name or owner"]
"""What a pattern is compared with. Patterns in `deny` match anything; each pattern in `allow`
matches one kind of name."""
_Names: TypeAlias = "Mapping[_PatternKind, Sequence[str]]"


class ToolPolicy:
    """The rules of all sections. A tool is permitted only if every section permits it."""

    def __init__(self, rules: Sequence[tuple[str, ToolRules]] = ()) -> None:
        self._layers = [_Layer(path, layer) for path, layer in rules]

    @property
    def has_rules(self) -> bool:
        """Whether there is a tool that the policy does not permit."""
        return any(layer.has_rules for layer in self._layers)

    def permits(self, tool: Tool) -> bool:
        return self.refusal(tool) is None

    def refusal(self, tool: Tool) -> str | None:
        """Why the tool is not permitted, with the setting; None if it is permitted."""
        if not self._layers:
            return None
        names = _names_of(tool)
        for layer in self._layers:
            refusal = layer.refusal(names)
            if refusal is not None:
                return f"{tool.name} is not permitted: {refusal}"
        return None

    def denial(self, tool: Tool) -> str | None:
        """Why a `deny` list refuses the tool; None if none does, whatever `allow` says."""
        names = _names_of(tool)
        for layer in self._layers:
            denial = layer.denial(names)
            if denial is not None:
                return f"{tool.name} is not permitted: {denial}"
        return None

    def may_permit_server(self, owner: str, *, other_names: Collection[str] = ()) -> bool:
        """Whether the policy may permit a tool of this MCP server, whose tools are unknown.

        A name in `allow` is that of the tool in `other_names`, if there is one.
        """
        folded = fold_tool_name(owner)
        others = frozenset(map(fold_tool_name, other_names))
        return not any(layer.rules_out_server(folded, others) for layer in self._layers)


def effective_tools(tools: Iterable[Tool], policy: ToolPolicy) -> list[Tool]:
    """The tools that the policy permits, in order."""
    return [tool for tool in tools if policy.permits(tool)]


def policy_for(tools: ToolsConfig, context: RunContext) -> ToolPolicy:
    """The policy of a run; a sandboxed run has the rules for the sandbox in addition."""
    return ToolPolicy((*tools.rules, *(tools.sandbox_rules if context.is_sandboxed else ())))


class _Layer:
    """The compiled rules of one section."""

    def __init__(self, path: str, rules: ToolRules) -> None:
        self._path = path
        self._deny = _Patterns((pattern, "any") for pattern in rules.deny)
        self._allow = None
        if rules.allow is not None:
            allow = (*rules.allow, *rules.also_allow)
            self._allow = _Patterns((pattern, _kind_of(pattern)) for pattern in allow)
        self.has_rules = rules.allow is not None or bool(rules.deny)

    def refusal(self, names: _Names) -> str | None:
        denial = self.denial(names)
        if denial is not None:
            return denial
        if self._allow is not None and self._allow.find_match(names) is None:
            return f"`{self._path}.allow` does not name it"
        return None

    def denial(self, names: _Names) -> str | None:
        denied_by = self._deny.find_match(names)
        if denied_by is None:
            return None
        return f"`{self._path}.deny` has {json.dumps(denied_by, ensure_ascii=False)}"

    def rules_out_server(self, owner: str, other_names: Collection[str]) -> bool:
        """Whether the rules exclude all tools of an MCP server, whatever their names are."""
        if self._deny.find_match(_names("mcp", owner, _NO_NAME)) is not None:
            return True
        return self._allow is not None and not self._allow.may_match_server(owner, other_names)


class _Patterns:
    """A set of patterns; those without wildcards are in a dict, because tools may be many."""

    def __init__(self, patterns: Iterable[tuple[str, _PatternKind]]) -> None:
        self._exact: dict[tuple[_PatternKind, str], str] = {}
        self._globs: list[tuple[_PatternKind, str, str]] = []
        for pattern, kind in patterns:
            folded = fold_tool_name(pattern)
            if "*" in folded or "?" in folded:
                self._globs.append((kind, folded, pattern))
            else:
                self._exact[kind, folded] = pattern

    def may_match_server(self, owner: str, other_names: Collection[str]) -> bool:
        """Whether a pattern may match a tool of this MCP server."""
        globs: list[tuple[_PatternKind, str]] = [(kind, text) for kind, text, _ in self._globs]
        return any(
            folded == "*" or _may_match_server(kind, folded, owner, other_names)
            for kind, folded in (*self._exact, *globs)
        )

    def find_match(self, names: _Names) -> str | None:
        """The pattern that matches one of the names."""
        for kind, texts in names.items():
            for text in texts:
                if (kind, text) in self._exact:
                    return self._exact[kind, text]
        for kind, folded, pattern in self._globs:
            matches = _matches_id if kind == "id" else _matches
            if folded == "*" or any(matches(folded, text) for text in names[kind]):
                return pattern
        return None


def _may_match_server(
    kind: _PatternKind, pattern: str, owner: str, other_names: Collection[str]
) -> bool:
    match kind:
        case "any" | "name or owner":
            return pattern not in other_names or _matches(pattern, owner)
        case "group":
            return any(_matches(pattern, group) for group in _MCP_GROUPS)
        case "id":
            source, of, *names = pattern.split(":", 2)
            # A pattern of two parts, such as `mcp:*` or `*:read_file`, is for any owner.
            return _matches(source, "mcp") and (not names or _matches(of, owner))
        case "core":
            return False


def _kind_of(pattern: str) -> _PatternKind:
    """The kind of a pattern in `allow`."""
    # Providers choose the names of their tools. So a tool with the name of a group or an id must
    # not match a pattern for the group or the id.
    folded = fold_tool_name(pattern)
    start, *rest = folded.split(":")
    if (start == "group" and rest) or folded == _MCP_PLUGIN:
        return "group"
    is_glob = "*" in start or "?" in start
    if rest and (start in SOURCES or is_glob):
        return "id"
    return "core" if folded == CORE_OWNER else "name or owner"


def _names_of(tool: Tool) -> _Names:
    return _names(tool.source, fold_tool_name(tool.owner), fold_tool_name(tool.name))


def _names(source: ToolSource, owner: str, name: str) -> _Names:
    tool_id = f"{source}:{owner}:{name}"
    is_core = source == "openclaw" and owner == CORE_OWNER
    groups = list(_MCP_GROUPS) if source == "mcp" else [f"group:{source}"]
    if is_core:
        groups += [group for group, members in CORE_GROUPS.items() if name in members]
    # Clients choose the owner of their tools; all other owners come from the configuration.
    owners = [] if source == "client" else [owner]
    return {
        "any": (name, tool_id, owner, *groups),
        "group": tuple(groups),
        "id": (tool_id,),
        "core": (CORE_OWNER,) if is_core else (),
        "name or owner": (name, *owners),
    }


def _matches_id(pattern: str, tool_id: str) -> bool:
    """Match source, owner and name separately, so that a colon in a name has no effect."""
    pattern_parts, id_parts = pattern.split(":", 2), tool_id.split(":", 2)
    if len(pattern_parts) < len(id_parts):
        # Patterns such as `mcp:*` and `*:read_file`, which match any owner.
        return _matches(pattern, tool_id)
    return all(_matches(part, text) for part, text in zip(pattern_parts, id_parts, strict=True))


def _matches(pattern: str, text: str) -> bool:
    """Match a glob; it backtracks only to the last `*`, so that no pattern is slow."""
    at, here, star, mark = 0, 0, -1, 0
    while here < len(text):
        # A name may contain a literal star, so check for the wildcard first.
        if at < len(pattern) and pattern[at] == "*":
            star, mark = at, here
            at += 1
        elif at < len(pattern) and pattern[at] in ("?", text[here]):
            at += 1
            here += 1
        elif star >= 0:
            mark += 1
            at, here = star + 1, mark
        else:
            return False
    return not pattern[at:].strip("*")
