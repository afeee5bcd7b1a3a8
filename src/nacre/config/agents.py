"""Agents: the model, limits and tools of each, with the shared settings below its own."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, Self, TypeVar

from nacre.config.folders import user_folder
from nacre.config.heartbeat import HeartbeatConfig, resolve_heartbeat
from nacre.config.models import DEFAULT_MODEL, check_model
from nacre.config.references import key_path
from nacre.config.sections import CompactionConfig, CoreToolsConfig, Section
from nacre.config.setting_paths import format_value, member_path, nearest_key
from nacre.config.tools import ToolRules, ToolsConfig, resolve_tools
from nacre.errors import ConfigError, SessionError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nacre.config.agent_sections import (
        AgentDefaults,
        AgentsSection,
        ModelChoice,
        NamedAgent,
    )
    from nacre.config.codex import CodexConfig, RuntimeId, ThinkingLevel
    from nacre.config.models import ModelsConfig
    from nacre.config.references import Resolver
    from nacre.config.tool_sections import ToolsSection

SandboxMode = Literal["off", "non-main", "all"]
ContextInjection = Literal["always", "continuation-skip", "never"]

DEFAULT_AGENT_ID: Final = "main"
_MAIN_SESSION_KEY: Final = "main"

_T = TypeVar("_T", bound=Section)
_NOT_AGENTS: Final = ("defaults", "list")
_AGENT_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_IDS: Final = "1 to 64 letters, digits, dots, hyphens and underscores"


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentSettings:
    """The settings of model calls; None for the provider's default."""

    temperature: float | None = None
    max_output_tokens: int | None = None
    is_parallel: bool = True
    """Whether the model may make several calls at once, which then run concurrently."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkspaceFilesConfig:
    """How the files of the workspace that describe the agent are given to its model."""

    is_enabled: bool = True
    max_file_characters: int = 12_000
    max_total_characters: int = 60_000


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentConfig:
    """One agent, complete: its own settings over the defaults."""

    id: str
    name: str
    model: str
    """`<provider>/<model>`."""
    fallback_models: tuple[str, ...] = ()
    workspace: Path
    """It may not exist yet."""
    workspace_files: WorkspaceFilesConfig = field(default_factory=WorkspaceFilesConfig)
    instructions: str = ""
    max_steps: int = 40
    max_tokens: int = 1_000_000
    """Of one run, input and output."""
    has_own_max_steps: bool = False
    """Whether `maxSteps` is written; only then it holds in Codex, which has its own model loop."""
    has_own_max_tokens: bool = False
    timeout_seconds: float = 3600.0
    settings: AgentSettings = field(default_factory=AgentSettings)
    compaction: CompactionConfig = field(default_factory=CompactionConfig)
    core_tools: CoreToolsConfig = field(default_factory=CoreToolsConfig)
    tools: ToolsConfig = field(default_factory=ToolsConfig)
    """Code mode, Tool Search and policy."""
    sandbox_mode: SandboxMode = "off"
    heartbeat: HeartbeatConfig | None = None
    """None if the agent is never woken."""
    runtimes: Mapping[str, RuntimeId] = field(default_factory=dict[str, "RuntimeId"])
    """The harness by `<provider>/<model>`, or `<provider>/*`."""
    thinking: ThinkingLevel | None = None
    """The reasoning effort of turns that run in Codex; None for the model's default."""

    def is_sandboxed(self, session_key: str = _MAIN_SESSION_KEY) -> bool:
        """Whether `tools.sandbox.tools` applies to the session."""
        match self.sandbox_mode:
            case "off":
                return False
            case "non-main":
                return session_key != _MAIN_SESSION_KEY
            case "all":
                return True

    @classmethod
    def with_defaults(cls, agent_id: str) -> Self:
        """The agent of an empty document."""
        return cls(id=agent_id, name=agent_id, model=DEFAULT_MODEL, workspace=Path())


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentsConfig:
    """All agents; there is at least one."""

    default_id: str
    by_id: Mapping[str, AgentConfig]

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(self.by_id)

    def agent(self, agent_id: str) -> AgentConfig:
        """Case does not matter; raises SessionError for an id that no agent has."""
        wanted = agent_id.casefold()
        for found in self.by_id.values():
            if found.id.casefold() == wanted:
                return found
        known = ", ".join(self.ids)
        raise SessionError(f"there is no agent {agent_id!r}; there are: {known}", code="not_found")


def resolve_agents(
    section: AgentsSection,
    tools: ToolsSection,
    models: ModelsConfig,
    codex: CodexConfig,
    resolver: Resolver,
) -> AgentsConfig:
    """Resolve `agents`, with `tools` below the tools of each agent; problems are noted."""
    resolve = _AgentResolver(section.defaults, tools, models, codex, resolver)
    # On its own as well: a problem in the defaults counts even if every agent overrides it.
    shared = resolve.agent(DEFAULT_AGENT_ID, [])
    entries = _collect_entries(section, resolver)
    by_id = {agent_id: resolve.agent(agent_id, layers) for agent_id, layers in entries.items()}
    by_id = by_id or {shared.id: shared}
    default_id = _choose_default(entries, resolver)
    if "heartbeat" in section.defaults.model_fields_set and not _has_own_heartbeats(entries):
        # Settings of all agents wake the default agent alone, as in OpenClaw.
        beat = resolve_heartbeat(section.defaults.heartbeat, "agents.defaults.heartbeat", resolver)
        by_id[default_id] = replace(by_id[default_id], heartbeat=beat)
    config = AgentsConfig(default_id=default_id, by_id=by_id)
    _warn_of_modes(config, entries, tools, resolver)
    _warn_of_sandbox(config, resolver)
    return config


_Entries = dict[str, "list[tuple[str, NamedAgent]]"]
"""By id: an agent may be in the list and a member of the section at once."""


def _collect_entries(section: AgentsSection, resolver: Resolver) -> _Entries:
    entries: _Entries = {}
    ids: dict[str, str] = {}
    for index, agent in enumerate(section.listed):
        path = f"agents.list[{index}]"
        if not agent.id:
            _note_missing_id(path, resolver)
        elif agent.id.casefold() in ids:
            problem = f"is {format_value(agent.id)}, as another agent has it"
            resolver.note(ConfigError(f"{path}.id", problem))
        else:
            ids[agent.id.casefold()] = agent.id
            entries[agent.id] = [(path, agent)]
    for name, agent in section.named.items():
        path = member_path("agents", name)
        if _is_agent_name(name, path, resolver):
            agent_id = ids.setdefault(name.casefold(), name)
            entries.setdefault(agent_id, []).append((path, agent))
    return entries


def _note_missing_id(path: str, resolver: Resolver) -> None:
    if not resolver.is_replaced(path) and not resolver.has_problem_at(f"{path}.id"):
        problem = f"is missing; allowed: {_IDS}; settings of all agents are in `agents.defaults`"
        resolver.note(ConfigError(f"{path}.id", problem))


def _is_agent_name(name: str, path: str, resolver: Resolver) -> bool:
    near = nearest_key(name, _NOT_AGENTS, least_similarity=0.8)
    if near is not None:
        problem = f"did you mean `agents.{near}`? An agent of this name can be in `agents.list`"
    elif not _AGENT_ID.fullmatch(name):
        problem = f"is not an agent id; allowed: {_IDS}"
    else:
        return True
    resolver.note(ConfigError(path, problem))
    return False


def _choose_default(entries: _Entries, resolver: Resolver) -> str:
    chosen = [
        (agent_id, path)
        for agent_id, layers in entries.items()
        for path, agent in layers[-1:]
        if agent.default
    ]
    for _, path in chosen[1:]:
        problem = f"is true, but {chosen[0][0]} is the default; keep one of the two"
        resolver.note(ConfigError(f"{path}.default", problem))
    return chosen[0][0] if chosen else next(iter(entries), DEFAULT_AGENT_ID)


def _has_own_heartbeats(entries: _Entries) -> bool:
    return any(
        "heartbeat" in layer.model_fields_set for layers in entries.values() for _, layer in layers
    )


def _warn_of_modes(
    config: AgentsConfig, entries: _Entries, tools: ToolsSection, resolver: Resolver
) -> None:
    """Warn of settings of code mode and Tool Search that have no effect."""
    is_used: dict[str, bool] = {}
    for agent in config.by_id.values():
        own = [(f"{path}.tools", layer.tools) for path, layer in entries.get(agent.id, ())]
        for path, layer in (("tools", tools), *own):
            given = layer.code_mode.model_fields_set
            if "code_mode" in layer.model_fields_set and given and "enabled" not in given:
                # Shared settings are used if one of the agents uses them.
                place = f"{path}.codeMode"
                is_used[place] = is_used.get(place, False) or agent.tools.code_mode.enabled
        if agent.tools.code_mode.enabled and agent.tools.tool_search.enabled:
            resolver.warn(
                f"`tools.toolSearch` has no effect for the agent {agent.id}: "
                "`tools.codeMode` is on as well, and takes precedence"
            )
    for place, has_effect in is_used.items():
        if not has_effect:
            resolver.warn(f"`{place}` has no effect: code mode needs `enabled: true` in it")


def _warn_of_sandbox(config: AgentsConfig, resolver: Resolver) -> None:
    """Warn of rules for a sandbox that no agent uses, and of a sandbox that changes nothing."""
    is_used: dict[str, bool] = {}
    for agent in config.by_id.values():
        rules = [path for path, rules in agent.tools.sandbox_rules if rules != ToolRules()]
        for path in rules:
            is_used[path] = is_used.get(path, False) or agent.sandbox_mode != "off"
        if agent.sandbox_mode != "off" and not rules:
            resolver.warn(
                f"`sandbox.mode` of the agent {agent.id} has no effect: it only applies the rules "
                "of `tools.sandbox.tools`, and there are none; tools run on this machine"
            )
    for path, has_effect in is_used.items():
        if not has_effect:
            resolver.warn(
                f"`{path}` has no effect: no agent that it applies to is sandboxed; set "
                '`agents.defaults.sandbox.mode` to "all" or "non-main"'
            )


class _AgentResolver:
    def __init__(
        self,
        defaults: AgentDefaults,
        tools: ToolsSection,
        models: ModelsConfig,
        codex: CodexConfig,
        resolver: Resolver,
    ) -> None:
        self._defaults = defaults
        self._tools = tools
        self._models = models
        self._codex = codex
        self._resolver = resolver

    def agent(self, agent_id: str, own: Sequence[tuple[str, NamedAgent]]) -> AgentConfig:
        """The settings of an agent; later ones of its own go over earlier ones."""
        layers: list[tuple[str, AgentDefaults]] = [("agents.defaults", self._defaults), *own]
        merged, tools = self._defaults, self._tools
        for _, layer in own:
            merged = overlay(merged, layer)
            tools = overlay(tools, layer.tools)
        runtimes: dict[str, RuntimeId] = {
            name: use.agent_runtime.id
            for _, layer in layers
            for name, use in layer.models.items()
            if use.agent_runtime.id is not None
        }
        model = self._path_of("model", layers), merged.model
        written = {name for _, layer in layers for name in layer.model_fields_set}
        return AgentConfig(
            id=agent_id,
            name=next((layer.name for _, layer in reversed(own) if layer.name), agent_id),
            model=self._check_models(*model, runtimes),
            fallback_models=tuple(merged.model.fallbacks),
            workspace=self._resolve_workspace(merged.workspace, layers),
            workspace_files=self._resolve_files(merged, layers),
            instructions=self._resolve_instructions(layers),
            max_steps=merged.max_steps,
            max_tokens=merged.max_tokens,
            has_own_max_steps="max_steps" in written,
            has_own_max_tokens="max_tokens" in written,
            timeout_seconds=merged.timeout_seconds,
            settings=AgentSettings(
                temperature=merged.temperature,
                max_output_tokens=merged.max_output_tokens,
                is_parallel=merged.parallel_tool_calls,
            ),
            compaction=merged.compaction,
            core_tools=CoreToolsConfig(fs=tools.fs, exec=tools.exec, web_fetch=tools.web.fetch),
            tools=resolve_tools(
                [("tools", self._tools), *((f"{path}.tools", layer.tools) for path, layer in own)],
                self._resolver.warn,
            ),
            sandbox_mode=merged.sandbox.mode,
            heartbeat=self._resolve_heartbeat(merged, own),
            runtimes=runtimes,
            thinking=merged.thinking_default,
        )

    def _resolve_heartbeat(
        self, merged: AgentDefaults, own: Sequence[tuple[str, NamedAgent]]
    ) -> HeartbeatConfig | None:
        """The heartbeat of an agent that has settings of its own for it."""
        paths = [path for path, layer in own if "heartbeat" in layer.model_fields_set]
        if not paths:
            return None
        return resolve_heartbeat(merged.heartbeat, f"{paths[-1]}.heartbeat", self._resolver)

    def _path_of(self, name: str, layers: Sequence[tuple[str, AgentDefaults]]) -> str:
        """The path of a setting: of the highest layer that has it."""
        for path, layer in reversed(layers):
            if name in layer.model_fields_set:
                return key_path(layer, name, path)
        return key_path(self._defaults, name, "agents.defaults")

    def _check_models(
        self, path: str, choice: ModelChoice, runtimes: Mapping[str, RuntimeId]
    ) -> str:
        primary = f"{path}.primary" if choice.is_object else path
        fallbacks = [(it, f"{path}.fallbacks[{at}]") for at, it in enumerate(choice.fallbacks)]
        first = _choose_by_runtimes(choice.primary, runtimes, self._models, self._codex)
        if first.id == "codex" and fallbacks:
            self._resolver.warn(
                f"`{path}.fallbacks` has no effect while {choice.primary} runs in Codex: a turn "
                "that failed there is never repeated, because it may have had effects"
            )
        for model, place in ((choice.primary, primary), *fallbacks):
            runtime = _choose_by_runtimes(model, runtimes, self._models, self._codex)
            # Codex may have a login of its own.
            needs_key = runtime.id != "codex"
            check_model(model, place, self._models, self._resolver, needs_key=needs_key)
        return choice.primary

    def _resolve_workspace(self, text: str, layers: Sequence[tuple[str, AgentDefaults]]) -> Path:
        path = self._resolver.path(text, self._path_of("workspace", layers))
        return path or default_workspace(self._resolver.environment)

    def _resolve_files(
        self, merged: AgentDefaults, layers: Sequence[tuple[str, AgentDefaults]]
    ) -> WorkspaceFilesConfig:
        if merged.context_injection == "continuation-skip":
            path = self._path_of("context_injection", layers)
            self._resolver.warn(f'`{path}` is "continuation-skip", which works like "always"')
        return WorkspaceFilesConfig(
            is_enabled=merged.context_injection != "never",
            max_file_characters=merged.bootstrap_max_chars,
            max_total_characters=merged.bootstrap_total_max_chars,
        )

    def _resolve_instructions(self, layers: Sequence[tuple[str, AgentDefaults]]) -> str:
        for path, layer in reversed(layers):
            used = self._resolver.choose(layer, ("instructions", "instructions_file"), path)
            if used == "instructions":
                return layer.instructions
            if used is not None:
                return self._resolver.read_file(
                    layer.instructions_file, key_path(layer, used, path)
                )
        return ""


def default_workspace(environment: Mapping[str, str]) -> Path:
    return user_folder("data", environment) / "workspace"


def overlay(lower: _T, upper: Section) -> _T:
    """The lower section with the settings of the upper one over it, key by key.

    Sections are merged, but for a model, which is replaced with its fallbacks.
    """
    changes: dict[str, object] = {}
    for name in upper.model_fields_set & set(type(lower).model_fields):
        value, below = getattr(upper, name), getattr(lower, name)
        is_merged = isinstance(value, Section) and name != "model"
        changes[name] = overlay(below, value) if is_merged else value
    return lower.model_copy(update=changes)


@dataclass(frozen=True, kw_only=True, slots=True)
class RuntimeChoice:
    """The harness for a model, and the setting that says so."""

    id: Literal["codex", "openclaw"]
    place: str = ""
    """The path of the setting; empty if `auto` has decided."""


def choose_runtime(
    model: str, agent: AgentConfig, models: ModelsConfig, codex: CodexConfig
) -> RuntimeChoice:
    """The harness for `<provider>/<model>`: as its entry says, then its provider's, then `auto`.

    `auto` chooses Codex if its entry is enabled and the model is of OpenAI's own API: another
    address or other headers would be lost.
    """
    return _choose_by_runtimes(model, agent.runtimes, models, codex)


def _choose_by_runtimes(
    model: str, runtimes: Mapping[str, RuntimeId], models: ModelsConfig, codex: CodexConfig
) -> RuntimeChoice:
    """The same for the `runtimes` of an agent."""
    name, _, model_id = model.partition("/")
    provider = models.providers.get(name)
    wanted: list[tuple[str, RuntimeId | None]] = [
        (f"agents.*.models[{format_value(key)}]", runtimes[key])
        for key in (model, f"{name}/*")
        if key in runtimes
    ]
    if provider is not None:
        place = f"models.providers.{name}"
        entry = provider.models.get(model_id)
        wanted.append((f"{place}.models[]", None if entry is None else entry.runtime))
        wanted.append((place, provider.runtime))
    for place, runtime in wanted:
        if runtime == "codex" or runtime == "openclaw":
            return RuntimeChoice(id=runtime, place=f"{place}.agentRuntime.id")
        if runtime == "auto":
            break
    is_preferred = codex.is_enabled and not codex.refusal
    if is_preferred and provider is not None and provider.is_official_openai:
        return RuntimeChoice(id="codex")
    return RuntimeChoice(id="openclaw")
