"""Which tools a run may use: `allow`, `deny` and `alsoAllow` of every place that has a say."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from nacre.config.tools import CORE_GROUPS, fold_tool_name
from nacre.tools.definition import CORE_OWNER, SOURCES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from nacre.config.tools import ToolRules, ToolsConfig
    from nacre.run_context import RunContext
    from nacre.tools.definition import Tool, ToolSource

# How configurations name all that comes from MCP servers, whichever server has it.
_MCP_PLUGIN: Final = "bundle-mcp"

# Stands for a tool that no pattern names, but for those that fit any name.
_NO_NAME: Final = "\0"

_Named = Literal["any", "group", "id", "core", "name or owner"]
"""What a pattern speaks of: `deny` of anything that fits, `allow` of one kind of thing."""
_Names: TypeAlias = "Mapping[_Named, Sequence[str]]"


class ToolPolicy:
    """Every place has to permit a tool, and what one of them denies stays denied."""

    def __init__(self, rules: Sequence[tuple[str, ToolRules]] = ()) -> None:
        self._layers = [_Layer(where, layer) for where, layer in rules]

    def permits(self, tool: Tool) -> bool:
        return self.refusal(tool) is None

    def refusal(self, tool: Tool) -> str | None:
        """Why the tool may not be used, naming the setting; None if it may."""
        if not self._layers:
            return None
        names = _names_of(tool)
        for layer in self._layers:
            refusal = layer.refusal(names)
            if refusal is not None:
                return f"{tool.name} is not permitted: {refusal}"
        return None

    def may_permit_server(self, owner: str) -> bool:
        """Whether any tool of this MCP server could be permitted, whatever it is called."""
        names = _names("mcp", fold_tool_name(owner), _NO_NAME)
        return not any(layer.rules_out(names) for layer in self._layers)


def effective_tools(tools: Iterable[Tool], policy: ToolPolicy) -> list[Tool]:
    """The tools that the run may use, in their order."""
    return [tool for tool in tools if policy.permits(tool)]


def policy_for(tools: ToolsConfig, context: RunContext) -> ToolPolicy:
    """The policy of a run; the rules for the sandbox count if the run is in one."""
    return ToolPolicy((*tools.rules, *(tools.sandbox_rules if context.is_sandboxed else ())))


class _Layer:
    """The rules of one place, ready to be matched."""

    def __init__(self, where: str, rules: ToolRules) -> None:
        self._where = where
        self._deny = _Patterns((pattern, "any") for pattern in rules.deny)
        self._allow = None
        if rules.allow is not None:
            allow = (*rules.allow, *rules.also_allow)
            self._allow = _Patterns((pattern, _what_it_names(pattern)) for pattern in allow)

    def refusal(self, names: _Names) -> str | None:
        denied_by = self._deny.matching(names)
        if denied_by is not None:
            return f"`{self._where}.deny` has {json.dumps(denied_by, ensure_ascii=False)}"
        if self._allow is not None and self._allow.matching(names) is None:
            return f"`{self._where}.allow` does not name it"
        return None

    def rules_out(self, names: _Names) -> bool:
        """Whether nothing but a tool's own name could make a difference, and that cannot either."""
        return self._deny.matching(names) is not None or (
            self._allow is not None and self._allow.is_empty
        )


class _Patterns:
    """Patterns, those without wildcards in a table: there may be thousands of tools."""

    def __init__(self, patterns: Iterable[tuple[str, _Named]]) -> None:
        self._exact: dict[tuple[_Named, str], str] = {}
        self._globs: list[tuple[_Named, str, str]] = []
        for pattern, named in patterns:
            folded = fold_tool_name(pattern)
            if "*" in folded or "?" in folded:
                self._globs.append((named, folded, pattern))
            else:
                self._exact[named, folded] = pattern

    @property
    def is_empty(self) -> bool:
        return not self._exact and not self._globs

    def matching(self, names: _Names) -> str | None:
        for named, texts in names.items():
            for text in texts:
                if (named, text) in self._exact:
                    return self._exact[named, text]
        for named, folded, pattern in self._globs:
            matches = _matches_id if named == "id" else _matches
            if folded == "*" or any(matches(folded, text) for text in names[named]):
                return pattern
        return None


def _what_it_names(pattern: str) -> _Named:
    """What a pattern of `allow` speaks of. Whoever brings a tool chooses its name, so a name never
    stands for a group, an id or an owner."""
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
    groups = [f"group:{source}", *([_MCP_PLUGIN] if source == "mcp" else [])]
    if is_core:
        groups += [group for group, members in CORE_GROUPS.items() if name in members]
    # Who sends client tools chooses their owner as well; the others are named by the configuration.
    owners = [] if source == "client" else [owner]
    return {
        "any": (name, tool_id, owner, *groups),
        "group": tuple(groups),
        "id": (tool_id,),
        "core": (CORE_OWNER,) if is_core else (),
        "name or owner": (name, *owners),
    }


def _matches_id(pattern: str, tool_id: str) -> bool:
    """Source by source, owner by owner, name by name: a colon in a name is no way around that."""
    wanted, found = pattern.split(":", 2), tool_id.split(":", 2)
    if len(wanted) < len(found):
        # Such as `mcp:*` and `*:read_file`, which leave it open who has the tool.
        return _matches(pattern, tool_id)
    return all(_matches(part, text) for part, text in zip(wanted, found, strict=True))


def _matches(pattern: str, text: str) -> bool:
    """Glob matching that only ever goes back to the last `*`: no pattern takes long."""
    at, here, star, mark = 0, 0, -1, 0
    while here < len(text):
        # A name may hold a star itself, so the wildcard is looked for first.
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
