"""Who says which file the configuration is, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from nacre.config.config_file import VARIABLE

if TYPE_CHECKING:
    from nacre.config.config_file import ConfigFile


def origin_text(file: ConfigFile) -> str:
    """One line: the file, why it is this one, and whether it is there."""
    state = "" if file.path.exists() else "; it is not there"
    return f"{file.path}, {_reason(file)}{state}"


def _reason(file: ConfigFile) -> str:
    match file.origin:
        case "option":
            return "named by --config"
        case "environment":
            return f"named by {VARIABLE}"
        case "project":
            return "in the working directory"
        case "user":
            return "in your config directory"
        case _:
            assert_never(file.origin)
