"""The limits of a cell: the defaults of the config, or what the config says."""

from nacre.config.code_mode import CodeModeConfig
from nacre.sandbox.limits import Limits


def test_limits_without_a_config_are_those_of_the_default_config() -> None:
    assert Limits() == Limits.from_config(CodeModeConfig())


def test_limits_take_each_number_from_its_own_field_of_the_config() -> None:
    config = CodeModeConfig(
        timeout_ms=101,
        memory_limit_bytes=102,
        max_output_bytes=103,
        max_snapshot_bytes=104,
        max_pending_tool_calls=105,
    )
    assert Limits.from_config(config) == Limits(
        timeout_ms=101,
        memory_limit_bytes=102,
        max_output_bytes=103,
        max_snapshot_bytes=104,
        max_pending_tool_calls=105,
    )
