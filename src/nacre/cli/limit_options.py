"""The limits of a cell as options of a command, after the table in the config."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nacre.cli.output import UsageProblem
from nacre.config.code_mode import FIELDS, LIMITS, code_mode_config_from
from nacre.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from nacre.config.code_mode import CodeModeConfig


def limit_help(field: str, meaning: str) -> str:
    limit = LIMITS[field]
    return f"{meaning} [default: {limit.default}; {limit.least} to {limit.most}]"


def config_from(given: Mapping[str, str | None], *, note: Callable[[str], None]) -> CodeModeConfig:
    """The settings for the options that were given, by field; `note` is told what was clamped.

    Raises UsageProblem for what is not a whole number.
    """
    numbers = {field: _number(text) for field, text in given.items() if text is not None}
    try:
        config = code_mode_config_from({LIMITS[field].key: n for field, n in numbers.items()})
    except ConfigError as error:
        option = _option(FIELDS[error.path.rpartition(".")[2]])
        raise UsageProblem(f"{option} {error.problem}") from None
    for field, number in numbers.items():
        used = getattr(config, field)
        if used != number:
            bound = "below the least" if used == LIMITS[field].least else "above the most"
            note(f"{_option(field)} {given[field]} is {bound}; {used} is used")
    return config


def _number(text: str) -> int | str:
    try:
        return int(text)
    except ValueError:
        return text


def _option(field: str) -> str:
    return f"--{field.replace('_', '-')}"
