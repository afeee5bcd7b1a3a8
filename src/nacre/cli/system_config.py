"""The whole configuration, as commands that run agents read it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from nacre.cli.exit_status import UsageProblem
from nacre.config.config_file import find_config_file, read_config_file
from nacre.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from nacre.config.config_file import ConfigFile
    from nacre.config.system import SystemConfig


EMBEDDED: Final[Mapping[str, object]] = {"tools": {"codeMode": {"enabled": True}}}
"""What agents without any configuration run on: programs, and a model that needs no key."""


def read_agent_config(named: str | None) -> tuple[ConfigFile, SystemConfig]:
    """The same for commands that run agents: where nothing is configured, something is shown."""
    file, config = read_system_config(named)
    if config.document:
        return file, config
    from nacre.config.system import system_config_from

    folder = file.path.absolute().parent
    return file, system_config_from(EMBEDDED, environment=os.environ, folder=folder)


def read_system_config(named: str | None) -> tuple[ConfigFile, SystemConfig]:
    """Find, read and check the configuration; raises UsageProblem."""
    # Not a part of every command, and not cheap to import.
    from nacre.config.system import system_config_from

    file = find_config_file(Path(named) if named else None, environment=os.environ)
    try:
        document = read_config_file(file)
        folder = file.path.absolute().parent
        return file, system_config_from(document, environment=os.environ, folder=folder)
    except ConfigError as error:
        raise UsageProblem(str(error)) from None
