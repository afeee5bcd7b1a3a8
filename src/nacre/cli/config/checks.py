"""All that is wrong with a configuration, asked of every part that reads it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nacre.cli.config.surfaces import surface_warnings
from nacre.config.mcp_section import unused_places
from nacre.config.system import read_system
from nacre.errors import ConfigError, MisplacedValueError
from nacre.plugins.configuration import check_plugins
from nacre.run_context import RunContext
from nacre.tools.policy import policy_from_config

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from nacre.config.reading import Setting
    from nacre.config.system import SystemReading


@dataclass(frozen=True, kw_only=True, slots=True)
class Checked:
    """What was found in a document."""

    problems: tuple[ConfigError, ...]
    warnings: tuple[str, ...]
    settings: Mapping[str, Setting]
    known_paths: frozenset[str]


def check(document: Mapping[str, object], file: Path) -> Checked:
    """Read the document of this file as the gateway would."""
    found = read_system(document, environment=os.environ, folder=file.absolute().parent)
    problems = {problem.path: problem for problem in _problems_of_rules(document, found)}
    for problem in found.problems:
        # Rules with a fault are told of by both.
        problems.pop(problem.path, None)
    plugins, told = check_plugins(found.config.plugins), {it.path for it in found.problems}
    return Checked(
        problems=(
            *found.problems,
            *problems.values(),
            # Where a value could not be read, a schema finds the stopgap in its place.
            *(it for it in plugins.problems if it.path not in told),
        ),
        warnings=(
            *found.warnings,
            *surface_warnings(document, found.config.agents.ids),
            *plugins.warnings,
        ),
        settings=found.settings,
        known_paths=found.known_paths,
    )


def misplaced_in(document: Mapping[str, object], file: Path) -> frozenset[str]:
    """Where something stands in the document that has no business there, or that nobody reads."""
    problems = check(document, file).problems
    places = [it.place for it in problems if isinstance(it, MisplacedValueError)]
    return frozenset((*places, *unused_places(document)))


def _problems_of_rules(document: Mapping[str, object], found: SystemReading) -> list[ConfigError]:
    problems: list[ConfigError] = []
    for agent_id in found.config.agents.ids:
        try:
            policy_from_config(document, RunContext(agent_id=agent_id))
        except ConfigError as problem:
            problems.append(problem)
    return problems
