"""The whole configuration: every section of the document, read and checked together."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from nacre.config.agents import resolve_agents
from nacre.config.codex import resolve_codex
from nacre.config.gateway import (
    TOKEN_VARIABLE,
    resolve_gateway,
    resolve_ray,
    resolve_snapshot_keys,
    resolve_storage,
)
from nacre.config.mcp import resolve_servers
from nacre.config.models import resolve_models
from nacre.config.plugins import resolve_plugins
from nacre.config.references import Resolver, key_path
from nacre.config.validation import validate_document
from nacre.errors import MissingReferenceError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from nacre.config.agents import AgentsConfig
    from nacre.config.code_mode import Protection
    from nacre.config.codex import CodexConfig
    from nacre.config.document import Document, MessagesSection
    from nacre.config.gateway import GatewayConfig, RayConfig, SnapshotKeysConfig, StorageConfig
    from nacre.config.mcp_entry import McpServerConfig
    from nacre.config.models import ModelsConfig
    from nacre.config.plugins import PluginsConfig
    from nacre.config.sections import QueueConfig, VisibleReplies
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
    "sandbox",
    "messages",
    "gateway",
    "storage",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class SystemConfig:
    """Everything that the gateway is built from."""

    document: Mapping[str, object] = field(repr=False)
    """As it was read, for namespaces, which read their own part of it; references stay."""
    models: ModelsConfig
    agents: AgentsConfig
    mcp_servers: tuple[McpServerConfig, ...]
    plugins: PluginsConfig
    codex: CodexConfig
    required_protections: tuple[Protection, ...] | None
    snapshot_keys: SnapshotKeysConfig
    max_suspended_cells: int
    ray: RayConfig | None
    queue: QueueConfig
    visible_replies: VisibleReplies = "automatic"
    gateway: GatewayConfig
    storage: StorageConfig

    @property
    def is_durable(self) -> bool:
        """Whether cells of an agent are stored."""
        return any(agent.tools.code_mode.durable for agent in self.agents.by_id.values())


@dataclass(frozen=True, kw_only=True, slots=True)
class SystemReading:
    """The result of reading a document. With problems, `config` has defaults in their places."""

    config: SystemConfig
    document: Document
    problems: tuple[ConfigError, ...]
    warnings: tuple[str, ...]


def system_config_from(
    document: Mapping[str, object],
    *,
    environment: Mapping[str, str],
    folder: Path,
    may_lack_secrets: bool = False,
) -> SystemConfig:
    """The configuration of a document; raises ConfigError for the first problem.

    Relative paths are relative to `folder`, the directory of the document. Blocks: files are read.
    With `may_lack_secrets`, a missing secret of a model or an MCP server is only a warning: the
    runs that need it fail.
    """
    found = read_system(document, environment=environment, folder=folder)
    lacking = [it for it in found.problems if may_lack_secrets and is_missing_secret(it)]
    for problem in found.problems:
        if problem not in lacking:
            raise problem
    for warning in (*found.warnings, *lacking):
        logger.warning("%s", warning)
    return found.config


def is_missing_secret(problem: ConfigError) -> bool:
    """Whether a command can do without the secret: of a model, an MCP server, or the gateway."""
    if problem.path == TOKEN_VARIABLE:
        return True
    is_missing = isinstance(problem, MissingReferenceError)
    return is_missing and _OF_MODEL_OR_SERVER.fullmatch(problem.path) is not None


def problems_in(
    document: Mapping[str, object], *, environment: Mapping[str, str], folder: Path
) -> list[ConfigError]:
    """All problems of the document."""
    return list(read_system(document, environment=environment, folder=folder).problems)


def read_system(
    document: Mapping[str, object], *, environment: Mapping[str, str], folder: Path
) -> SystemReading:
    """Read the whole document and collect all problems."""
    whole, problems = validate_document(document)
    resolver = Resolver(environment=environment, folder=folder, problems=problems)
    models = resolve_models(whole.models, resolver)
    require = whole.sandbox.require
    plugins = resolve_plugins(whole.plugins, resolver)
    codex = resolve_codex(whole.plugins.entries.codex, plugins, resolver)
    config = SystemConfig(
        document=document,
        models=models,
        agents=resolve_agents(whole.agents, whole.tools, models, codex, resolver),
        mcp_servers=resolve_servers(whole, resolver),
        plugins=plugins,
        codex=codex,
        required_protections=require if require is None else tuple(require),
        snapshot_keys=resolve_snapshot_keys(whole.sandbox.snapshot_keys, resolver),
        max_suspended_cells=whole.sandbox.max_suspended_cells,
        ray=resolve_ray(whole.sandbox, resolver),
        queue=whole.messages.queue,
        visible_replies=_resolve_replies(whole.messages, resolver),
        gateway=resolve_gateway(whole.gateway, resolver),
        storage=resolve_storage(whole.storage, resolver),
    )
    return SystemReading(
        config=config,
        document=whole,
        problems=resolver.problems,
        warnings=tuple(resolver.warnings),
    )


def _resolve_replies(section: MessagesSection, resolver: Resolver) -> VisibleReplies:
    for name, reason in section.unused_fields.items():
        if name in section.model_fields_set:
            resolver.warn(f"`{key_path(section, name, 'messages')}` has no effect: {reason}")
    return section.visible_replies
