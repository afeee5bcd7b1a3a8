"""Typed configuration: every default and limit in one place; knows nothing of what uses it."""

from nacre.config.code_mode import LIMITS, CodeModeConfig, Language, code_mode_config_from
from nacre.config.contract_values import NumberLimit

__all__ = ["LIMITS", "CodeModeConfig", "Language", "NumberLimit", "code_mode_config_from"]
