"""The whole configuration, as commands that run agents read it."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from nacre.cli.output import UsageError
from nacre.config import find_config_file, read_config_file
from nacre.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from nacre.config import ConfigFile, SystemConfig

logger = logging.getLogger(__name__)

EMBEDDED: Final[Mapping[str, object]] = {"tools": {"codeMode": {"enabled": True}}}
"""What agents without any configuration run on: programs, and a model that needs no key."""


def read_agent_config(named: str | None) -> tuple[ConfigFile, SystemConfig]:
    """The same for the gateway: where nothing is configured, something is shown, and every secret
    has to be there."""
    file, config, _ = _read(named, may_lack_secrets=False)
    return file, _or_embedded(file, config)


def read_run_config(named: str | None) -> tuple[SystemConfig, tuple[ConfigError, ...]]:
    """The same for a command that runs one agent; and which models and MCP servers lack a secret,
    of which it may need none."""
    file, config, lacking = _read(named, may_lack_secrets=True)
    return _or_embedded(file, config), lacking


def read_system_config(named: str | None) -> tuple[ConfigFile, SystemConfig]:
    """Find, read and check the configuration; raises UsageError with all that is wrong.

    Models and MCP servers may lack their secrets: nobody is going to ask them.
    """
    file, config, _ = _read(named, may_lack_secrets=True)
    return file, config


def _or_embedded(file: ConfigFile, config: SystemConfig) -> SystemConfig:
    if config.document:
        return config
    from nacre.config import system_config_from

    folder = file.path.absolute().parent
    return system_config_from(EMBEDDED, environment=os.environ, folder=folder)


def _read(
    named: str | None, *, may_lack_secrets: bool
) -> tuple[ConfigFile, SystemConfig, tuple[ConfigError, ...]]:
    # Not a part of every command, and not cheap to import.
    from nacre.config import is_missing_secret, read_system

    file = find_config_file(Path(named) if named else None, environment=os.environ)
    try:
        document = read_config_file(file)
    except ConfigError as error:
        raise UsageError(str(error)) from None
    found = read_system(document, environment=os.environ, folder=file.path.absolute().parent)
    lacking = tuple(it for it in found.problems if may_lack_secrets and is_missing_secret(it))
    faults = [it for it in found.problems if it not in lacking]
    if faults:
        raise UsageError(_format_problems(faults, file.path))
    for warning in found.warnings:
        logger.warning("%s", warning)
    return file, found.config, lacking


def _format_problems(faults: Sequence[ConfigError], file: Path) -> str:
    """A single one in a line; more of them in a line each."""
    if len(faults) == 1:
        return str(faults[0])
    return "\n  ".join((f"{file} has {len(faults)} problems:", *map(str, faults)))
