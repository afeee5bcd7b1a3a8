"""The `tools` settings of one agent: code mode, Tool Search and the rules for its tools."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeAlias, cast
from unicodedata import normalize

from nacre.config.code_mode import CodeModeConfig, code_mode_config_from
from nacre.config.documents import agent_tools, object_at, shown
from nacre.config.fields import member_path
from nacre.config.tool_search import ToolSearchConfig, tool_search_config_from
from nacre.errors import ConfigError, MisplacedValueError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

CORE_GROUPS: Final = MappingProxyType(
    {
        "group:fs": frozenset(("read", "write", "edit", "list", "search")),
        "group:runtime": frozenset(("exec", "process")),
        "group:web": frozenset(("web_fetch",)),
        "group:messaging": frozenset(("message",)),
    }
)
"""The groups of core tools, with the names of their tools."""
SOURCE_GROUPS: Final = ("group:openclaw", "group:mcp", "group:client")
"""The groups of all tools from one source."""

_RULE_KEYS: Final = ("allow", "deny", "alsoAllow")


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolRules:
    """The rules of one place.

    A pattern names a tool, an id, an owner, or a group: `group:<source>`, or a group of core tools
    such as `group:fs`. `*` stands for any text and `?` for one character. Case does not matter.

    In `allow`, a pattern that begins with `group:` or a source never matches the name of a tool,
    and the owner of a client tool counts only as a part of its id.
    """

    allow: tuple[str, ...] | None = None
    """None for every tool; empty for none."""
    deny: tuple[str, ...] = ()
    also_allow: tuple[str, ...] = ()


RuleLayers: TypeAlias = tuple[tuple[str, ToolRules], ...]
"""Rules with the config paths of their places. A tool has to be permitted by all of them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolsConfig:
    """The settings of one agent, complete: its own over the shared ones."""

    code_mode: CodeModeConfig = field(default_factory=CodeModeConfig)
    tool_search: ToolSearchConfig = field(default_factory=ToolSearchConfig)
    rules: RuleLayers = ()
    sandbox_rules: RuleLayers = ()
    """In addition, for runs in a sandbox."""


def tools_config_from(document: Mapping[str, object], agent_id: str) -> ToolsConfig:
    """Read `tools`, and over it, key by key, the agent's own `tools`; raises ConfigError.

    An agent is an entry of `agents.list` by its `id`, or a member of `agents` by its name.
    """
    layers = [
        ("tools", object_at(document.get("tools"), "tools")),
        *agent_tools(document, agent_id),
    ]
    code_mode: dict[str, object] = {}
    tool_search: dict[str, object] = {"enabled": False}
    rules: list[tuple[str, ToolRules]] = []
    sandbox_rules: list[tuple[str, ToolRules]] = []
    for path, settings in layers:
        code_mode.update(
            _read_layer(settings.get("codeMode"), f"{path}.codeMode", code_mode_config_from, {})
        )
        tool_search.update(
            _read_layer(
                settings.get("toolSearch"),
                f"{path}.toolSearch",
                tool_search_config_from,
                {"enabled": True},
            )
        )
        for key in settings:
            _refuse_if_misspelt(key, path)
        rules.append((path, _rules_in(settings, path)))
        sandbox = f"{path}.sandbox"
        in_sandbox = object_at(settings.get("sandbox"), sandbox).get("tools")
        sandbox_rules.append((f"{sandbox}.tools", tool_rules_from(in_sandbox, f"{sandbox}.tools")))
    return ToolsConfig(
        code_mode=code_mode_config_from(code_mode),
        tool_search=tool_search_config_from(tool_search),
        rules=tuple(rules),
        sandbox_rules=tuple(sandbox_rules),
    )


def _read_layer(
    value: object, path: str, read: Callable[..., object], implied: Mapping[str, object]
) -> dict[str, object]:
    """The settings of one place. A boolean only turns the mode on or off."""
    # Read for its own path, so that an error names the place of the setting.
    read(value, path=path)
    if value is None:
        return {}
    if isinstance(value, bool):
        return {"enabled": value}
    return {**implied, **cast("Mapping[str, object]", value)}


def tool_rules_from(value: object, path: str) -> ToolRules:
    """Read `{"allow": [...], "deny": [...], "alsoAllow": [...]}`; raises ConfigError."""
    settings = object_at(value, path)
    for key in settings:
        if key not in _RULE_KEYS:
            known = ", ".join(_RULE_KEYS)
            raise MisplacedValueError(
                path,
                f"has the unknown key {shown(key)}; known: {known}",
                place=member_path(path, str(key)),
            )
    return _rules_in(settings, path)


def _rules_in(settings: Mapping[str, object], path: str) -> ToolRules:
    return ToolRules(
        allow=_patterns_in(settings.get("allow"), f"{path}.allow"),
        deny=_patterns_in(settings.get("deny"), f"{path}.deny") or (),
        also_allow=_patterns_in(settings.get("alsoAllow"), f"{path}.alsoAllow") or (),
    )


def _patterns_in(value: object, path: str) -> tuple[str, ...] | None:
    if value is None:
        return None
    if not isinstance(value, (list, tuple)):
        raise ConfigError(path, f"is {shown(value)}; allowed: a list of tool names or patterns")
    patterns: list[str] = []
    for index, item in enumerate(cast("Sequence[object]", value)):
        problem = _problem_with_pattern(item)
        if problem:
            raise ConfigError(f"{path}[{index}]", f"is {shown(item)}; {problem}")
        patterns.append(cast("str", item))
    return tuple(patterns)


def _problem_with_pattern(item: object) -> str:
    """Why the pattern could never match a tool; empty if it could."""
    if not isinstance(item, str) or not item or any(mark.isspace() for mark in item):
        return "allowed: a tool's name, id or owner, without spaces; `*` and `?` are wildcards"
    folded = fold_tool_name(item)
    is_glob = "*" in folded or "?" in folded
    groups = (*SOURCE_GROUPS, *CORE_GROUPS)
    if folded.startswith("group:") and not is_glob and folded not in groups:
        return f"known groups: {', '.join(sorted(groups))}"
    return ""


def fold_tool_name(text: str) -> str:
    """Without case, and with each accent in one form, however it was typed."""
    return (
        text.casefold() if text.isascii() else normalize("NFC", normalize("NFC", text).casefold())
    )


def _refuse_if_misspelt(key: object, path: str) -> None:
    """A misspelt `deny` would permit everything, so similar keys are errors."""
    plain = str(key).replace("_", "").replace("-", "").casefold()
    # Few keys get past this, and `difflib` takes long to import.
    if key in _RULE_KEYS or plain[:1] not in ("a", "d"):
        return
    from difflib import get_close_matches

    near = get_close_matches(plain, [known.casefold() for known in _RULE_KEYS], n=1, cutoff=0.75)
    if near:
        meant = next(known for known in _RULE_KEYS if known.casefold() == near[0])
        raise MisplacedValueError(
            path,
            f"has the unknown key {shown(key)}; did you mean `{meant}`?",
            place=member_path(path, str(key)),
        )
