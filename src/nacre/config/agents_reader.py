"""Reads `agents`: `defaults`, the agents of `list` by their ids, and those that stand by name."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from nacre.config.agents import AgentConfig, AgentsConfig, AgentSettings, CompactionConfig
from nacre.config.documents import shown
from nacre.config.folders import user_folder
from nacre.config.model_choice import check_model
from nacre.config.models import DEFAULT_MODEL
from nacre.config.section import Found, Section
from nacre.config.section_values import file_path, file_text
from nacre.config.setting_paths import nearest_key
from nacre.config.tools import ToolsConfig, tools_config_from
from nacre.config.tools_section import read_tools
from nacre.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from nacre.config.models import ModelsConfig
    from nacre.config.reading import Reading

DEFAULT_AGENT_ID: Final = "main"

_NOT_AGENTS: Final = ("defaults", "list")
_AGENT_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_IDS: Final = "1 to 64 letters, digits, dots, hyphens and underscores"
_MODELS: Final = '"<provider>/<model>", or an object with `primary` and `fallbacks`'
_MAX_TOKENS: Final = 1_000_000_000


def read_agents(
    top: Section, *, tools: Section, models: ModelsConfig, document: Mapping[str, object]
) -> AgentsConfig:
    """Read `agents`; faults are noted. `tools` goes below the tools of each agent."""
    agents = top.section("agents")
    defaults = agents.section("defaults")
    # By itself as well: a fault that every agent goes over should not wait for one that does not.
    _agent(DEFAULT_AGENT_ID, None, defaults=defaults, tools=tools, models=models)
    listed = agents.listed("list", allowed="a list of agents")
    for item in listed:
        # By themselves as well: without an id, the other settings of one are still settings.
        item.switch("default", False)
        _agent(DEFAULT_AGENT_ID, item, defaults=defaults, tools=tools, models=models)
    entries = _entries(agents, listed)
    by_id = {
        agent_id: replace(
            _agent(agent_id, own, defaults=defaults, tools=tools, models=models),
            tools=_tools_config(document, agent_id, top.reading),
        )
        for agent_id, own in entries.items()
    }
    return AgentsConfig(default_id=_default_id(entries), by_id=by_id)


def _tools_config(document: Mapping[str, object], agent_id: str, reading: Reading) -> ToolsConfig:
    try:
        return tools_config_from(document, agent_id)
    except ConfigError as problem:
        if all(problem.path != noted.path for noted in reading.problems):
            reading.note(problem)
        return ToolsConfig()


def _entries(agents: Section, listed: Sequence[Section]) -> Mapping[str, Section | None]:
    """Each agent's own settings, by its id as it is written first."""
    layers: dict[str, list[Found]] = {}
    written: dict[str, str] = {}
    for item in listed:
        agent_id = _listed_id(item)
        if agent_id.casefold() in written:
            item.refuse("id", f"is {shown(agent_id)}, as another agent has it")
        if agent_id:
            written.setdefault(agent_id.casefold(), agent_id)
            layers.setdefault(agent_id.casefold(), []).append(item.found)
    for name, found in agents.others(_NOT_AGENTS).items():
        if _is_name_of_agent(name, found, agents):
            written.setdefault(name.casefold(), name)
            layers.setdefault(name.casefold(), []).append(found)
    if not layers:
        return {DEFAULT_AGENT_ID: None}
    return {
        written[folded]: Section(agents.reading, found, pattern="agents.list[]")
        for folded, found in layers.items()
    }


def _listed_id(item: Section) -> str:
    if not item.has("id"):
        hint = "what is for all agents goes to `agents.defaults`"
        item.refuse("id", f"is missing; allowed: {_IDS}; {hint}")
    return item.text("id", allowed=_IDS, fits=_AGENT_ID.fullmatch)


def _is_name_of_agent(name: str, found: Found, agents: Section) -> bool:
    near = nearest_key(name, _NOT_AGENTS, least_similarity=0.8)
    if near is not None:
        problem = f"did you mean `agents.{near}`? An agent of this name can stand in `agents.list`"
    elif not _AGENT_ID.fullmatch(name):
        problem = f"is no id of an agent; allowed: {_IDS}"
    else:
        return True
    agents.reading.note(ConfigError(found.path, problem))
    return False


def _default_id(entries: Mapping[str, Section | None]) -> str:
    chosen = [
        (agent_id, own)
        for agent_id, own in entries.items()
        if own is not None and own.switch("default", False)
    ]
    for _, own in chosen[1:]:
        own.refuse("default", f"is true, but {chosen[0][0]} is the default; keep one of the two")
    return chosen[0][0] if chosen else next(iter(entries))


def _agent(
    agent_id: str, own: Section | None, *, defaults: Section, tools: Section, models: ModelsConfig
) -> AgentConfig:
    shared = defaults if own is None else own.over(defaults)
    model, fallbacks = _models(shared, models)
    return AgentConfig(
        id=agent_id,
        name=agent_id if own is None else own.text("name", agent_id),
        model=model,
        fallback_models=fallbacks,
        workspace=_workspace(shared),
        instructions=_instructions(shared),
        max_steps=shared.whole("maxSteps", 40, least=1, most=10_000),
        max_tokens=shared.whole("maxTokens", 1_000_000, least=1_000, most=_MAX_TOKENS),
        timeout_seconds=shared.number("timeoutSeconds", 3600.0, least=1, most=604_800),
        settings=AgentSettings(
            temperature=shared.number("temperature", None, least=0, most=2),
            max_output_tokens=shared.whole("maxOutputTokens", None, least=1, most=_MAX_TOKENS),
            is_parallel=shared.switch("parallelToolCalls", True),
        ),
        compaction=_compaction(shared.section("compaction")),
        core_tools=read_tools(tools if own is None else own.section("tools").over(tools)),
    )


def _models(shared: Section, models: ModelsConfig) -> tuple[str, tuple[str, ...]]:
    reading = shared.reading
    found = shared.find("model", default=DEFAULT_MODEL, allowed=_MODELS)
    if found is None:
        return DEFAULT_MODEL, ()
    if isinstance(found.value, str):
        primary, fallbacks, path = found.value, (), found.path
    else:
        choice = Section(reading, [found], pattern=f"{shared.pattern}.model")
        primary = choice.text("primary", DEFAULT_MODEL)
        fallbacks, path = choice.texts("fallbacks"), choice.path_of("primary")
        for index, text in enumerate(fallbacks):
            check_model(text, f"{choice.path_of('fallbacks')}[{index}]", models, reading)
    check_model(primary, path, models, reading)
    return primary, fallbacks


def _workspace(shared: Section) -> Path:
    default = user_folder("data", shared.reading.environment) / "workspace"
    return file_path(shared, "workspace", default=default) or default


def _instructions(shared: Section) -> str:
    written = shared.text("instructions", fits=lambda _: True)
    from_file = file_text(shared, "instructionsFile")
    used = shared.used_key("instructions", "instructionsFile")
    return from_file if used == "instructionsFile" else written


def _compaction(compaction: Section) -> CompactionConfig:
    default = CompactionConfig()
    return CompactionConfig(
        is_enabled=compaction.switch("enabled", default.is_enabled),
        threshold_share=compaction.number(
            "thresholdShare", default.threshold_share, least=0.1, most=0.95
        ),
        keep_turns=compaction.whole("keepTurns", default.keep_turns, least=0, most=1_000),
    )
