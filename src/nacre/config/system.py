"""The whole configuration: every section of the document, read and checked together."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from nacre.config.agents_reader import read_agents
from nacre.config.gateway import read_gateway
from nacre.config.mcp import read_mcp_servers
from nacre.config.models import read_models
from nacre.config.plugins import read_plugins
from nacre.config.queue import read_queue
from nacre.config.reading import Reading
from nacre.config.section import Found, Section
from nacre.config.storage import read_storage
from nacre.errors import MissingReferenceError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from nacre.config.agents import AgentsConfig
    from nacre.config.gateway import GatewayConfig
    from nacre.config.mcp_entry import McpServerConfig
    from nacre.config.models import ModelsConfig
    from nacre.config.plugins import PluginsConfig
    from nacre.config.queue import QueueConfig
    from nacre.config.reading import Setting
    from nacre.config.storage import StorageConfig
    from nacre.errors import ConfigError

logger = logging.getLogger(__name__)

_OF_MODEL_OR_SERVER = re.compile(
    r"(models\.providers|mcp\.servers|mcpServers)[.\[].+"
    r"|agents[.\[].+\.model(\.primary|\.fallbacks\[\d+\])?"
)

SECTIONS: Final = (
    "models",
    "agents",
    "tools",
    "mcp",
    "plugins",
    "messages",
    "gateway",
    "storage",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class SystemConfig:
    """Everything that the gateway is built from."""

    document: Mapping[str, object] = field(repr=False)
    """As it was read: references are still references. `tools` and the agents' `tools` are read
    from it where they are used."""
    models: ModelsConfig
    agents: AgentsConfig
    mcp_servers: tuple[McpServerConfig, ...]
    plugins: PluginsConfig
    queue: QueueConfig
    gateway: GatewayConfig
    storage: StorageConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class SystemReading:
    """A document as it was read: with problems, `config` has defaults in the place of faults."""

    config: SystemConfig
    problems: tuple[ConfigError, ...]
    warnings: tuple[str, ...]
    settings: Mapping[str, Setting]
    """Every setting that such a document may have, by its path."""
    known_paths: frozenset[str]
    """Every setting and section of this document, whether it stands there or could."""


def system_config_from(
    document: Mapping[str, object],
    *,
    environment: Mapping[str, str],
    folder: Path,
    may_lack_secrets: bool = False,
) -> SystemConfig:
    """The configuration that the document holds; raises ConfigError for the first fault.

    Relative paths are taken from `folder`, where the document is. Blocks: files are read. With
    `may_lack_secrets` it is no fault that a model or an MCP server cannot be asked: runs are told.
    """
    found = read_system(document, environment=environment, folder=folder)
    lacking = [it for it in found.problems if may_lack_secrets and is_told_to_runs(it)]
    for problem in found.problems:
        if problem not in lacking:
            raise problem
    for warning in (*found.warnings, *lacking):
        logger.warning("%s", warning)
    return found.config


def is_told_to_runs(problem: ConfigError) -> bool:
    """Whether all that it keeps from working is a model or an MCP server, for want of a secret."""
    is_missing = isinstance(problem, MissingReferenceError)
    return is_missing and _OF_MODEL_OR_SERVER.fullmatch(problem.path) is not None


def problems_in(
    document: Mapping[str, object], *, environment: Mapping[str, str], folder: Path
) -> list[ConfigError]:
    """All faults of the document."""
    return list(read_system(document, environment=environment, folder=folder).problems)


def read_system(
    document: Mapping[str, object], *, environment: Mapping[str, str], folder: Path
) -> SystemReading:
    """Read all of the document, whatever is wrong with it."""
    reading = Reading(environment=environment, folder=folder)
    top = Section(reading, [Found(value=document, path="")], pattern="")
    top.text("$schema", allowed="text, for editors")
    models = read_models(top.section("models"))
    config = SystemConfig(
        document=document,
        models=models,
        agents=read_agents(top, tools=top.section("tools"), models=models, document=document),
        mcp_servers=read_mcp_servers(top),
        plugins=read_plugins(top.section("plugins")),
        queue=read_queue(top.section("messages")),
        gateway=read_gateway(top.section("gateway")),
        storage=read_storage(top.section("storage")),
    )
    reading.note_unknown_keys()
    return SystemReading(
        config=config,
        problems=tuple(reading.problems),
        warnings=tuple(reading.warnings),
        settings=reading.settings,
        known_paths=reading.known_paths,
    )
