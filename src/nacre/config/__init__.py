"""Typed configuration: every default and limit in one place; knows nothing of what uses it."""

from nacre.config.code_mode import (
    LIMITS,
    CodeModeConfig,
    Language,
    NumberLimit,
    code_mode_config_from,
)

__all__ = ["LIMITS", "CodeModeConfig", "Language", "NumberLimit", "code_mode_config_from"]
