"""The `tools` settings of one agent: code mode, Tool Search and the rules for its tools."""

from __future__ import annotations

import logging
import re
from dataclasses import field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast, get_args
from unicodedata import normalize

from nacre.config.code_mode import LIMITS as CODE_MODE_LIMITS
from nacre.config.code_mode import (
    CodeModeConfig,
    NumberLimit,
    clamp_fields,
    read_numbers,
    read_settings,
    read_switch,
    refuse_value,
    required_protections_from,
)
from nacre.config.setting_paths import format_value, member_path, object_at
from nacre.errors import ConfigError
from nacre.lazy_dataclasses import dataclass
from nacre.lazy_exports import lazy_pattern

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from nacre.config.code_mode import Protection
    from nacre.config.sections import Section
    from nacre.config.tool_sections import RulesSection, ToolsSection
    from nacre.json_types import JsonObject
    from nacre.run_context import RunContext

logger = logging.getLogger(__name__)

ToolSearchMode = Literal["code", "tools"]

_TOOL_SEARCH_MODES: Final[tuple[ToolSearchMode, ...]] = get_args(ToolSearchMode)

TOOL_SEARCH_LIMITS: Final[Mapping[str, NumberLimit]] = MappingProxyType(
    {
        "code_timeout_ms": NumberLimit(
            key="codeTimeoutMs",
            default=10_000,
            least=1_000,
            most=60_000,
            description="Time limit of a program.",
        ),
        "search_default_limit": NumberLimit(
            key="searchDefaultLimit",
            default=8,
            least=1,
            most=50,
            description="Results of a search that gives no limit; at most `maxSearchLimit`.",
        ),
        "max_search_limit": NumberLimit(
            key="maxSearchLimit",
            default=20,
            least=1,
            most=50,
            description="Maximum number of results of a search.",
        ),
    }
)
"""The numeric fields of `ToolSearchConfig` by name: the only place where these numbers are."""

TOOL_SEARCH_KEYS: Final = ("enabled", "mode", *(limit.key for limit in TOOL_SEARCH_LIMITS.values()))
"""Every key of the object. An object turns Tool Search on, unless it has `enabled: false`."""

_TOOLS = lazy_pattern(
    r"(agents[.\[].+\.)?tools(\.(allow|deny|alsoAllow|sandbox|codeMode|toolSearch)\b.*)?", re.DOTALL
)
_AGENTS = lazy_pattern(r"agents(\.list(\[\d+\])?|[.\[][^.]+)?", re.DOTALL)

# A mapping with one of these keys is a config document.
_DOCUMENT_KEYS: Final = frozenset(
    ("tools", "agents", "models", "mcp", "plugins", "sandbox", "messages", "gateway", "storage")
)

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


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolSearchConfig:
    """The settings under `tools.toolSearch`, complete and within their limits.

    A number out of range is clamped; raises ConfigError, by field, for other invalid values.
    """

    enabled: bool = False
    mode: ToolSearchMode = "code"
    code_timeout_ms: int = TOOL_SEARCH_LIMITS["code_timeout_ms"].default
    search_default_limit: int = TOOL_SEARCH_LIMITS["search_default_limit"].default
    max_search_limit: int = TOOL_SEARCH_LIMITS["max_search_limit"].default

    def __post_init__(self) -> None:
        read_switch(self.enabled, "enabled")
        _read_mode(self.mode, "mode")
        clamp_fields(self, TOOL_SEARCH_LIMITS)
        default_limit = min(self.search_default_limit, self.max_search_limit)
        # Frozen, so this is how.
        object.__setattr__(self, "search_default_limit", default_limit)


def tool_search_config_from(value: object, *, path: str = "tools.toolSearch") -> ToolSearchConfig:
    """Read the value at `path` of the config file: None, a boolean or an object.

    A number out of range is clamped; raises ConfigError for a wrong type or an unknown key.
    """
    settings = read_settings(value, keys=TOOL_SEARCH_KEYS, path=path)
    if isinstance(settings, bool):
        return ToolSearchConfig(enabled=settings)
    numbers = read_numbers(settings, TOOL_SEARCH_LIMITS, path=path)
    return ToolSearchConfig(
        enabled=read_switch(settings.get("enabled", True), f"{path}.enabled"),
        mode=_read_mode(settings.get("mode", "code"), f"{path}.mode"),
        **numbers,
    )


def _read_mode(value: object, path: str) -> ToolSearchMode:
    if value not in _TOOL_SEARCH_MODES:
        raise refuse_value(path, value, '"code" and "tools"')
    return value


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


@dataclass(frozen=True, kw_only=True, slots=True)
class RunConfig:
    """The settings of a run: those of a document by agent, or the same for every agent."""

    document: Mapping[str, object] = field(default_factory=dict[str, object])
    tools: ToolsConfig | None = None
    """Used instead of the document's, for every agent."""

    def tools_for(self, context: RunContext) -> ToolsConfig:
        """Raises ConfigError for a document that is not valid."""
        return self.tools or tools_config_from(self.document, context.agent_id)

    def required_protections(self) -> tuple[Protection, ...] | None:
        """Protections without which no program runs; None for the default."""
        return required_protections_from(self.document)

    def to_json(self) -> JsonObject:
        """The document, for namespaces that read their own part of it."""
        return cast("JsonObject", dict(self.document))


def is_document(config: Mapping[str, object]) -> bool:
    """Whether a mapping is a config document. Otherwise it has the settings of one surface."""
    return not _DOCUMENT_KEYS.isdisjoint(config)


def tools_config_from(document: Mapping[str, object], agent_id: str) -> ToolsConfig:
    """The settings of one agent in a document, of which only tools are checked.

    An agent is an entry of `agents.list` by its `id`, or a member of `agents` by its name. Raises
    ConfigError for the first problem, and logs a warning for each number that is clamped.
    """
    # Only whole documents need pydantic.
    from nacre.config.validation import validate_document

    whole, problems = validate_document(
        {key: document[key] for key in ("tools", "agents") if document.get(key) is not None}
    )
    for problem in problems:
        if _concerns_tools(problem):
            raise problem
    wanted, warnings = agent_id.casefold(), list[str]()
    layers = [
        ("tools", whole.tools),
        *(
            (f"agents.list[{index}].tools", agent.tools)
            for index, agent in enumerate(whole.agents.listed)
            if agent.id.casefold() == wanted
        ),
        *(
            (f"{member_path('agents', name)}.tools", agent.tools)
            for name, agent in whole.agents.named.items()
            if name.casefold() == wanted
        ),
    ]
    config = resolve_tools(layers, warnings.append)
    for warning in warnings:
        logger.warning("%s", warning)
    return config


def _concerns_tools(problem: ConfigError) -> bool:
    """Whether the problem is in rules or settings of tools, or in an agent that has them."""
    is_misplaced = getattr(problem, "place", "") == problem.path
    return bool(
        _TOOLS.fullmatch(problem.path) or (is_misplaced and _AGENTS.fullmatch(problem.path))
    )


def resolve_tools(
    layers: Sequence[tuple[str, ToolsSection]], warn: Callable[[str], None]
) -> ToolsConfig:
    """Merge the `tools` sections of an agent, the lowest first, given with their paths.

    `warn` is called for each number that is not used as it is written.
    """
    code_mode = [
        (f"{path}.codeMode", layer.code_mode) for path, layer in layers if _has(layer, "code_mode")
    ]
    tool_search = [
        (f"{path}.toolSearch", layer.tool_search)
        for path, layer in layers
        if _has(layer, "tool_search")
    ]
    merged: dict[str, Any] = {}
    for _, settings in code_mode:
        merged.update(_present_settings(settings))
    merged_search: dict[str, Any] = {}
    for _, settings in tool_search:
        merged_search.update(_present_settings(settings))
    config = ToolsConfig(
        code_mode=CodeModeConfig(**merged),
        tool_search=ToolSearchConfig(**merged_search),
        rules=tuple((path, _rules(layer)) for path, layer in layers),
        sandbox_rules=tuple(
            (f"{path}.sandbox.tools", _rules(layer.sandbox.tools)) for path, layer in layers
        ),
    )
    _warn_of_clamps(code_mode, CODE_MODE_LIMITS, config.code_mode.max_search_limit, warn)
    _warn_of_clamps(tool_search, TOOL_SEARCH_LIMITS, config.tool_search.max_search_limit, warn)
    return config


def _has(section: Section, name: str) -> bool:
    return name in section.model_fields_set


def _present_settings(section: Section) -> dict[str, Any]:
    """The settings that the document has."""
    return {name: getattr(section, name) for name in section.model_fields_set}


def _rules(section: RulesSection) -> ToolRules:
    return ToolRules(
        allow=None if section.allow is None else tuple(section.allow),
        deny=tuple(section.deny),
        also_allow=tuple(section.also_allow),
    )


def _warn_of_clamps(
    layers: Sequence[tuple[str, Section]],
    limits: Mapping[str, NumberLimit],
    max_search_limit: int,
    warn: Callable[[str], None],
) -> None:
    for path, section in layers:
        for name, number in _present_settings(section).items():
            if name not in limits:
                continue
            limit, reason = limits[name], ""
            used = limit.clamp(number)
            if name == "search_default_limit" and used > max_search_limit:
                used, reason = max_search_limit, " (`maxSearchLimit`)"
            if used != number:
                warn(f"`{path}.{limit.key}` is {format_value(number)}; {used} is used{reason}")


def problem_with_pattern(pattern: str) -> str:
    """Why the pattern could never match a tool; empty if it could."""
    if not pattern or any(mark.isspace() for mark in pattern):
        return "allowed: a tool's name, id or owner, without spaces; `*` and `?` are wildcards"
    folded = fold_tool_name(pattern)
    is_glob = "*" in folded or "?" in folded
    groups = (*SOURCE_GROUPS, *CORE_GROUPS)
    if folded.startswith("group:") and not is_glob and folded not in groups:
        return f"known groups: {', '.join(sorted(groups))}"
    return ""


def fold_tool_name(text: str) -> str:
    """Fold the case and the Unicode form of a name, for comparison."""
    return (
        text.casefold() if text.isascii() else normalize("NFC", normalize("NFC", text).casefold())
    )


def refuse_unopened_servers(document: Mapping[str, object]) -> None:
    """Raise ConfigError if a document that is given to the library names MCP servers."""
    in_mcp = object_at(document.get("mcp"), "mcp").get("servers")
    for path, servers in (("mcp.servers", in_mcp), ("mcpServers", document.get("mcpServers"))):
        if servers:
            raise ConfigError(
                path,
                "names MCP servers, and the library opens none by itself; open them with "
                "`McpConnections` and pass `mcp=connections.servers()`, or `mcp=()` to do without",
            )
