"""Reads the whole configuration, for commands that run agents or read their data."""

from __future__ import annotations

import logging
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from nacre.cli.output import UsageError
from nacre.config import (
    DEFAULT_DOCUMENT,
    find_config_file,
    read_config_file,
    required_protections_from,
)
from nacre.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nacre.config import AgentConfig, ConfigFile, Protection, SystemConfig

logger = logging.getLogger(__name__)

AgentSurface: TypeAlias = Literal["direct", "tool_search", "code_mode", "codex"]
"""How an agent offers its tools to the model; Codex has surfaces of its own."""


def read_agent_config(named: str | None) -> tuple[ConfigFile, SystemConfig]:
    """Read the configuration for the gateway, which needs every secret. Raises UsageError."""
    file, config, _ = _read(named, may_lack_secrets=False)
    return file, _or_default(file, config)


def read_run_config(named: str | None) -> tuple[SystemConfig, tuple[ConfigError, ...]]:
    """Read the configuration for one agent. Also returns missing secrets, which the agent may not
    need. Raises UsageError."""
    file, config, missing = _read(named, may_lack_secrets=True)
    return _or_default(file, config), missing


def read_system_config(named: str | None) -> tuple[ConfigFile, SystemConfig]:
    """Find, read and check the configuration. Raises UsageError with all problems.

    Secrets of models and MCP servers may be missing, because the command does not use them.
    """
    file, config, _ = _read(named, may_lack_secrets=True)
    return file, config


def read_required_protections() -> tuple[Protection, ...] | None:
    """Read `sandbox.require` alone, for commands that need no other setting. Raises UsageError."""
    file = find_config_file(None, environment=os.environ)
    try:
        return required_protections_from(read_config_file(file))
    except ConfigError as error:
        raise UsageError(str(error)) from None


def _or_default(file: ConfigFile, config: SystemConfig) -> SystemConfig:
    """The default document has code mode, and a model that needs no key."""
    if config.document:
        return config
    from nacre.config import system_config_from

    folder = file.path.absolute().parent
    return system_config_from(DEFAULT_DOCUMENT, environment=os.environ, folder=folder)


def _read(
    named: str | None, *, may_lack_secrets: bool
) -> tuple[ConfigFile, SystemConfig, tuple[ConfigError, ...]]:
    # Slow to import, and not needed by every command.
    from nacre.config import is_missing_secret, read_system

    file = find_config_file(Path(named) if named else None, environment=os.environ)
    try:
        document = read_config_file(file)
    except ConfigError as error:
        raise UsageError(str(error)) from None
    found = read_system(document, environment=os.environ, folder=file.path.absolute().parent)
    missing = tuple(it for it in found.problems if may_lack_secrets and is_missing_secret(it))
    faults = [it for it in found.problems if it not in missing]
    if faults:
        raise UsageError(_format_problems(faults, file.path))
    for warning in found.warnings:
        logger.warning("%s", warning)
    return file, found.config, missing


def _format_problems(faults: Sequence[ConfigError], file: Path) -> str:
    """One problem on the same line, several on a line each."""
    if len(faults) == 1:
        return str(faults[0])
    return "\n  ".join((f"{file} has {len(faults)} problems:", *map(str, faults)))


def code_mode_command(config_file: str) -> str:
    """The command that enables code mode in this file; empty for the default file."""
    file = f" --config {shlex.quote(config_file)}" if config_file else ""
    return f"nacre config set{file} tools.codeMode.enabled true"


def find_surface(agent: AgentConfig, config: SystemConfig) -> AgentSurface:
    """The surface that the configuration asks for."""
    from nacre.agent import planned_surface
    from nacre.config import choose_runtime

    if choose_runtime(agent.model, agent, config.models, config.codex).id == "codex":
        return "codex"
    return planned_surface(agent)


def describe_surface(kind: AgentSurface, config_file: str) -> str:
    """How an agent offers its tools to the model, and how to enable code mode."""
    how = f"; enable code mode with: {code_mode_command(config_file)}"
    match kind:
        case "code_mode":
            return "code mode: the model gets `exec` and `wait`, and its programs call the tools"
        case "tool_search":
            return f"tool search: the model searches for its tools{how}"
        case "codex":
            return "Codex: it has tools of its own, and offers yours to the model"
        case "direct":
            return f"direct: the model gets the definitions of all tools with every request{how}"
